"""CDI files: what is in them, and YAML."""
