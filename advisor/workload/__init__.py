"""A model source in, one step of it as a device-neutral Workload out."""
