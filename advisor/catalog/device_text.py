"""A device in, the text of a profile file that reads as the same device out."""

import json
from collections.abc import Sequence
from dataclasses import MISSING, fields
from decimal import Decimal
from typing import Any

from advisor.records.device import Cpu, Gpu


def device_yaml(device: Gpu | Cpu, *, comments: Sequence[str]) -> str:
    """Every field that is not its default, in base units, below the comments.

    Texts and lists are JSON, which YAML reads alike.
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
    """The shortest that reads as the same number: 34359738368, 1.413e+13."""
    exact = Decimal(repr(value))
    plain = str(int(value)) if value.is_integer() else repr(value)
    return min(plain, f"{exact.normalize():e}", key=len)
