"""Prices the job on every offer and ranks the quotes."""
