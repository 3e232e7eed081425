"""Predicts the time and the memory of a workload's step on each device of the catalog."""
