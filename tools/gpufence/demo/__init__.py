"""`gpufence demo`: two programs on one simulated GPU, and what was seen of them."""
