"""Renders records as text, JSON, CSV, Markdown or HTML: one file per format."""
