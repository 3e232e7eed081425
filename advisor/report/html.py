"""Renders a document as one HTML file that needs no network: it contains its styles, scripts and data."""

import json
from base64 import b64encode
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path

from advisor.records.report_contents import Report
from advisor.report.as_json import as_dict
from advisor.report.content import Document, printable

_START = 'showReport(JSON.parse(document.getElementById("data").textContent), document.getElementById("report"));'
_IN_A_SCRIPT = {ord(character): f"\\u{ord(character):04x}" for character in "<>&"}
"""Characters that could end the element or open a comment; JSON decodes the escapes."""


def render_report(report: Report) -> str:
    """Return the whole HTML file of a recommendation."""
    from advisor.report.document import document_of  # late, because the service's page needs the assets alone

    return render_document(document_of(report))


def render_document(document: Document) -> str:
    """Return the whole HTML file."""
    title, headline, answer = (escape(printable(text)) for text in (document.title, document.headline, document.answer))
    style, library, script = asset("report.css"), asset("plot.min.js"), _script()
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; "
        f"script-src {csp_hash(library)} {csp_hash(script)}; style-src {csp_hash(style)} {PLOT_STYLE_HASH}"
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main id="report">
<h1>{title}</h1>
<p class="headline">{headline}</p>
<p class="answer">{answer}</p>
<noscript><p>Scripts are switched off. This report needs its scripts to draw the tables and plots.</p></noscript>
</main>
<script type="application/json" id="data">{json_in_html(document)}</script>
<script>{library}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def json_in_html(value: object) -> str:
    """Return JSON in ASCII that is safe inside a <script>: no string in it can end the element."""
    return json.dumps(value, default=as_dict, allow_nan=False, separators=(",", ":")).translate(_IN_A_SCRIPT)


def _script() -> str:
    """Return our modules joined into one, because a file opened from disk may not import another."""
    lines = [line for name in MODULES for line in asset(name).splitlines() if not line.startswith("import ")]
    return "\n".join((*(line.removeprefix("export ") for line in lines), _START))


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
