"""List, check, change and refresh prices."""

from collections.abc import Callable, Iterable, Sequence
from datetime import date
from functools import partial
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING

import click

from advisor.cli.command import Command
from advisor.cli.flags import option_flags
from advisor.cli.output import STDOUT, Output, table_or_json_flag, write, write_answer
from advisor.cli.terminal import progress, say, write_stdout
from advisor.errors import ExitCode, NetworkError, UsageError
from advisor.records.options import OF_PRICES, Options, provider_id

if TYPE_CHECKING:
    from advisor.records.price import Catalog, PriceChange, PricedOffer
    from advisor.report.content import Block


def _flags(*names: str) -> list[click.Parameter]:
    only = (*names, "prices", "profiles", "currency")
    return [*option_flags(only=only), table_or_json_flag("json with every row")]


def _write_prices(
    rows: "tuple[PricedOffer, ...]",
    catalog: "Catalog",
    content: "Callable[..., Iterable[Block]]",
    options: Options,
    output: Output,
) -> int:
    """Write the prices, with warnings about those in the catalog that are not credible."""
    from advisor.answers.price_list import no_price_error
    from advisor.catalog.find import exchange_rate_of, overlay_notes
    from advisor.report.prices import render_prices_json

    rate = exchange_rate_of(catalog, options.currency)
    _warn(catalog)
    if not rows:
        raise no_price_error(catalog, options)
    content = partial(content, rate=rate, notes=overlay_notes(catalog))
    write_answer(rows, output, content, as_json=render_prices_json)
    return ExitCode.ANSWER


def _warn(catalog: "Catalog") -> None:
    from advisor.catalog.invariants import catalog_warnings

    for warning in catalog_warnings(catalog, today=date.today()):
        say(f"warning: {warning}")


@click.group("prices", no_args_is_help=False)
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
    cls=Command,
    params=_flags(*OF_PRICES),
    exits=(ExitCode.NOTHING_FITS,),
    short_help="List the prices in force, cheapest first.",
)
def list_command(output: Output, options: Options) -> int:
    """List the prices in force, cheapest first, each with its date and any reason to doubt it.

    \b
    Examples:
      advise prices list --device l4,t4
      advise prices list --provider aws --price spot --top 50
      advise prices list --prices own.yaml --currency EUR -o prices.txt

    own.yaml has `exchange_rates`; without them only dollars are known.
    """
    from advisor.answers.price_list import list_prices
    from advisor.question.from_source import catalog_of
    from advisor.report.prices import price_list_content

    catalog = catalog_of(options)
    rows = list_prices(catalog, options, today=date.today())
    return _write_prices(rows, catalog, partial(price_list_content, top=options.top), options, output)


@command.command(
    "show", cls=Command, params=_flags("max_price_age"), short_help="Show every price of an instance type."
)
@click.argument("name")
def show_command(name: str, output: Output, options: Options) -> int:
    """Show every price of an instance type, in every region, with its date and source.

    NAME is a type (g5.xlarge, "RTX 4090 24GB PCIe") or the id of an offer (aws/us-east-1/g5.xlarge).

    \b
    Examples:
      advise prices show g5.xlarge
      advise prices show aws/us-east-1/g5.xlarge -o json
    """
    from advisor.answers.price_list import show_prices
    from advisor.question.from_source import catalog_of
    from advisor.report.prices import instance_prices_content

    catalog = catalog_of(options)
    rows = show_prices(catalog, name, options, today=date.today())
    return _write_prices(rows, catalog, instance_prices_content, options, output)


@command.command("validate", cls=Command, short_help="Check files of prices, terms or devices.")
@click.argument("files", nargs=-1, required=True, type=Path, metavar="FILE...")
def validate_command(files: tuple[Path, ...]) -> int:
    """Check files of prices, terms, devices, efficiencies or engines: each mistake comes with its file, line and key.

    Values that are implausible compared with the built-in ones cause a warning, here and in every answer.

    \b
    Examples:
      advise prices validate advisor.yaml
      advise prices validate own/prices/*.yaml own/devices/gpu/*.yaml
    """
    from advisor.answers.price_list import validate_file

    for file in files:
        sentence, warnings = validate_file(file, today=date.today())
        write_stdout(f"{sentence}\n")
        for warning in warnings:
            say(f"warning: {file}: {warning}")
    return ExitCode.ANSWER


@command.command("init", cls=Command, short_help="Print a commented starter overlay.")
@click.option("-o", "--output", "file", type=Path, metavar="FILE", help="write to FILE, which must not exist yet")
def init_command(file: Path | None) -> int:
    """Print an overlay to edit; every entry is commented out: own prices, discounts, exclusions, owned hardware.

    \b
    Examples:
      advise prices init
      advise prices init -o advisor.yaml
    """
    from advisor.catalog.overlay import starter_overlay

    if file is not None and file.exists():
        raise UsageError(f"-o {file}: this file already exists", hint="choose another name, or remove the file first")
    write(starter_overlay(), Output(format="yaml", path=file))
    return ExitCode.ANSWER


@command.command(
    "diff", cls=Command, params=_flags("top"), short_help="Show which built-in prices your overlays change."
)
def diff_command(output: Output, options: Options) -> int:
    """Show which built-in prices your overlays change and which offers they exclude.

    \b
    Examples:
      advise prices diff
      advise prices diff --prices negotiated.yaml --top 100
    """
    from advisor.answers.price_list import changes_of_ours
    from advisor.catalog.find import exchange_rate_of
    from advisor.question.from_source import catalog_of
    from advisor.report.prices import price_changes_content, render_changes_json

    catalog = catalog_of(options)
    rate = exchange_rate_of(catalog, options.currency)
    changes = changes_of_ours(catalog)
    _warn(catalog)
    content = partial(price_changes_content, rate=rate, top=options.top, offers=catalog.offers)
    write_answer(changes, output, content, as_json=render_changes_json)
    return ExitCode.ANSWER


class _RefreshCommand(Command):
    """Names the providers and their keys in its help; their modules are imported only then."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the description."""
        from advisor.refresh.providers import api_keys, providers

        keys = "\n".join(f"  {key}    for {provider}" for provider, key in api_keys().items())
        text = cleandoc(self.help or "").replace("PROVIDERS", ", ".join(providers()))
        self.help = text.replace("  KEYS", keys)
        super().format_help_text(ctx, formatter)


@command.command(
    "refresh", cls=_RefreshCommand, exits=(ExitCode.NETWORK,), short_help="Fetch providers' current prices."
)
@click.argument("provider", required=False)
@click.option("--dry-run", is_flag=True, help="show what would change and write nothing")
@click.option("--top", type=int, default=20, show_default=True, metavar="N", help="number of changes to show")
@click.option(
    "-o",
    "--output",
    "file",
    type=Path,
    metavar="FILE",
    help="price file to refresh (default: profiles/prices/PROVIDER.yaml in your config folder)",
)
def refresh_command(provider: str | None, dry_run: bool, top: int, file: Path | None) -> int:
    """Fetch PROVIDER's current prices from its own price list; PROVIDER is one of PROVIDERS.

    "advise prices refresh skypilot" instead reads the catalog that SkyPilot has on this disk, ~/.sky/catalogs, without
    a network or a key, for aws, azure, gcp and lambda. It does not replace newer prices.

    Without PROVIDER, the command refreshes all of these and prints the pricing pages of the other providers. It names
    each provider whose list could not be fetched, and exits with 5. A provider whose API key is missing is also named,
    but is no failure.

    The command updates the instance types and regions that are in the price file, and drops those that the provider no
    longer lists. The file is replaced only after the new prices pass all checks: a failed or interrupted refresh leaves
    the old file as it was.

    \b
    Environment:
      KEYS

    \b
    Examples:
      advise prices refresh
      advise prices refresh azure --dry-run
      advise prices refresh aws
      advise prices refresh skypilot
    """
    from advisor.answers.price_refresh import refresh_all, refresh_from_skypilot, refresh_prices

    from_skypilot = provider == "skypilot"
    if provider is not None and not from_skypilot:
        with progress(f"fetching the prices of {provider}"):
            refreshed = refresh_prices(provider_id(provider), file=file, today=date.today(), is_dry_run=dry_run)
        _write_changes(refreshed.changes, top=top)
        for problem in refreshed.problems:
            say(f"note: {problem}")
        say("nothing was written" if dry_run else f"wrote {refreshed.file}")
        return ExitCode.ANSWER
    if file is not None:
        raise UsageError("-o names the file of one provider", hint="name the PROVIDER, or leave -o out")
    with progress("reading SkyPilot's catalog" if from_skypilot else "fetching the prices of all providers"):
        found = (refresh_from_skypilot if from_skypilot else refresh_all)(today=date.today(), is_dry_run=dry_run)
    _write_changes([change for refreshed in found.done.values() for change in refreshed.changes], top=top)
    for provider, refreshed in found.done.items():
        for problem in refreshed.problems:
            say(f"note: {provider}: {problem}")
        say(f"{provider}: nothing was written" if dry_run else f"{provider}: wrote {refreshed.file}")
    for provider, error in found.failed.items():
        say(f"{provider}: not refreshed: {error.message}{f' ({error.hint})' if error.hint else ''}")
    if found.by_hand:
        say("cannot be fetched; put the prices of these pages into advisor.yaml:")
    for provider, page in found.by_hand.items():
        say(f"  {provider} {page}")
    has_failed = any(isinstance(error, NetworkError) for error in found.failed.values())
    return ExitCode.NETWORK if has_failed else ExitCode.ANSWER


def _write_changes(changes: "Sequence[PriceChange]", *, top: int) -> None:
    from advisor.report.prices import price_changes_content

    write_answer(changes, STDOUT, partial(price_changes_content, rate=None, top=top))
