"""Writes a device as the text of a profile file."""

import json
from collections.abc import Sequence
from dataclasses import MISSING, fields
from decimal import Decimal
from typing import Any

from advisor.records.device import Cpu, Gpu


def device_yaml(device: Gpu | Cpu, *, comments: Sequence[str]) -> str:
    """Return the comments and every field that differs from its default, in base units.

    Texts and lists are written as JSON, which is also YAML.
    """
    lines = [f"# {comment}" for comment in comments]
    for field in fields(device):
        value = getattr(device, field.name)
        if field.default is MISSING or value != field.default:
            lines.append(f"{field.name}: {_scalar(value)}")
    return "\n".join(lines) + "\n"


def _scalar(value: Any) -> str:
    if isinstance(value, float):
        return _number(value)
    return json.dumps(value, ensure_ascii=False)


def _number(value: float) -> str:
    """Return the shortest text of the same number, such as 34359738368 or 1.413e+13."""
    exact = Decimal(repr(value))
    plain = str(int(value)) if value.is_integer() else repr(value)
    return min(plain, f"{exact.normalize():e}", key=len)
