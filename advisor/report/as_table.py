"""`-o table`: renders the answer as text in the width and colours of the terminal."""

from advisor.records.answer import Recommendation
from advisor.report.view import View

SUFFIX = ".txt"


def render(recommendation: Recommendation, view: View) -> str:
    """Return the answer as text."""
    from advisor.report.text import render_text

    return render_text(recommendation, width=view.width, color=view.color, top=view.top)
