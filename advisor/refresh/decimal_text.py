"""Parses the text of a price."""


def positive(text: str) -> float | None:
    """Return the number, or None for 0 and for other text, such as "N/A*"."""
    return (float(text) or None) if text.replace(".", "", 1).isdecimal() else None
