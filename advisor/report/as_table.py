"""`-o table`: renders the answer as text in the width and colours of the terminal."""

from advisor.records.answer import Recommendation
from advisor.report.content import View

SUFFIX = ".txt"


def render(recommendation: Recommendation, view: View) -> str:
    """Return the answer as text."""
    from advisor.report.recommendation import recommendation_content  # late, because `--help` imports every format
    from advisor.report.terminal import to_text

    return to_text(recommendation_content(recommendation, top=view.top), view)
