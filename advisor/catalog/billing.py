"""The files of billing rules and start-up times in, what the cost of a job needs of them out."""

from pathlib import Path
from typing import TypeVar

from advisor.catalog.fields import read_mapping, read_record
from advisor.catalog.locate import shipped_profiles
from advisor.records.billing import Billing, BillingRule, StartUp

RecordT = TypeVar("RecordT", BillingRule, StartUp)

_RULES = Path("billing.yaml")
_START_UPS = Path("sparecores/startup_times.yaml")


def load_billing(profiles: Path | None = None) -> Billing:
    """Ours, and before it what stands in the user's own folder under the same names; each provider's first wins.

    Raises `ProfileError` at the first value that cannot be right.
    """
    rules: dict[str, BillingRule] = {}
    start_ups: dict[str, StartUp] = {}
    for folder in (shipped_profiles(), *([profiles] if profiles else [])):
        rules |= _read(folder / _RULES, BillingRule)
        start_ups |= _read(folder / _START_UPS, StartUp)
    return Billing(rules=rules, start_ups=start_ups)


def _read(file: Path, record: type[RecordT]) -> dict[str, RecordT]:
    """One record for each provider in the file, none where there is no file."""
    # Everything else comes from the cached catalog, which needs no YAML parser.
    from advisor.catalog.strict_yaml import read_documents

    if not file.is_file():
        return {}
    return {
        provider: read_record(record, document, (provider,), entry, zero_allowed=("minimum_s",))
        for document in read_documents(file)
        for provider, entry in read_mapping(document, (), document.values).items()
    }
