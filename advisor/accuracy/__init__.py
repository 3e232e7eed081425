"""Measurements and predictions in, how far they are apart out."""
