"""Builds what every answer is made from: the step, the options, the catalog and this machine."""
