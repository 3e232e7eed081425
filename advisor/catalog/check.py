"""Checks one file of the catalog and says what it contains."""

from collections import Counter
from dataclasses import fields
from pathlib import Path

from advisor.catalog.device_files import read_cpus, read_efficiencies, read_gpus
from advisor.catalog.fields import base_unit
from advisor.catalog.overlay import Layer, shipped_layer
from advisor.catalog.parse import parse_catalog
from advisor.catalog.strict_yaml import Document, read_documents
from advisor.catalog.terms import TERM_KEYS
from advisor.records.device import Cpu, Efficiency, Gpu
from advisor.records.price import Catalog

_RECORDS = {"GPU": Gpu, "CPU": Cpu, "efficiency": Efficiency}
_PRICE_KEYS = frozenset(("provider", "instances", "sources", *TERM_KEYS))


def check_file(file: Path) -> tuple[str, Catalog | None]:
    """Return the content of a file ("2 documents of prices"), and the catalog of this file and the built-in ones.

    Raise `ProfileError` at the first mistake.
    """
    documents = read_documents(file)
    if not documents:
        return "the file is empty, or everything in it is commented out", None
    kinds = Counter(_kind_of(document) for document in documents)
    if set(kinds) <= {"prices"}:
        catalog = parse_catalog([Layer(name=str(file), prices=(file,), own_rates=True), shipped_layer()])
        return f"{len(documents)} {'document' if len(documents) == 1 else 'documents'} of prices and terms", catalog
    if len(kinds) > 1:
        raise documents[0].root.error(
            f"one file has both {' and '.join(sorted(kinds))}", hint="use a separate file for each kind"
        )
    (kind,) = kinds
    if kind == "GPU":
        names = [gpu.name for gpu in read_gpus([file], measured=None).values()]
        layer = Layer(name=str(file), gpus=(file,))
    elif kind == "CPU":
        names = [cpu.name for cpu in read_cpus([file], measured=None).values()]
        layer = Layer(name=str(file), cpus=(file,))
    else:
        names = [f"{one.generation} {one.precision}" for one in read_efficiencies([file])]
        layer = Layer(name=str(file), efficiencies=(file,))
    return f"{kind}: {', '.join(names)}", parse_catalog([layer, shipped_layer()])


def _kind_of(document: Document) -> str:
    """Return the kind of file that has the most keys in common with the document."""
    keys = {base_unit(entry.key)[0] for entry in document.root.entries()}
    known = {kind: {field.name for field in fields(record)} for kind, record in _RECORDS.items()}
    return max({"prices": _PRICE_KEYS, **known}.items(), key=lambda entry: len(keys & entry[1]))[0]
