"""Answers the questions that a user asks, one file each: which instance, why that long, does it fit, and so on."""
