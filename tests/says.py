"""Finds facts in a text: the numbers, names, flags and paths that it must hold, whatever its words are."""

import re


def assert_says(text: str, *facts: str) -> None:
    """Assert that the text holds every fact, each after the one before it.

    A fact stands alone: "2 GiB" is neither in "12 GiB" nor in "0.2 GiB". Line breaks count as spaces.
    """
    flat = " ".join(text.split())
    end = 0
    for fact in facts:
        found = re.compile(rf"(?<![\w$])(?<!\d[.,])(?<!\s-){re.escape(fact)}(?!\w)(?![.,]\d)").search(flat, end)
        assert found is not None, f"{fact!r} is not in {flat[end:]!r}, the rest of {flat!r}"
        end = found.end()
