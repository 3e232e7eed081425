"""Writes fitted efficiencies as the text of YAML files."""

from collections.abc import Iterable
from dataclasses import fields

from advisor.records.device import Efficiency, FamilyEfficiency

_OPTIONAL_FIELDS = ("core_bytes_per_s", "launch_s")
"""Optional fields of a family."""
_WRITTEN_SEPARATELY = frozenset(
    {
        "families", "memory_type_ratios", "operator_ratios", "kind", "vendor", "generation", "precision",
        "fitted_vendors", "fitted_on", "date", "source",
    }
)  # fmt: skip


def yaml_text(efficiency: Efficiency) -> str:
    """Return the YAML text, with one line per coefficient and per family."""
    lines = [
        "# Shares of peak and bandwidth; spreads are of log(measured / predicted).",
        f"kind: {efficiency.kind}",
        f'vendor: "{efficiency.vendor}"',
        f'generation: "{efficiency.generation}"',
        f'precision: "{efficiency.precision}"',
        *_coefficients(efficiency),
        *([f"fitted_vendors: [{', '.join(efficiency.fitted_vendors)}]"] if efficiency.fitted_vendors else []),
        f"fitted_on: [{', '.join(efficiency.fitted_on)}]",
        f"date: {efficiency.date}",
        f'source: "{efficiency.source}"',
        *_memory_types(efficiency),
        "families:",
        *(_family(name, family) for name, family in efficiency.families.items()),
        *(["operator_ratios:"] if efficiency.operator_ratios else []),
        *(f'  "{name}": {number(ratio)}' for name, ratio in efficiency.operator_ratios.items()),
    ]
    return "\n".join(lines) + "\n"


def _coefficients(efficiency: Efficiency) -> Iterable[str]:
    """Yield the lines of the coefficients whose written value differs from the default."""
    for field in fields(Efficiency):
        value, default = getattr(efficiency, field.name), field.default
        if field.name in _WRITTEN_SEPARATELY or value == default:
            continue
        text = number(value)
        if not isinstance(default, float) or text != number(default):
            yield f"{field.name}: {text}"


def _memory_types(efficiency: Efficiency) -> Iterable[str]:
    if efficiency.memory_type_ratios:
        ratios = (f"{name}: {number(ratio)}" for name, ratio in efficiency.memory_type_ratios.items())
        yield f"memory_type_ratios: {{{', '.join(ratios)}}}"


def _family(name: str, family: FamilyEfficiency) -> str:
    values = (
        f"compute_ratio: {number(family.compute_ratio)}",
        f"memory_ratio: {number(family.memory_ratio)}",
        f"log_spread: {number(family.log_spread)}",
        *(f"{name}: {number(value)}" for name in _OPTIONAL_FIELDS if (value := getattr(family, name)) is not None),
        f"n: {family.n}",
        f'source: "{family.source}"',
    )
    key = f'"{name}"' if name == "*" else name
    return f"  {key}: {{{', '.join(values)}}}"


def number(value: float) -> str:
    """Format with four significant digits, in a form that YAML reads as a number."""
    text = f"{value:.4g}"
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{int(exponent):+03d}" if exponent else text
