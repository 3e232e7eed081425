"""The text of a price in, the price out."""


def positive(text: str) -> float | None:
    """The number; None for 0 and for what is no number, such as "N/A*"."""
    return (float(text) or None) if text.replace(".", "", 1).isdecimal() else None
