"""Any text in, one line without control characters out."""


def printable(text: str) -> str:
    """`text` with blanks for what cannot be printed: a name in a file must not steer a terminal or split a line."""
    return "".join(character if character.isprintable() else " " for character in text)
