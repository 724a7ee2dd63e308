"""What ci/release runs: the files of a release, made from one commit, the same bytes every time."""
