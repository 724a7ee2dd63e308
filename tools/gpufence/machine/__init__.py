"""What /proc, container engines and NVML tell of this machine."""
