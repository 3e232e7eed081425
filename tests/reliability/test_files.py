"""Files of the user's that hold something else than they should: each ends in a clean error or in a sane answer."""

import contextlib
import hashlib
import json
import math
import os
from datetime import date
from pathlib import Path
from random import Random
from typing import Any

import pytest

from advisor.answers.comparison import compare_files, read_base
from advisor.answers.explanation import explain
from advisor.answers.measurement_file import read_measurements
from advisor.answers.memory_fit import memory_fit
from advisor.answers.ranking import rank
from advisor.calibrate import store
from advisor.catalog.cache import catalog_to_json, read_cached
from advisor.catalog.invariants import catalog_warnings
from advisor.catalog.overlay import Layer, shipped_profiles
from advisor.catalog.parse import parse_catalog
from advisor.catalog.strict_yaml import Document, parse_documents, read_documents
from advisor.errors import AdvisorError
from advisor.files.regular_file import MOST_BYTES
from advisor.question.from_source import as_saved, question_of
from advisor.records.options import Options
from advisor.records.price import Catalog
from advisor.records.workload import Workload
from advisor.report.as_json import record_json
from advisor.serve.options import EXAMPLE_WORKLOAD
from advisor.serve.request import read_request
from advisor.serve.settings import _read_token
from advisor.workload.factory import whole_number_parameters
from advisor.workload.file import read_workload, workload_from_json
from tests.calibrate.toys import calibration
from tests.reliability.attack import Attack
from tests.reliability.mutations import RAW, check_numbers, garbled, json_text, mutated

pytestmark = pytest.mark.slow

TODAY = date(2026, 9, 30)
PROFILES = shipped_profiles()
CPU = "amd-epyc-7543"
PRICES = """\
provider: acme
tier: neocloud
date: 2026-08-01
regions: {here: EU}
sources: {page: {date: 2026-08-02, from: their page}}
instances:
  one-t4:
    machine: {vcpus: 4, memory_gib: 16, gpu: t4, gpu_count: 1, threads_per_core: 2}
    usd_per_hour: {here: {on_demand: 0.4, spot: [0.2, page], commit_1y: 0.3, stale: [spot], note: a note}}
  eight-l4:
    machine: {vcpus: 96, memory_gib: 384, gpu: l4, gpu_count: 8, network_gb_per_s: 12.5}
    usd_per_hour: {here: {on_demand: [6.4, page]}, there: {on_demand: 7}}
  cpu:
    machine: {vcpus: 8, memory_gib: 32, cpu: CPU, threads_per_core: 2}
    usd_per_hour: {here: {on_demand: 0.3}}
""".replace("CPU", CPU)
TERMS = """\
discounts: [{provider: acme, family: one, region: EU, commitment: on_demand, percent: 12}]
markup_percent: 3
exchange_rates: {EUR: {usd: 1.16, date: 2026-09-01}}
extras: {storage_usd_per_month: 20, egress_usd: 5, tax_percent: 19}
quota: [{provider: acme, vcpus: 32}]
availability: [{provider: acme, region: here, wait_minutes: 90}]
owned:
  box:
    machine: {vcpus: 32, memory_gib: 128, gpu: t4, gpu_count: 1}
    purchase_usd: 3200
    lifetime_years: 4
    power_w: 550
    electricity_usd_per_kwh: 0.30
    used_percent: 40
    date: 2026-09-01
"""
MEASURED = "model,device,mode,precision,batch,step_s,source\nmlp.py,t4,inference,fp32,32,0.01,me\n"


def ours(folder: Path) -> Layer:
    """A few of the shipped devices with all that predicts them, and the prices above."""
    prices = folder / "ours.yaml"
    prices.write_text(PRICES)
    return Layer(
        name="",
        gpus=tuple(PROFILES / f"devices/gpu/{name}.yaml" for name in ("t4", "l4")),
        cpus=(PROFILES / f"devices/cpu/{CPU}.yaml",),
        efficiencies=(PROFILES / "efficiency/gpu-any-any.yaml", PROFILES / "efficiency/cpu-any-any.yaml"),
        prices=(prices,),
        billing=PROFILES / "billing.yaml",
    )


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    return parse_catalog([ours(tmp_path_factory.mktemp("ours"))])


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(EXAMPLE_WORKLOAD.read_text())
    return document


@pytest.fixture(scope="module")
def workload(example: dict[str, Any]) -> Workload:
    return workload_from_json(example)


def check_answer(workload: Workload, catalog: Catalog, **options: Any) -> None:
    """A ranking of every offer: what costs nothing or less, or takes no time, is none."""
    found = rank(question_of(workload, Options(samples=10**6, **options), catalog=catalog), today=TODAY)
    for quote in found.quotes:
        check_numbers(quote)
        assert quote.job_usd.mid > 0
        assert quote.job_s.mid > 0
    json.loads(record_json(found))


def dumped(document: Any, chance: Random) -> str:
    """YAML is a superset of JSON; numbers that JSON has no name for have other names."""
    if chance.random() < 0.3:
        return garbled(json.dumps(document, indent=1), chance)
    text = json.dumps(document)
    for word, name in (("-Infinity", "-.inf"), ("Infinity", ".inf"), ("NaN", ".nan")):
        text = text.replace(word, name)
    return text


def text_of(name: str) -> str:
    return (PROFILES / f"{name}.yaml").read_text()


def values_of(text: str) -> Any:
    (document,) = parse_documents(text, label="base")
    return document.values


def test_mutated_workloads(attack: Attack, example: dict[str, Any], catalog: Catalog, tmp_path: Path) -> None:
    read = {name: value for name, value in example.items() if not name.startswith("by_") and name != "totals"}

    def check(chance: Random) -> None:
        path = tmp_path / "workload.json"
        path.write_text(json_text(mutated(read, chance), chance), errors="surrogatepass")
        with contextlib.suppress(AdvisorError):
            workload = read_workload(path)
            options = as_saved(Options(batch=chance.choice(["", "1", "1..4096", "999999999"])), workload, where="file")
            check_answer(workload, catalog, mode=options.mode, batch=options.batch)
            memory = memory_fit(question_of(workload, Options(mode=workload.mode), catalog=catalog), on=("t4",))
            assert all(0 < device.peak_bytes < math.inf for device in memory.devices)

    attack.each(check)


def test_mutated_requests_to_the_service(attack: Attack, example: dict[str, Any], catalog: Catalog) -> None:
    request = {"workload": example, "options": {"samples": "1e6", "batch": "1,64"}, "on": ["t4"]}

    def check(chance: Random) -> None:
        body = json_text(mutated(request, chance), chance).encode(errors="surrogatepass")
        with contextlib.suppress(AdvisorError):
            asked = read_request(body, takes_on=True)
            explained = explain(question_of(asked.workload, asked.options, catalog=catalog), on=asked.on)
            check_numbers(explained.steps)

    attack.each(check)


def check_layer(layer: Layer, workload: Workload, folder: Path) -> None:
    catalog = parse_catalog([layer, ours(folder)])
    catalog_warnings(catalog, today=TODAY)
    check_answer(workload, catalog)


def attack_file(attack: Attack, text: str, key: str, *, workload: Workload, folder: Path) -> None:
    """Mutate a file that is a layer's `key`, and rank with what it gives."""
    values = values_of(text)
    file = folder / "own.yaml"

    def check(chance: Random) -> None:
        damaged = garbled(text, chance) if chance.random() < 0.4 else dumped(mutated(values, chance), chance)
        file.write_text(damaged, errors="surrogatepass")
        with contextlib.suppress(AdvisorError):
            check_layer(Layer(name="own", own_rates=True, **{key: (file,)}), workload, folder)

    attack.each(check)


def test_mutated_prices(attack: Attack, workload: Workload, tmp_path: Path) -> None:
    attack_file(attack, PRICES, "prices", workload=workload, folder=tmp_path)


def test_mutated_terms(attack: Attack, workload: Workload, tmp_path: Path) -> None:
    attack_file(attack, TERMS, "prices", workload=workload, folder=tmp_path)


def test_mutated_gpus(attack: Attack, workload: Workload, tmp_path: Path) -> None:
    attack_file(attack, text_of("devices/gpu/t4"), "gpus", workload=workload, folder=tmp_path)


def test_mutated_cpus(attack: Attack, workload: Workload, tmp_path: Path) -> None:
    attack_file(attack, text_of(f"devices/cpu/{CPU}"), "cpus", workload=workload, folder=tmp_path)


def test_mutated_efficiencies(attack: Attack, workload: Workload, tmp_path: Path) -> None:
    attack_file(attack, text_of("efficiency/gpu-any-any"), "efficiencies", workload=workload, folder=tmp_path)


def test_hostile_yaml(attack: Attack) -> None:
    texts = [(PROFILES / name).read_text() for name in ("prices/lambda.yaml", "devices/gpu/t4.yaml", "billing.yaml")]
    pieces = [*RAW, "a: ", "b: &b ", "*b ", "[", "]", "{", "}", "- ", "\n", "  ", ", ", ": ", "#", "---\n", "...", "? "]

    def check(chance: Random) -> None:
        if chance.random() < 0.5:
            text = garbled(chance.choice(texts), chance)
        else:
            text = "".join(
                chance.choice(pieces) * chance.choice((1, 1, 3, 200)) for _ in range(chance.randrange(1, 30))
            )
        with contextlib.suppress(AdvisorError):
            for document in parse_documents(text, label="hostile.yaml"):
                look_everywhere(document, document.values, ())

    attack.each(check)


def look_everywhere(document: Document, value: Any, path: tuple[str | int, ...]) -> None:
    """Every value has a place, and is one of the few types that JSON has."""
    assert document.where(path)
    assert value is None or isinstance(value, (dict, list, str, int, float, bool))
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        look_everywhere(document, item, (*path, key))


def test_special_files(attack: Attack, tmp_path: Path) -> None:
    doors = (
        read_workload, read_base, read_documents, _read_token, read_measurements,
        lambda path: whole_number_parameters(str(path)),
    )  # fmt: skip

    def check(chance: Random) -> None:
        path = tmp_path / "file"
        kind = chance.choice(["pipe", "folder", "link", "loop", "device", "random device", "sparse", "empty", "bytes"])
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        elif kind == "sparse":
            with path.open("wb") as file:
                file.truncate(chance.choice((MOST_BYTES + 1, 10**12)))
        elif kind in ("empty", "bytes"):
            path.write_bytes(chance.randbytes(0 if kind == "empty" else 1000))
        else:
            targets = {"link": tmp_path / "gone", "loop": path, "device": "/dev/zero", "random device": "/dev/urandom"}
            path.symlink_to(targets[kind])
        try:
            with contextlib.suppress(AdvisorError):
                chance.choice(doors)(path)
                assert kind == "empty"
        finally:
            path.rmdir() if kind == "folder" else path.unlink()

    attack.each(check)


def test_mutated_calibrations(attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "folder", lambda: tmp_path)
    (shipped,) = read_documents(PROFILES / "efficiency/cpu-any-fp32.yaml")
    text = f"{store.calibration_text(calibration())}\n"
    (first, *_) = parse_documents(text, label="base")

    def check(chance: Random) -> None:
        documents = mutated([first.values, shipped.values], chance)
        joined = "\n---\n".join(dumped(document, chance) for document in documents) if documents else ""
        damaged = garbled(text, chance) if chance.random() < 0.4 else joined
        (tmp_path / "one.yaml").write_text(damaged, errors="surrogatepass")
        stored = store.read_stored()
        assert len(stored.calibrations) + len(stored.problems) == 1

    attack.each(check)


def test_forged_entries_of_the_catalog_cache(
    attack: Attack, catalog: Catalog, workload: Workload, tmp_path: Path
) -> None:
    whole = json.loads(catalog_to_json(catalog))

    def check(chance: Random) -> None:
        payload = json_text(mutated(whole, chance), chance).encode(errors="surrogatepass")
        digest = hashlib.sha256(payload).hexdigest().encode()
        (tmp_path / "catalog-one.json").write_bytes(digest + b"\n" + payload)
        found = read_cached(tmp_path, key="one")
        if found is not None:
            with contextlib.suppress(AdvisorError):
                check_answer(workload, found)

    attack.each(check)


def test_mutated_answers(attack: Attack, catalog: Catalog, workload: Workload, tmp_path: Path) -> None:
    answer = record_json(rank(question_of(workload, Options(samples=10**6), catalog=catalog), today=TODAY))
    base, new = tmp_path / "base.json", tmp_path / "new.json"
    base.write_bytes(answer)
    values = json.loads(answer)

    def check(chance: Random) -> None:
        new.write_text(json_text(mutated(values, chance), chance), errors="surrogatepass")
        with contextlib.suppress(AdvisorError):
            record_json(compare_files(base, new))

    attack.each(check)


def test_mutated_measurements(attack: Attack, tmp_path: Path) -> None:
    cells = MEASURED.split("\n")[1].split(",")

    def check(chance: Random) -> None:
        changed = [str(cell) for cell in mutated(cells, chance)]
        text = (
            garbled(MEASURED, chance) if chance.random() < 0.5 else MEASURED.replace(",".join(cells), ",".join(changed))
        )
        path = tmp_path / "measured.csv"
        path.write_text(text, errors="surrogatepass")
        with contextlib.suppress(AdvisorError):
            for row in read_measurements(path):
                assert 0 < row.step_s < math.inf

    attack.each(check)
