"""Tests of the simulated driver itself: no library of ours in front of it."""
