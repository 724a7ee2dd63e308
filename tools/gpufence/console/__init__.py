"""The terminal: streams, parsers, flags that variables stand for, files that are replaced whole."""
