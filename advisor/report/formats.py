"""Finds the module `advisor.report.as_NAME` of each output format, and saves an answer to a file."""

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from advisor.errors import UsageError
from advisor.files.whole_file import require_folder, write_whole
from advisor.records.answer import Recommendation
from advisor.report.content import View

_PREFIX = "as_"


def format_names() -> tuple[str, ...]:
    """Return the name of every format, `table` first."""
    package = import_module("advisor.report")
    names = [module.name for module in iter_modules(package.__path__) if module.name.startswith(_PREFIX)]
    return tuple(sorted((name.removeprefix(_PREFIX) for name in names), key=lambda name: (name != "table", name)))


def format_suffixes() -> dict[str, str]:
    """Return the file suffix of every format."""
    return {name: format_module(name).SUFFIX for name in format_names()}


def format_module(name: str) -> Any:
    """Return the module of a format, which has `SUFFIX` and `render(recommendation, view)`."""
    return import_module(f"advisor.report.{_PREFIX}{name}")


def save_answer(recommendation: Recommendation, file: Path, *, top: int) -> None:
    """Write the answer in the format of the file's suffix; raise `UsageError` for another one and a missing folder."""
    names = {suffix: name for name, suffix in format_suffixes().items()}
    name = names.get(file.suffix.lower())
    if name is None:
        listed = " ".join(names)
        if file.suffix.lower() == ".html":
            raise UsageError(
                f"{file}: a report needs the model, which an answer does not contain",
                hint=f'advisor.save_report(model, example_inputs, "{file}") or `advise SOURCE -o {file}` writes it; '
                f"save() writes {listed}",
            )
        raise UsageError(f"{file}: an answer cannot be written in this format", hint=f"use one of {listed}")
    require_folder(file)
    write_whole(format_module(name).render(recommendation, View(top=top)), file)
