"""Loads a model and traces one step of it as a device-neutral Workload."""
