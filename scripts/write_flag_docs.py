"""Writes docs/flags.md from the definitions of the commands, and the table of providers in docs/prices.md from theirs.

python scripts/write_flag_docs.py
"""

import re
from collections.abc import Iterator
from pathlib import Path

import click

from advisor.cli.commands import load_command
from advisor.cli.main import DEFAULT_COMMAND, advise
from advisor.refresh.providers import api_keys, provider_module, providers
from advisor.report.as_markdown import escape

TARGET = Path(__file__).parents[1] / "docs" / "flags.md"
PRICES = TARGET.with_name("prices.md")
HEADER = """# Flags

Written by `scripts/write_flag_docs.py` from the commands' own definitions; do not edit. `recommend()` takes the flags
of `advise rank` under the same names, with underscores, except `--input` (it takes `example_inputs`), `--run`,
`--timeout`, `--emit`, `--idle-minutes`, `--port`, `--image`, `--details`, `--output` and `--help`.
`--provider`, `--region`, `--tier`, `--arch`, `--instance` and `--device` also take several values with commas between
them.

Exit codes: 0 an answer; 1 nothing fits the limits; 2 invalid usage, profile or price file; 3 a threshold is exceeded
(`--fail-if-cost-rises`, `--max-mape`; for `calibrate`: a calibration was disturbed and is not kept); 4 the model cannot
be loaded or traced, a timeout, or `--strict`; 5 the network; 70 a bug in advise; 130 an interrupt.

Traces, calibrations and the read price files are kept in `~/.cache/advisor`, or in `advisor` in the folder that
`XDG_CACHE_HOME` names. Delete the folder to empty it: `calibrations/` is measured anew, the rest is written anew.

| flag | value | default | commands | meaning |
|---|---|---|---|---|
"""


def flag_docs() -> str:
    """Return the page, with one line for each meaning of a flag, in the order of `--help`."""
    commands: dict[str, dict[tuple[str, ...], list[str]]] = {}
    context = advise.make_context("advise", [DEFAULT_COMMAND], resilient_parsing=True)
    for name in advise.list_commands(context):
        for full_name, command in _with_subcommands(name, load_command(name)):
            for parameter in command.get_params(click.Context(command, info_name=full_name, parent=context)):
                if isinstance(parameter, click.Option):
                    flag = ", ".join(f"`{opt}`" for opt in parameter.opts)
                    line = (_value(parameter), _default(parameter), parameter.help or "")
                    commands.setdefault(flag, {}).setdefault(line, []).append(full_name)
    rows = (
        (flag, *map(escape, cells), ", ".join(names), escape(text))
        for flag, meanings in commands.items()
        for (*cells, text), names in meanings.items()
    )
    return HEADER + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _with_subcommands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Yield the command, or each command of a group under its full name of two words."""
    if isinstance(command, click.Group):
        yield from ((f"{name} {sub}", subcommand) for sub, subcommand in command.commands.items())
    else:
        yield name, command


def _value(option: click.Option) -> str:
    if option.is_flag:
        return ""
    return f"{option.metavar or ''}{', repeatable' if option.multiple else ''}"


def _default(option: click.Option) -> str:
    has_default = isinstance(option.default, str | int | float)  # neither None nor click's marker of a missing default
    return str(option.default) if has_default and not option.is_flag and not option.multiple else ""


def price_docs(page: str) -> str:
    """Return the page on prices with the table of the providers that can be refreshed."""
    lines = []
    for provider in providers():
        module, key = provider_module(provider), api_keys().get(provider, "")
        lines.append(f"| {provider} | {module.LISTS} | {module.KINDS} | {f'`{key}` ' if key else ''}|\n")
    return re.sub(r"(?<=\|---\|---\|---\|---\|\n)(\|.*\n)+", "".join(lines), page)


if __name__ == "__main__":
    TARGET.write_text(flag_docs(), encoding="utf-8")
    PRICES.write_text(price_docs(PRICES.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote {TARGET} and {PRICES}")
