"""Reads billing rules, start-up times and the user's extra costs."""

from pathlib import Path
from typing import Any, TypeVar

from advisor.catalog.fields import read_mapping, read_record
from advisor.catalog.strict_yaml import Document, KeyPath, read_documents
from advisor.records.billing import BillingRule, Extras, StartUp

RecordT = TypeVar("RecordT", BillingRule, StartUp)


def read_billing_rules(file: Path) -> dict[str, BillingRule]:
    """Return the billing rule of each provider; raise `ProfileError` at the first invalid value."""
    return _read(file, BillingRule)


def read_start_ups(file: Path) -> dict[str, StartUp]:
    """Return the start-up times of each cloud, from SpareCores' file."""
    return _read(file, StartUp)


def read_extras(document: Document, path: KeyPath, value: Any) -> Extras:
    """Return the user's costs in addition to the hours of machines; 0 is a valid value."""
    names = ("storage_usd_per_month", "egress_usd", "tax_percent")
    return read_record(Extras, document, path, value, zero_allowed=names)


def _read(file: Path, record: type[RecordT]) -> dict[str, RecordT]:
    return {
        provider: read_record(record, document, (provider,), entry, zero_allowed=("minimum_s",))
        for document in read_documents(file)
        for provider, entry in read_mapping(document, (), document.values).items()
    }
