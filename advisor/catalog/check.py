"""Any one file of the catalog in, what it holds out; its first mistake is raised at its line."""

from collections import Counter
from dataclasses import fields
from pathlib import Path

from advisor.catalog.device_files import read_cpus, read_efficiencies, read_gpus
from advisor.catalog.fields import base_unit, read_mapping
from advisor.catalog.overlay import Layer, shipped_layer
from advisor.catalog.parse import parse_catalog
from advisor.catalog.strict_yaml import Document, read_documents
from advisor.catalog.terms import TERM_KEYS
from advisor.records.device import Cpu, Efficiency, Gpu
from advisor.records.price import Catalog

_RECORDS = {"GPU": Gpu, "CPU": Cpu, "efficiency": Efficiency}
_PRICE_KEYS = frozenset(("provider", "instances", "sources", *TERM_KEYS))


def check_file(file: Path) -> tuple[str, Catalog | None]:
    """What the file holds ("2 documents of prices"), and for prices and devices the catalog they make with our files.

    Raises `ProfileError` at the first thing that cannot be right.
    """
    documents = read_documents(file)
    if not documents:
        return "it holds nothing, or nothing that is not commented out", None
    kinds = Counter(_kind_of(document) for document in documents)
    if set(kinds) <= {"prices"}:
        catalog = parse_catalog([Layer(name=str(file), prices=(file,), own_rates=True), shipped_layer()])
        return f"{len(documents)} {'document' if len(documents) == 1 else 'documents'} of prices and terms", catalog
    if len(kinds) > 1:
        raise documents[0].error((), f"a file of {' and '.join(sorted(kinds))}", hint="give each kind its own file")
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
    """The kind of file that knows most of the document's keys."""
    keys = {base_unit(key)[0] for key in read_mapping(document, (), document.values)}
    known = {kind: {field.name for field in fields(record)} for kind, record in _RECORDS.items()}
    return max({"prices": _PRICE_KEYS, **known}.items(), key=lambda entry: len(keys & entry[1]))[0]
