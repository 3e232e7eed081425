"""Serves the page at `/`: its files, which contain no secrets, and the questions that it asks."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from fastapi import FastAPI, Response

from advisor.report.html import ASSETS, MODULES, PLOT_STYLE_HASH

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
"""The questions that the page asks. They take the same body as /v1; the page's scripts draw the answers."""


def page_files() -> Mapping[str, Path]:
    """Return the files of the report, of the page and of the example workloads, by URL path."""
    shared = [ASSETS / name for name in (*MODULES, "report.css", "plot.min.js")]
    own = [_OWN / "page.js", _OWN / "page.css", _OWN / "icon.svg", *sorted(_OWN.glob("examples/*.json"))]
    return {"/": _OWN / "page.html", **{f"/page/{path.name}": path for path in (*shared, *own)}}


def add_files(app: FastAPI) -> None:
    """Add the routes of the page's files; they are not in the schema, because only the page uses them."""
    for path, file in page_files().items():
        app.add_api_route(path, _serving(file), include_in_schema=False)


def _serving(file: Path) -> Callable[[], Awaitable[Response]]:
    body = file.read_bytes()

    async def route() -> Response:
        return Response(body, media_type=_TYPES[file.suffix], headers=_HEADERS)

    return route
