"""Parses and edits the `NAME(parameter=value, ...)` in `FILE.py::NAME(...)` without running the file."""

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from advisor.errors import LoadError
from advisor.files.regular_file import read_regular_file

FACTORIES = ("get_model", "build_model", "make_model")
"""Factory names to look for if the source does not name one."""
Arguments: TypeAlias = Mapping[str, bool | int | float | str | None]


def split_call(text: str) -> tuple[str, Arguments]:
    """Split "get_model(width=64)" into its name and keyword arguments; raise `LoadError` if it is not such a call."""
    if "(" not in text:
        return text, {}
    problem = LoadError(
        f"{text!r} is not a call with keyword arguments",
        hint="write FILE.py::get_model(width=64, depth=4), with plain values",
    )
    try:
        call = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        raise problem from None
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)) or call.args:
        raise problem
    arguments: dict[str, bool | int | float | str | None] = {}
    for keyword in call.keywords:
        try:
            value = ast.literal_eval(keyword.value)
        except ValueError:
            raise problem from None
        if keyword.arg is None or not isinstance(value, bool | int | float | str | None):
            raise problem
        arguments[keyword.arg] = value
    return call.func.id, arguments


def with_argument(source: str, name: str, value: int) -> str:
    """Return the source `FILE.py[::NAME[(...)]]` with one argument set."""
    path, _, call = source.partition("::")
    factory, arguments = split_call(call or _only_factory(Path(path)))
    listed = ", ".join(f"{key}={argument!r}" for key, argument in {**arguments, name: value}.items())
    return f"{path}::{factory}({listed})"


def whole_number_parameters(source: str) -> Mapping[str, int]:
    """Return the integer parameters of the source's factory, with their values for this source."""
    path, _, call = source.partition("::")
    factory, arguments = split_call(call or _only_factory(Path(path)))
    found = _parameters(_definition(_tree(Path(path)), factory))
    defaults = {name: value for name, value in found.items() if isinstance(value, int) and not isinstance(value, bool)}
    given = {name: value for name, value in arguments.items() if isinstance(value, int) and name in found}
    return {**defaults, **given}


def _only_factory(path: Path) -> str:
    """Return the name of the factory or the single class that a source without a NAME refers to."""
    tree = _tree(path)
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    found = [name for name in ("model", *FACTORIES) if name in functions] or classes
    if len(found) != 1:
        raise LoadError(f"{path}: cannot tell which function or class makes the model", hint=f"name it: {path}::NAME")
    return found[0]


def _tree(path: Path) -> ast.Module:
    try:
        return ast.parse(read_regular_file(path))
    except (OSError, SyntaxError, ValueError) as error:
        raise LoadError(f"{path}: {error}", hint="name a Python file") from None


def _definition(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    """Return the function of that name, or the constructor of the class of that name."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
        if isinstance(node, ast.ClassDef) and node.name == name:
            return _definition(ast.Module(body=node.body, type_ignores=[]), "__init__")
    return None


def _parameters(definition: ast.FunctionDef | None) -> dict[str, object]:
    """Return the constant default values by parameter name."""
    if definition is None:
        return {}
    positional = [*definition.args.posonlyargs, *definition.args.args]
    defaults = definition.args.defaults
    pairs = [
        *zip(positional[len(positional) - len(defaults) :], defaults, strict=True),
        *zip(definition.args.kwonlyargs, definition.args.kw_defaults, strict=True),
    ]
    return {argument.arg: default.value for argument, default in pairs if isinstance(default, ast.Constant)}
