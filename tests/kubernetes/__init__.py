"""A real kubelet, and what the agent does on it; run by ci/kubernetes."""
