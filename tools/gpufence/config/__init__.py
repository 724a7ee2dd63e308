"""Limits and settings as people write them: the counterpart of lib/src/config."""
