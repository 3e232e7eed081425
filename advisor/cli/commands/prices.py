"""`advise prices COMMAND`: list, show, check, compare and refresh prices, and print a starter overlay."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from advisor.cli.lazy import LazyCommand, path_of
from advisor.cli.progress import progress
from advisor.cli.terminal import say
from advisor.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.cli.output import Output
    from advisor.records.price import Catalog

_OVERLAY_FLAGS = ("prices", "profiles", "currency")


def _flags(*names: str, has_output: bool = True) -> Callable[[], list[click.Parameter]]:
    def make() -> list[click.Parameter]:
        from advisor.cli.flags import option_flags
        from advisor.cli.output import output_flag

        flags = option_flags(only=(*names, *_OVERLAY_FLAGS))
        if has_output:
            help_text = "table, or json with every row, to stdout; or a file (.txt .json)"
            flags.append(output_flag({"table": ".txt", "json": ".json"}, help_text=help_text))
        return flags

    return make


def _warn(catalog: "Catalog") -> None:
    from datetime import date

    from advisor.catalog.invariants import catalog_warnings

    for warning in catalog_warnings(catalog, today=date.today()):
        say(f"warning: {warning}")


@click.group("prices", no_args_is_help=False, short_help="List, check, change and refresh prices.")
def command() -> None:
    """List, check, change and refresh the prices that "advise" uses for its ranking.

    Prices are kept in YAML files. If several files price the same instance and region, the first of these wins:
    --prices FILE, --profiles DIR, ./advisor.yaml, your config folder, the built-in prices.

    \b
    Examples:
      advise prices list --device gpu --region EU
      advise prices show g5.xlarge
      advise prices init -o advisor.yaml && advise prices validate advisor.yaml
      advise prices diff
      advise prices refresh aws --dry-run
    """


@command.command(
    "list",
    cls=LazyCommand,
    make_flags=_flags("provider", "region", "tier", "device", "price", "max_price_age", "top"),
    exits=(ExitCode.NOTHING_FITS,),
    short_help="List the prices in force, cheapest first.",
)
def list_command(output: "Output", **params: Any) -> int:
    """List the prices in force, cheapest first, each with its date and any reason to doubt it.

    \b
    Examples:
      advise prices list --device l4,t4
      advise prices list --provider aws --price spot --top 50
      advise prices list --currency EUR -o prices.json
    """
    from datetime import date

    from advisor.answers.price_list import list_prices
    from advisor.catalog.find import exchange_rate_of, overlay_notes
    from advisor.cli.flags import options_from
    from advisor.cli.output import view_of, write
    from advisor.errors import NothingFitsError
    from advisor.question.from_source import catalog_of
    from advisor.report.prices import price_list_content, render_prices_json
    from advisor.report.terminal import to_text

    options = options_from(params)
    catalog = catalog_of(options)
    rate = exchange_rate_of(catalog, options.currency)
    rows = list_prices(catalog, options, today=date.today())
    _warn(catalog)
    if not rows:
        raise NothingFitsError("no price is within these limits", hint="remove some of the flags")
    if output.format == "json":
        write(render_prices_json(rows), output)
    else:
        content = price_list_content(rows, rate=rate, top=options.top, notes=overlay_notes(catalog))
        write(to_text(content, view_of(output, top=options.top)), output)
    return ExitCode.ANSWER


@command.command(
    "show", cls=LazyCommand, make_flags=_flags("max_price_age"), short_help="Show every price of an instance type."
)
@click.argument("name")
def show_command(name: str, output: "Output", **params: Any) -> int:
    """Show every price of an instance type, in every region, with its date and source.

    NAME is a type (g5.xlarge, "RTX 4090 24GB PCIe") or the id of an offer (aws/us-east-1/g5.xlarge).

    \b
    Examples:
      advise prices show g5.xlarge
      advise prices show aws/us-east-1/g5.xlarge -o json
    """
    from datetime import date

    from advisor.answers.price_list import show_prices
    from advisor.catalog.find import exchange_rate_of, overlay_notes
    from advisor.cli.flags import options_from
    from advisor.cli.output import view_of, write
    from advisor.question.from_source import catalog_of
    from advisor.report.prices import instance_prices_content, render_prices_json
    from advisor.report.terminal import to_text

    options = options_from(params)
    catalog = catalog_of(options)
    rate = exchange_rate_of(catalog, options.currency)
    rows = show_prices(catalog, name, options, today=date.today())
    _warn(catalog)
    if output.format == "json":
        write(render_prices_json(rows), output)
    else:
        content = instance_prices_content(rows, rate=rate, notes=overlay_notes(catalog))
        write(to_text(content, view_of(output, top=options.top)), output)
    return ExitCode.ANSWER


@command.command("validate", cls=LazyCommand, short_help="Check files of prices, terms or devices.")
@click.argument("files", nargs=-1, required=True, type=path_of, metavar="FILE...")
def validate_command(files: "tuple[Path, ...]") -> int:
    """Check files of prices, terms, devices or efficiencies; each mistake is reported with its file, line and key.

    Values that are implausible compared with the built-in ones cause a warning, here and in every answer.

    \b
    Examples:
      advise prices validate advisor.yaml
      advise prices validate own/prices/*.yaml own/devices/gpu/*.yaml
    """
    from datetime import date

    from advisor.answers.price_list import validate_file
    from advisor.cli.terminal import write_stdout

    for file in files:
        valid = validate_file(file, today=date.today())
        write_stdout(f"{valid.sentence}\n")
        for warning in valid.warnings:
            say(f"warning: {file}: {warning}")
    return ExitCode.ANSWER


@command.command("init", cls=LazyCommand, short_help="Print a commented starter overlay.")
@click.option("-o", "--output", "file", type=path_of, metavar="FILE", help="write to FILE, which must not exist yet")
def init_command(file: "Path | None") -> int:
    """Print an overlay to edit; every entry is commented out: own prices, discounts, exclusions, owned hardware.

    \b
    Examples:
      advise prices init
      advise prices init -o advisor.yaml
    """
    from advisor.catalog.locate import starter_overlay
    from advisor.cli.output import Output, write

    if file is not None and file.exists():
        raise UsageError(f"-o {file}: this file already exists", hint="choose another name, or remove the file first")
    write(starter_overlay(), Output(format="yaml", path=file))
    return ExitCode.ANSWER


@command.command(
    "diff", cls=LazyCommand, make_flags=_flags("top"), short_help="Show which built-in prices your overlays change."
)
def diff_command(output: "Output", **params: Any) -> int:
    """Show which built-in prices your overlays change and which offers they exclude.

    \b
    Examples:
      advise prices diff
      advise prices diff --prices negotiated.yaml --top 100
    """
    from advisor.answers.price_list import changes_of_ours
    from advisor.catalog.find import exchange_rate_of
    from advisor.cli.flags import options_from
    from advisor.cli.output import view_of, write
    from advisor.question.from_source import catalog_of
    from advisor.report.prices import price_changes_content, render_changes_json
    from advisor.report.terminal import to_text

    options = options_from(params)
    catalog = catalog_of(options)
    rate = exchange_rate_of(catalog, options.currency)
    changes = changes_of_ours(catalog)
    _warn(catalog)
    if output.format == "json":
        write(render_changes_json(changes), output)
    else:
        content = price_changes_content(changes, rate=rate, top=options.top, offers=catalog.offers)
        write(to_text(content, view_of(output, top=options.top)), output)
    return ExitCode.ANSWER


@command.command("refresh", cls=LazyCommand, exits=(ExitCode.NETWORK,), short_help="Fetch a provider's current prices.")
@click.argument("provider")
@click.option("--dry-run", is_flag=True, help="show what would change and write nothing")
@click.option("--top", type=int, default=20, show_default=True, metavar="N", help="number of changes to show")
@click.option(
    "-o",
    "--output",
    "file",
    type=path_of,
    metavar="FILE",
    help="price file to refresh (default: profiles/prices/PROVIDER.yaml in your config folder)",
)
def refresh_command(provider: str, dry_run: bool, top: int, file: "Path | None") -> int:
    """Fetch PROVIDER's current prices from its own price list: aws, azure, gcp, lambda, runpod or vast-ai.

    The command updates the instance types and regions that are in the price file, and drops those that the provider no
    longer lists. The file is replaced only after the new prices pass all checks: a failed or interrupted refresh leaves
    the old file as it was.

    \b
    Environment:
      GOOGLE_API_KEY    for gcp
      LAMBDA_API_KEY    for lambda

    \b
    Examples:
      advise prices refresh azure --dry-run
      advise prices refresh aws
    """
    from datetime import date

    from advisor.answers.price_refresh import refresh_prices
    from advisor.cli.output import Output, view_of, write
    from advisor.records.options import provider_id
    from advisor.report.prices import price_changes_content
    from advisor.report.terminal import to_text

    stdout = Output(format="table", path=None)
    with progress(f"fetching the prices of {provider}"):
        refreshed = refresh_prices(provider_id(provider), file=file, today=date.today(), is_dry_run=dry_run)
    content = price_changes_content(refreshed.changes, rate=None, top=top)
    write(to_text(content, view_of(stdout, top=top)), stdout)
    for problem in refreshed.problems:
        say(f"note: {problem}")
    say("nothing was written" if dry_run else f"wrote {refreshed.file}")
    return ExitCode.ANSWER
