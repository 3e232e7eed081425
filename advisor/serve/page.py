"""The page at `/`: its files, none of which holds anything secret, and the two questions that it asks."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from fastapi import FastAPI, Response

from advisor.report.html_assets import ASSETS, MODULES, PLOT_STYLE_HASH
from advisor.serve.asking import Ask, asking

_OWN = Path(__file__).parent / "page_files"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}
_HEADERS = {
    "content-security-policy": (
        f"default-src 'self'; style-src 'self' {PLOT_STYLE_HASH}; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
}
QUESTIONS = ("report", "break-even")
"""What the page asks with the body of a question of /v1; the answers are what its own scripts draw."""


def page_files() -> Mapping[str, Path]:
    """The files by the paths that they are served at: those of the report, the page's own, and saved workloads."""
    shared = [ASSETS / name for name in (*MODULES, "report.css", "plot.min.js")]
    own = [_OWN / "page.js", _OWN / "page.css", _OWN / "icon.svg", *sorted(_OWN.glob("examples/*.json"))]
    return {"/": _OWN / "page.html", **{f"/page/{path.name}": path for path in (*shared, *own)}}


def add_page(app: FastAPI, ask: Ask) -> None:
    """The routes; none is in the schema, since only the page knows what to do with them."""
    for path, file in page_files().items():
        app.add_api_route(path, _serving(file), include_in_schema=False)
    for question in QUESTIONS:
        app.add_api_route(f"/page/{question}", asking(ask, question), methods=["POST"], include_in_schema=False)


def _serving(file: Path) -> Callable[[], Awaitable[Response]]:
    body = file.read_bytes()

    async def route() -> Response:
        return Response(body, media_type=_TYPES[file.suffix], headers=_HEADERS)

    return route
