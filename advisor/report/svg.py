"""Draws a chart of times on two logarithmic axes as SVG, for which no browser and no script is needed."""

import re
from collections.abc import Callable, Iterator, Sequence
from html import escape
from math import log

from advisor.report.content import Chart, Series, printable
from advisor.report.html import asset
from advisor.units import format_duration

_WIDTH, _HEIGHT = 900, 720
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 880, 64, 660
_MOST_TICKS = 9
_TENS_S = (*(10.0**power for power in range(-12, 2)), 60.0, 600.0, *(3600.0 * 10**power for power in range(7)))
_TICKS_S = sorted({*_TENS_S, *(digit * ten for ten in _TENS_S[:14] for digit in (2, 5) if digit * ten < 60)})
_Scale = Callable[[float], float]


def chart_svg(chart: Chart) -> str:
    """Return the file, in the report's light colours; all symbols are circles."""
    colors = dict(re.findall(r"--series-(\d): (#\w+)", asset("report.css").partition("@media")[0]))
    points = [point for one in chart.series for point in one.points]
    x, x_ticks = _axis([point.x for point in points], _LEFT, _RIGHT)
    y, y_ticks = _axis([point.y for point in points], _BOTTOM, _TOP)
    middle = (_TOP + _BOTTOM) / 2
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" '
        'font-family="system-ui, Helvetica, Arial, sans-serif" font-size="13" fill="#1b1f24">',
        f'<clipPath id="plot"><path d="M{_LEFT} {_TOP}H{_RIGHT}V{_BOTTOM}H{_LEFT}Z"/></clipPath>',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        _text(12, 24, chart.title, 'font-size="17" font-weight="600"'),
        _text(12, 46, " ".join(chart.notes), 'fill="#57606a"'),
        *(f'<path d="M{x(tick):.1f} {_TOP}V{_BOTTOM}" stroke="#d8dde3"/>' for tick in x_ticks),
        *(f'<path d="M{_LEFT} {y(tick):.1f}H{_RIGHT}" stroke="#d8dde3"/>' for tick in y_ticks),
        *(_text(x(tick), _BOTTOM + 20, format_duration(tick), 'text-anchor="middle"') for tick in x_ticks),
        *(_text(_LEFT - 8, y(tick) + 4, format_duration(tick), 'text-anchor="end"') for tick in y_ticks),
        _text((_LEFT + _RIGHT) / 2, _BOTTOM + 44, chart.x.label, 'text-anchor="middle"'),
        _text(14, middle, chart.y.label, f'text-anchor="middle" transform="rotate(-90 14 {middle})"'),
        *(line for one in chart.series for line in _drawn(one, x, y, color=colors[str(one.color)])),
    ]
    for index, one in enumerate(one for one in chart.series if one.symbol):
        at = _TOP + 24 + 20 * index
        lines.append(f'<circle cx="{_LEFT + 18}" cy="{at - 4}" r="5" fill="{colors[str(one.color)]}"/>')
        lines.append(_text(_LEFT + 30, at, one.name))
    return "\n".join((*lines, "</svg>", ""))


def _axis(values: Sequence[float], start: int, end: int) -> tuple[_Scale, list[float]]:
    """Return the scale from a value to its place, with 3 % of room at both ends, and the ticks."""
    low, high = log(min(values)), log(max(values))
    room = 0.03 * (high - low) or 0.1
    low, high = low - room, high + room
    inside = [tick for tick in _TICKS_S if low <= log(tick) <= high]
    ticks = inside if len(inside) <= _MOST_TICKS else [tick for tick in inside if tick in _TENS_S]
    return lambda value: start + (end - start) * (log(value) - low) / (high - low), ticks


def _drawn(one: Series, x: _Scale, y: _Scale, *, color: str) -> Iterator[str]:
    """Yield the band and the line, and the points as round dots of one path."""
    if one.has_line:
        low = [(x(point.x), y(point.y_low or point.y)) for point in one.points]
        high = [(x(point.x), y(point.y_high or point.y)) for point in reversed(one.points)]
        line = [(x(point.x), y(point.y)) for point in one.points]
        yield f'<path d="{_path(low + high)}" fill="{color}" fill-opacity=".18" clip-path="url(#plot)"/>'
        yield f'<path d="{_path(line)}" fill="none" stroke="{color}" stroke-width="1.5"/>'
    if one.symbol:
        dots = "".join(f"M{x(point.x):.1f} {y(point.y):.1f}h0" for point in one.points)
        stroke = f'stroke-width="{6 if one.is_faint else 9}" stroke-opacity="{0.5 if one.is_faint else 1}"'
        yield f'<path d="{dots}" fill="none" stroke="{color}" {stroke} stroke-linecap="round"/>'


def _path(places: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{at_x:.1f} {at_y:.1f}" for at_x, at_y in places)


def _text(x: float, y: float, text: str, attributes: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {attributes}>{escape(printable(text))}</text>'
