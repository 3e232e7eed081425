"""Removes control characters and line breaks from text."""


def printable(text: str) -> str:
    """Return `text` with blanks for unprintable characters, so that no name can control a terminal or split a line."""
    return "".join(character if character.isprintable() else " " for character in text)
