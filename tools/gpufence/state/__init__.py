"""The files that processes of a container share, as bytes. The counterpart of lib/src/state."""
