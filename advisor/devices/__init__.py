"""Turns the name of a device or an offer, or this machine, into a `Device` to predict for."""
