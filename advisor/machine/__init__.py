"""This machine in, the record of it out: CPU, caches, memory and GPUs, as this process may use them."""
