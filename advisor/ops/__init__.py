"""Counts the FLOP and bytes of operators from their shapes and attributes, one file per family. Does not need torch."""
