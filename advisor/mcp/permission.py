"""Decides which sources an agent may ask about: those that run no code, and files in folders that the user named."""

import os
from collections.abc import Sequence
from pathlib import Path

from advisor.errors import UsageError
from advisor.records.flag_values import is_workload_file
from advisor.workload.sources import kind_of


def permitted(source: str, allowed: Sequence[Path]) -> str:
    """Return the source, a file by its path without links; raise `UsageError` for a file outside of `allowed`.

    Saved workloads and models that installed packages know by name are always permitted. Everything else is a file that
    would be executed, or that decides which code of a package runs.
    """
    if "\0" in source:
        raise UsageError(f"{source!r:.80} is not a source", hint="name a model or a file")
    kind = kind_of(source)
    if is_workload_file(source):
        return source
    scheme, _, reference = source.partition(":")
    if kind is None or not kind.scheme:
        scheme, reference = "", source
    elif not (kind.is_path and os.path.lexists(reference)):
        return source
    name, colons, member = reference.partition("::")
    path = Path(name).resolve()
    if not any(path.is_relative_to(folder.resolve()) for folder in allowed):
        rule = f"may run files only in {', '.join(map(str, allowed))}" if allowed else "may not run files"
        raise UsageError(
            f"{source}: this server {rule}",
            hint="save its step with `advise profile SOURCE -o workload.json` and ask about that file, or ask the user "
            "to start the server with --allow-run DIR",
        )
    return f"{scheme}:{path}" if scheme else f"{path}{colons}{member}"
