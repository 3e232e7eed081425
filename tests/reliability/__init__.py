"""Hostile input by the thousand: `make reliability` runs these, with a seed and a count."""
