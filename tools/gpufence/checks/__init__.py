"""What `gpufence doctor` examines, one module a subject."""
