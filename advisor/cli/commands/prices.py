"""`advise prices COMMAND`: the prices in force, one type's, what an overlay changes, a new overlay, fresh prices."""

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
    """List, check, change and refresh the prices that "advise" ranks by.

    Prices are YAML files. Of two rows for the same instance and region the first counts: from --prices FILE,
    --profiles DIR, ./advisor.yaml, your config folder, ours.

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
    """List the prices in force, cheapest first, each with its date and what makes it doubtful.

    \b
    Examples:
      advise prices list --device l4,t4
      advise prices list --provider aws --price spot --top 50
      advise prices list --currency EUR -o prices.json
    """
    from datetime import date

    from advisor.catalog.find import exchange_rate_of, overlay_notes
    from advisor.cli.flags import options_from
    from advisor.cli.output import view_of, write
    from advisor.errors import NothingFitsError
    from advisor.pipeline import catalog_of
    from advisor.prices import list_prices
    from advisor.report.prices_json import render_prices_json
    from advisor.report.prices_text import render_price_list

    options = options_from(params)
    catalog = catalog_of(options)
    rate = exchange_rate_of(catalog, options.currency)
    rows = list_prices(catalog, options, today=date.today())
    _warn(catalog)
    if not rows:
        raise NothingFitsError("no price is within these limits", hint="leave some of the flags out")
    if output.format == "json":
        write(render_prices_json(rows), output)
    else:
        view, notes = view_of(output, top=options.top), overlay_notes(catalog)
        write(render_price_list(rows, rate=rate, view=view, notes=notes), output)
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

    from advisor.catalog.find import exchange_rate_of, overlay_notes
    from advisor.cli.flags import options_from
    from advisor.cli.output import view_of, write
    from advisor.pipeline import catalog_of
    from advisor.prices import show_prices
    from advisor.report.prices_json import render_prices_json
    from advisor.report.prices_text import render_prices_of

    options = options_from(params)
    catalog = catalog_of(options)
    rate = exchange_rate_of(catalog, options.currency)
    rows = show_prices(catalog, name, options, today=date.today())
    _warn(catalog)
    if output.format == "json":
        write(render_prices_json(rows), output)
    else:
        view, notes = view_of(output, top=options.top), overlay_notes(catalog)
        write(render_prices_of(rows, rate=rate, view=view, notes=notes), output)
    return ExitCode.ANSWER


@command.command("validate", cls=LazyCommand, short_help="Check a file of prices, terms or a device.")
@click.argument("files", nargs=-1, required=True, type=path_of, metavar="FILE...")
def validate_command(files: "tuple[Path, ...]") -> int:
    """Check files of prices, terms, devices or efficiencies; a mistake is named with its file, line and key.

    Prices and figures that are not credible beside ours are named as warnings, here and in every answer.

    \b
    Examples:
      advise prices validate advisor.yaml
      advise prices validate own/prices/*.yaml own/devices/gpu/*.yaml
    """
    from datetime import date

    from advisor.cli.terminal import write_stdout
    from advisor.prices import validate_file

    for file in files:
        valid = validate_file(file, today=date.today())
        write_stdout(f"{valid.sentence}\n")
        for warning in valid.warnings:
            say(f"warning: {file}: {warning}")
    return ExitCode.ANSWER


@command.command("init", cls=LazyCommand, short_help="Print a commented overlay to start from.")
@click.option("-o", "--output", "file", type=path_of, metavar="FILE", help="write it to FILE, which must be new")
def init_command(file: "Path | None") -> int:
    """Print an overlay in which everything is commented out: own rates, discounts, exclusions, owned hardware.

    \b
    Examples:
      advise prices init
      advise prices init -o advisor.yaml
    """
    from advisor.catalog.locate import starter_overlay
    from advisor.cli.output import Output, write

    if file is not None and file.exists():
        raise UsageError(f"-o {file}: this file is there already", hint="give a new name, or remove the file first")
    write(starter_overlay(), Output(format="yaml", path=file))
    return ExitCode.ANSWER


@command.command(
    "diff", cls=LazyCommand, make_flags=_flags("top"), short_help="Show what your overlays change of our prices."
)
def diff_command(output: "Output", **params: Any) -> int:
    """Show which of our prices the overlays in force change, and what they rule out.

    \b
    Examples:
      advise prices diff
      advise prices diff --prices negotiated.yaml --top 100
    """
    from advisor.catalog.find import exchange_rate_of
    from advisor.cli.flags import options_from
    from advisor.cli.output import view_of, write
    from advisor.pipeline import catalog_of
    from advisor.prices import changes_of_ours
    from advisor.report.prices_json import render_changes_json
    from advisor.report.prices_text import excluded_lines, render_changes

    options = options_from(params)
    catalog = catalog_of(options)
    rate = exchange_rate_of(catalog, options.currency)
    changes = changes_of_ours(catalog)
    _warn(catalog)
    if output.format == "json":
        write(render_changes_json(changes), output)
    else:
        text = render_changes(changes, rate=rate, view=view_of(output, top=options.top))
        write(text + "".join(f"{line}\n" for line in excluded_lines(catalog.offers)), output)
    return ExitCode.ANSWER


@command.command(
    "refresh", cls=LazyCommand, exits=(ExitCode.NETWORK,), short_help="Fetch a provider's prices of today."
)
@click.argument("provider")
@click.option("--dry-run", is_flag=True, help="show what would change, and write nothing")
@click.option("--top", type=int, default=20, show_default=True, metavar="N", help="changes shown")
@click.option(
    "-o",
    "--output",
    "file",
    type=path_of,
    metavar="FILE",
    help="price file to refresh (default: profiles/prices/PROVIDER.yaml in your config folder)",
)
def refresh_command(provider: str, dry_run: bool, top: int, file: "Path | None") -> int:
    """Fetch the prices of today from PROVIDER's own list: aws, azure, gcp, lambda, runpod or vast-ai.

    The types and regions of the price file are fetched anew; what the list no longer has is dropped. The new file is
    written at once and only after all checks of prices hold: a failed or half refresh leaves the old one.

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

    from advisor.cli.output import Output, view_of, write
    from advisor.price_refresh import refresh_prices
    from advisor.records.options import provider_id
    from advisor.report.prices_text import render_changes

    stdout = Output(format="table", path=None)
    with progress(f"fetching the prices of {provider}"):
        refreshed = refresh_prices(provider_id(provider), file=file, today=date.today(), is_dry_run=dry_run)
    write(render_changes(refreshed.changes, rate=None, view=view_of(stdout, top=top)), stdout)
    for problem in refreshed.problems:
        say(f"note: {problem}")
    say("nothing was written" if dry_run else f"wrote {refreshed.file}")
    return ExitCode.ANSWER
