"""A node that lives for hours on the simulated driver (ci/soak)."""
