"""The formats of a recommendation: a name in, its module `advisor.report.as_NAME` out; a file in, the answer in it."""

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from advisor.errors import UsageError
from advisor.files.whole_file import write_whole
from advisor.records.answer import Recommendation
from advisor.report.view import View

_PREFIX = "as_"


def format_names() -> tuple[str, ...]:
    """Every format, the one for people first."""
    package = import_module("advisor.report")
    names = [module.name for module in iter_modules(package.__path__) if module.name.startswith(_PREFIX)]
    return tuple(sorted((name.removeprefix(_PREFIX) for name in names), key=lambda name: (name != "table", name)))


def format_suffixes() -> dict[str, str]:
    """The file suffix of every format."""
    return {name: format_module(name).SUFFIX for name in format_names()}


def format_module(name: str) -> Any:
    """The module with `SUFFIX` and `render(recommendation, view)` of a format."""
    return import_module(f"advisor.report.{_PREFIX}{name}")


def save_answer(recommendation: Recommendation, file: Path, *, top: int) -> None:
    """Write it in the format that the file's suffix names; raise `UsageError` where it names none."""
    names = {suffix: name for name, suffix in format_suffixes().items()}
    name = names.get(file.suffix.lower())
    if name is None:
        listed = " ".join(names)
        if file.suffix.lower() == ".html":
            raise UsageError(
                f"{file}: a report looks into the model, which an answer does not hold",
                hint=f'advisor.save_report(model, example_inputs, "{file}") or `advise SOURCE -o {file}` writes it; '
                f"save() writes {listed}",
            )
        raise UsageError(f"{file}: its suffix names no format of an answer", hint=f"one of {listed}")
    write_whole(format_module(name).render(recommendation, View(top=top)), file)
