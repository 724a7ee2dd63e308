"""Containers of real engines over the simulated driver."""
