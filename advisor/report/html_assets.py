"""Loads the scripts and styles of a page and computes the hashes that allow them to run."""

from base64 import b64encode
from functools import cache
from hashlib import sha256
from pathlib import Path

ASSETS = Path(__file__).parent / "assets"
MODULES = ("dom.js", "ticks.js", "table.js", "plots.js", "report.js")
"""Our own modules, each after the modules that it imports."""
_PLOT_STYLE = """:where(.plot-d6a7b5) {
  --plot-background: white;
  display: block;
  height: auto;
  height: intrinsic;
  max-width: 100%;
}
:where(.plot-d6a7b5 text),
:where(.plot-d6a7b5 tspan) {
  white-space: pre;
}"""
"""The <style> that Observable Plot 0.6.17 puts into every drawing."""


def csp_hash(text: str) -> str:
    """Return the source expression of an inline script or style (Content Security Policy Level 3, 2.3.1)."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


@cache
def asset(name: str) -> str:
    """Return the text of an asset file."""
    return (ASSETS / name).read_text(encoding="utf-8")


PLOT_STYLE_HASH = csp_hash(_PLOT_STYLE)
