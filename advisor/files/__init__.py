"""Reads and writes the files that a user names: whole, bounded in size, never torn."""
