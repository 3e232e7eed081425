"""Turns a device's name, an offer's name or this machine into a `Device` to predict for."""
