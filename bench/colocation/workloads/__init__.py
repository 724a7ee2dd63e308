"""The bench's programs over PyTorch. They know nothing of scenes, limits or of each other."""
