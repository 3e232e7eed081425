"""From a workload and a catalog's devices to step times and memory."""
