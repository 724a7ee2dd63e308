"""The `gpufence` command: start a fenced program, and prove that it is fenced.

It runs in every container, so it needs the standard library only and starts fast.
"""
