"""Calibrates this machine: times a set of operators briefly and fits its own efficiencies to them."""
