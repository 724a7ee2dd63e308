"""`gpufence top`: a look, its history, and the table, screen or object made of it."""
