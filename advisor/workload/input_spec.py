"""Parses `--input` into shapes and dtypes, without torch, so that a typing error is reported at once."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from advisor.errors import UsageError, did_you_mean

DTYPES = (
    "float32", "float16", "bfloat16", "float64", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64",
)  # fmt: skip
_SPEC = re.compile(r"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<shape>[1-9]\d*(?:x[1-9]\d*)*)?(?::(?P<dtype>\w+))?")
_HINT = "write --input 3x224x224 or --input ids=1024:int64, without the batch dimension"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """One argument of the model's forward, without the batch dimension; an unnamed one is passed by position."""

    name: str | None
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        """Return the text that `--input` takes."""
        name = f"{self.name}=" if self.name else ""
        dtype = f":{self.dtype}" if self.dtype != "float32" else ""
        return f"{name}{'x'.join(map(str, self.shape))}{dtype}"


def parse_input_spec(text: str) -> InputSpec:
    """Parse `[NAME=]SIZExSIZE[:DTYPE]`; raise `UsageError` if invalid. `:int64` alone is one number per sample."""
    match = _SPEC.fullmatch(text)
    if match is None or not text or text.endswith("="):
        raise UsageError(f"--input {text}: not a shape", hint=_HINT)
    dtype = match["dtype"] or "float32"
    if dtype not in DTYPES:
        raise UsageError(f"--input {text}: unknown dtype {dtype}", hint=did_you_mean(dtype, DTYPES))
    shape = tuple(int(size) for size in match["shape"].split("x")) if match["shape"] else ()
    return InputSpec(name=match["name"], shape=shape, dtype=dtype)


def parse_input_specs(texts: Iterable[str]) -> tuple[InputSpec, ...]:
    """Parse all `--input`; raise `UsageError` if a name is repeated."""
    specs = tuple(parse_input_spec(text) for text in texts)
    names = [spec.name for spec in specs if spec.name]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--input {name}=... is given twice", hint="give one --input per argument")
    return specs


def with_length(texts: Iterable[str], length: int) -> tuple[str, ...]:
    """Return `--input` with the sequence, the first dimension of the first input, of this length.

    Other inputs whose first dimension is as long have the same sequence. Raises `UsageError` if there is no dimension.
    """
    specs = parse_input_specs(texts)
    if not specs[0].shape:
        raise UsageError(f"--input {specs[0]}: no dimension can be the sequence", hint=_HINT)
    of_sequence = specs[0].shape[0]
    changed = (
        replace(spec, shape=(length, *spec.shape[1:])) if spec.shape[:1] == (of_sequence,) else spec for spec in specs
    )
    return tuple(map(str, changed))
