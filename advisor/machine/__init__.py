"""Describes this machine: the CPU, caches, memory and GPUs that this process may use."""
