"""The colocation bench: scenes, the ways to share a GPU, programs, judgement and pictures."""
