"""The agent of a Kubernetes node, and its check for processes that go around the library."""
