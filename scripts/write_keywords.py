"""Writes advisor/question/keywords.py, the typed keywords of the public functions, from the record of options.

python scripts/write_keywords.py
"""

import json
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, get_args

from advisor.records.flag_values import is_several, value_type
from advisor.records.options import NOT_IN_PYTHON, Options

TARGET = Path(__file__).parents[1] / "advisor" / "question" / "keywords.py"
_LINE = 120
"""The longest line of the source."""
HEADER = '''"""The keywords of the public functions; written by `scripts/write_keywords.py`, do not edit."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    import torch
    from torch import nn


class Keywords(TypedDict, total=False):
    """The model's functions, then the flags of `advise`; text is read as on the command line."""

    loss: "Callable[[Any, Any], torch.Tensor] | None"
    optimizer: "Callable[[Iterable[Any]], torch.optim.Optimizer] | None"
    train_step: "Callable[[nn.Module, Any], Any] | None"
'''
FOOTER = '''

class RankKeywords(Keywords, total=False):
    """The keywords of `recommend`, which alone can measure."""

    measure: bool
'''


def keywords() -> str:
    """Return the module's text, with one line for each flag that the Python functions accept."""
    named = [field for field in fields(Options) if field.name not in (*NOT_IN_PYTHON, "measure")]
    return HEADER + "".join(f"    {field.name}: {_type(field)}\n" for field in named) + FOOTER


def _type(field: Field[Any]) -> str:
    """Return the type of a keyword: a number may be text, a list of one name may be the name, a file may be a path."""
    item, metavar = value_type(field.type), field.metadata["metavar"]
    if item is bool:
        return "bool"
    if is_several(field):
        one = "str | Path" if metavar == "FILE" else "str"
        return f"{one} | Sequence[{one}]"
    if choices := get_args(item):
        listed = ", ".join(map(json.dumps, choices))
        is_long = len(f"    {field.name}: Literal[{listed}]") > _LINE
        return f"Literal[\n        {listed}\n    ]" if is_long else f"Literal[{listed}]"
    names = {int: "int | str", str: "str"}.get(item, "float | str")  # a time, or a limit on one
    if metavar.startswith("N|"):
        names = "int | str"
    if metavar == "DIR":
        names = "str | Path"
    return names if field.default is not None else f"{names} | None"


if __name__ == "__main__":
    TARGET.write_text(keywords(), encoding="utf-8")
    print(f"wrote {TARGET}")
