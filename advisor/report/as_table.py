"""`-o table`: text for people, in the width and colours of the terminal."""

from advisor.records.answer import Recommendation
from advisor.report.view import View

SUFFIX = ".txt"


def render(recommendation: Recommendation, view: View) -> str:
    """The answer as `render_text` shows it."""
    from advisor.report.text import render_text

    return render_text(recommendation, width=view.width, color=view.color, top=view.top)
