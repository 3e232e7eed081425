"""Parses layers of files into one checked catalog; for every device, efficiency and price row, the first layer wins."""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from advisor.catalog.device_files import (
    MeasuredInstance,
    read_by_key,
    read_cpu_powers,
    read_cpus,
    read_efficiencies,
    read_engines,
    read_gpus,
    read_measured_instances,
    read_single,
    with_measured_bandwidth,
    with_reported_names,
)
from advisor.catalog.fields import base_unit
from advisor.catalog.find import find_rented_gpu, with_usual_cores
from advisor.catalog.gpu_parts import with_parts
from advisor.catalog.invariants import with_doubts
from advisor.catalog.offers import Known, build_offers, names_of
from advisor.catalog.overlay import Layer, shipped_layer
from advisor.catalog.owned import with_electricity
from advisor.catalog.price_files import PriceRow, read_price_rows
from advisor.catalog.strict_yaml import Document, Node, read_documents
from advisor.catalog.terms import TERM_KEYS, Terms, apply_terms, hidden_discounts, is_terms, joined_terms, read_terms
from advisor.catalog.torch_wheels import TorchWheels, read_torch_wheels, with_wheels
from advisor.errors import did_you_mean
from advisor.records.billing import Billing, BillingRule, ExtraCosts, Extras, StartUp
from advisor.records.device import ANY, Cpu, Efficiency, Gpu
from advisor.records.energy import EnergyData, GpuPower, Grids
from advisor.records.engine import Engine
from advisor.records.price import ApiPrice, Catalog, PriceBasis, PriceErrors, PriceSource

_FREE = ("usd_per_month", "usd_per_tb", "free_bytes")
"""Extra costs that may be 0."""


def parse_catalog(in_force: Sequence[Layer]) -> Catalog:
    """Read every file and join devices, measurements and prices; raise `ProfileError` at the first mistake."""
    gpus: dict[str, Gpu] = {}
    cpus: dict[str, Cpu] = {}
    our_devices: dict[str, Gpu | Cpu] = {}
    efficiencies: dict[tuple[object, ...], Efficiency] = {}
    engines: dict[str, Engine] = {}
    measured: dict[tuple[str, str], MeasuredInstance] = {}
    rules: dict[str, BillingRule] = {}
    start_ups: dict[str, StartUp] = {}
    extra_costs = ExtraCosts()
    price_errors: PriceErrors | None = None
    price_sources: dict[str, PriceSource] = {}
    api_prices: dict[str, ApiPrice] = {}
    energy = EnergyData()
    wheels = TorchWheels(releases={})
    for layer in in_force:
        layer_gpus = read_gpus(layer.gpus, measured=layer.measured and layer.measured / "gpus.yaml")
        layer_cpus = read_cpus(layer.cpus, measured=layer.measured and layer.measured / "cpus.yaml")
        gpus, cpus = layer_gpus | gpus, layer_cpus | cpus
        if not layer.name:
            our_devices |= {**layer_gpus, **layer_cpus}
        for efficiency in read_efficiencies(layer.efficiencies):
            efficiencies.setdefault(_holds_for(efficiency), efficiency)
        engines = read_engines(layer.engines) | engines
        rules = read_by_key(BillingRule, layer.billing, zero_allowed=("minimum_s",)) | rules
        if theirs := read_single(ExtraCosts, layer.extra_costs, zero_allowed=_FREE):
            extra_costs = ExtraCosts(
                disks={**theirs.disks, **extra_costs.disks},
                egress={**theirs.egress, **extra_costs.egress},
                gpu_packages=extra_costs.gpu_packages or theirs.gpu_packages,
                spot_interruption=extra_costs.spot_interruption or theirs.spot_interruption,
            )
        price_errors = price_errors or read_single(PriceErrors, layer.price_errors, zero_allowed=("log_spread", "n"))
        price_sources = read_by_key(PriceSource, layer.price_sources) | price_sources
        api_prices = read_by_key(ApiPrice, layer.api_prices) | api_prices
        energy = _with_energy_of(layer, energy)
        if layer.wheels is not None:
            wheels = read_torch_wheels(layer.wheels)
        if layer.measured is not None:
            start_ups = read_by_key(StartUp, layer.measured / "startup_times.yaml")
            measured = read_measured_instances(layer.measured / "instances.yaml")
            cpus = with_reported_names(cpus, file=layer.measured / "cpu_aliases.yaml")

    for layer in in_force:
        if layer.gpu_parts is not None:
            gpus = with_parts(gpus, file=layer.gpu_parts)
    devices = Catalog(gpus=gpus, cpus=cpus, efficiencies=(), offers=(), rejected=(), overlays=())
    known = Known(
        gpu_ids=names_of(gpus),
        cpu_ids=names_of(cpus),
        measured=measured,
        rented_gpu=partial(find_rented_gpu, devices),
        regions=_regions_of(energy),
    )
    rows, our_rows, terms = _read_prices(in_force)
    joined = build_offers(rows, known=known)
    providers = {row.provider for row in rows}
    for layer in in_force:
        if layer.name:
            _check_providers(layer, providers)
    offers = apply_terms(terms, [*joined.offers, *joined.unpredicted], rejected=joined.rejected)
    offers = with_wheels(offers, wheels, gpus=gpus, cpus=cpus)
    energy = _by_cpu(energy, cpus)
    offers = with_electricity(offers, rows=terms.owned, gpus=gpus, energy=energy)
    catalog = Catalog(
        gpus=gpus,
        cpus=cpus,
        efficiencies=tuple(efficiencies.values()),
        engines=engines,
        offers=tuple(offers[: len(joined.offers)]),
        rejected=tuple(joined.rejected),
        unpredicted=tuple(offers[len(joined.offers) :]),
        overlays=tuple(layer.name for layer in in_force if layer.name and any(layer.files())),
        exchange_rates=terms.exchange_rates,
        billing=Billing(
            rules=rules,
            start_ups=start_ups,
            extra_costs=extra_costs,
            extras=terms.extras or Extras(),
            energy=energy,
        ),
        price_errors=price_errors or PriceErrors(),
        price_sources=price_sources,
        api_prices=api_prices,
    )
    if catalog.overlays:
        ours = build_offers(our_rows, known=known)
        catalog = with_doubts(catalog, ours=ours.offers, our_devices=our_devices)
        our_ids = {one.id for one in ours.rejected}
        unpredicted = (f"{one.id} is not ranked: {one.reason}" for one in joined.rejected if one.id not in our_ids)
        catalog = replace(catalog, doubts=(*hidden_discounts(terms, offers), *unpredicted, *catalog.doubts))
    return replace(catalog, cpus=with_measured_bandwidth(with_usual_cores(catalog.cpus), catalog.offers))


def _check_providers(layer: Layer, providers: Set[str]) -> None:
    """Raise `ProfileError` for an entry of a provider that no offer has, since it has no effect."""
    by_provider: list[Node] = []
    for file, keys in ((layer.billing, ()), (layer.price_sources, ()), (layer.extra_costs, ("disks", "egress"))):
        for root in (document.root for document in (read_documents(file) if file else ())):
            by_provider += [root.get(key, {}) for key in keys] or [root]
    for entry in (entry for node in by_provider for entry in node.entries()):
        if entry.key not in providers:
            raise entry.error(f"no offer has provider {entry.key!r}", hint=did_you_mean(entry.key, providers))


def _regions_of(energy: EnergyData) -> dict[str, set[str]]:
    """Return the regions of providers whose grids are known, by provider."""
    found: dict[str, set[str]] = {}
    for place in energy.grids.regions if energy.grids else ():
        provider, _, region = place.partition("/")
        found.setdefault(provider, set()).add(region)
    return found


def _with_energy_of(layer: Layer, energy: EnergyData) -> EnergyData:
    """Return the data on power and grids, completed by a lower layer; the first row of a region wins."""
    grids = energy.grids
    if theirs := read_single(Grids, layer.grid):
        grids = replace(grids or theirs, regions={**theirs.regions, **(grids.regions if grids else {})})
    return EnergyData(
        gpu=energy.gpu or read_single(GpuPower, layer.gpu_power),
        cpu=energy.cpu or read_cpu_powers(layer.cpu_power),
        grids=grids,
    )


def _by_cpu(energy: EnergyData, cpus: Mapping[str, Cpu]) -> EnergyData:
    """Return the data with the watts of CPUs keyed by their ids instead of their generations."""
    if energy.cpu is None:
        return energy
    of = energy.cpu.cpus
    by_id = {cpu.id: of[cpu.generation] for cpu in cpus.values() if cpu.generation in of}
    return replace(energy, cpu=replace(energy.cpu, cpus={ANY: of[ANY], **by_id}))


def _holds_for(efficiency: Efficiency) -> tuple[object, ...]:
    """Return the key of an efficiency; among equal keys, the first file in force wins."""
    general = (efficiency.kind, efficiency.vendor, efficiency.generation, efficiency.precision)
    return (*general, efficiency.device, efficiency.core_count)


def _read_prices(in_force: Sequence[Layer]) -> tuple[list[PriceRow], list[PriceRow], Terms]:
    """Return the rows of all price files in order of priority, the rows of the built-in files, and the user's terms."""
    rows: list[PriceRow] = []
    our_rows: list[PriceRow] = []
    terms: list[Terms] = []
    for layer in in_force:
        for file in layer.prices:
            first: dict[tuple[str, str, str], PriceRow] = {}
            for document in read_documents(file):
                if is_terms(document):
                    terms.append(read_terms(document))
                else:
                    basis: PriceBasis = "own_rate" if layer.own_rates else "list"
                    found = list(read_price_rows(document, basis=basis, other_keys=TERM_KEYS))
                    for row in found:
                        before = first.setdefault((row.provider, row.region, row.instance), row)
                        if before is not row:
                            message = f"the file has this row twice, first at {before.node.where}"
                            raise row.node.error(message, hint="keep one of them")
                    rows += found
                    our_rows += [] if layer.name else found
    joined = joined_terms(terms)
    return [*joined.owned, *rows], our_rows, joined


_KINDS: Mapping[str, tuple[type[Gpu | Cpu | Efficiency | Engine], str]] = {
    "GPU": (Gpu, "gpus"), "CPU": (Cpu, "cpus"), "efficiency": (Efficiency, "efficiencies"),
    "engine": (Engine, "engines"),
}  # fmt: skip
"""The record in a file of each kind, and the field of a `Layer` for such files."""
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
    files: dict[str, Any] = {_KINDS[kind][1]: (file,)}
    catalog = parse_catalog([Layer(name=str(file), **files), shipped_layer()])
    names = (
        f"{one.values['generation']} {one.values['precision']}" if kind == "efficiency" else one.values["name"]
        for one in documents
    )
    return f"{kind}: {', '.join(names)}", catalog


def _kind_of(document: Document) -> str:
    """Return the kind of file that has the most keys in common with the document."""
    keys = {base_unit(entry.key)[0] for entry in document.root.entries()}
    known = {kind: {field.name for field in fields(record)} for kind, (record, _) in _KINDS.items()}
    return max({"prices": _PRICE_KEYS, **known}.items(), key=lambda entry: len(keys & entry[1]))[0]
