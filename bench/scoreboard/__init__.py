"""The scoreboard: every claim as a figure of each way to share, beside the bare driver's."""
