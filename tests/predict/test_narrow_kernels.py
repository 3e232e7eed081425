"""Which shipped engine runs which format on which device."""

import csv
from pathlib import Path
from typing import Any

import pytest

from advisor.catalog.overlay import load_catalog
from advisor.predict.capability import gpu_device, whole_cpu_device
from advisor.predict.narrow_kernels import formats_of, runnable
from advisor.predict.served_pass import is_backed
from advisor.records.device import Device
from advisor.records.engine import narrow_kernel
from advisor.records.generation import Generation

CATALOG = load_catalog()
MEASURED = Path(__file__).parents[1] / "data" / "measured"
VLLM, LLAMA = CATALOG.engines["vllm"], CATALOG.engines["llama.cpp"]


def device(name: str) -> Device:
    return gpu_device(CATALOG.gpus[name]) if name in CATALOG.gpus else whole_cpu_device(CATALOG.cpus[name], cores=8)


def unit(name: str, weights: str) -> str | None:
    """The unit that multiplies these weights in vLLM; None: it has no kernel for them."""
    kernel = narrow_kernel(device(name), VLLM.weight_kernels, weights)
    return None if kernel is None else kernel.unit


@pytest.mark.parametrize(
    ("name", "units"),
    [
        ("t4", {"fp8": "half", "int8": "int8", "int4": "half", "nf4": "half", "nvfp4": None}),
        ("a100-sxm4-80gb", {"fp8": "half", "int8": "int8", "int4": "half", "nf4": "half", "nvfp4": "half"}),
        ("h100-sxm5-80gb", {"fp8": "fp8", "int8": "int8", "int4": "half", "nf4": "half", "nvfp4": "half"}),
        ("b200", {"fp8": "fp8", "int8": None, "int4": "half", "nf4": "half", "nvfp4": "fp4"}),
        ("mi300x", {"fp8": "fp8", "int8": None, "int4": None, "nf4": None, "nvfp4": None}),
        ("gtx-1080", {"fp8": None, "int8": None, "int4": None, "nf4": None, "nvfp4": None}),
        ("intel-xeon-platinum-8573c", {"fp8": None, "int8": "int8", "int4": "half", "nf4": None, "nvfp4": None}),
        ("amd-epyc-7763", {"fp8": None, "int8": None, "int4": None, "nf4": None, "nvfp4": None}),
        ("azure-cobalt-100", {"fp8": None, "int8": "int8", "int4": None, "nf4": None, "nvfp4": None}),
    ],
)
def test_vllm_multiplies_in_the_units_of_the_device_or_in_16_bits_or_not_at_all(
    name: str, units: dict[str, str | None]
) -> None:
    assert {weights: unit(name, weights) for weights in units} == units


def test_a_cpu_with_avx512_but_without_vnni_has_no_int8_kernels() -> None:
    assert unit("intel-xeon-platinum-8370c", "int8") == "int8"
    assert unit("intel-xeon-gold-6148", "int8") is None


def test_llama_cpp_runs_every_kind_on_every_device() -> None:
    kinds = formats_of(LLAMA, "weight_kernels")
    assert set(kinds) == {"q8_0", "q6_k", "q5_k_m", "q4_k_m", "q4_0"}
    for name in ("gtx-1080", "t4", "b200", "mi300x", "amd-epyc-7763", "aws-graviton2"):
        assert all(narrow_kernel(device(name), LLAMA.weight_kernels, kind) for kind in kinds), name


def test_formats_run_where_there_are_kernels() -> None:
    found = {name: runnable(VLLM, device(name)) for name in ("mi300x", "azure-cobalt-100", "gtx-1080")}
    assert found == {"mi300x": ["fp8", "mxfp4"], "azure-cobalt-100": ["int8"], "gtx-1080": []}


def test_every_kernel_of_a_shipped_engine_is_the_first_somewhere() -> None:
    devices = [device(name) for name in (*CATALOG.gpus, "intel-xeon-platinum-8573c", "amd-epyc-9v74", "ampere-altra")]
    for engine in CATALOG.engines.values():
        for kernels in (engine.weight_kernels, engine.cache_kernels):
            for name, kernel in kernels.items():
                assert any(
                    narrow_kernel(one, kernels, stored_in) is kernel for one in devices for stored_in in kernel.formats
                ), name


def test_what_backs_a_time_in_vllm_is_what_the_tables_of_services_and_kernels_have() -> None:
    # A table's column of the format of weights, and what stands there for 16 bits.
    tables = {
        "served/vllm.csv": "weights",
        "served/gpustack.csv": "weights",
        "kernels/narrow_products.csv": "format",
        "kernels/experts.csv": "format",
    }
    measured = set()
    for table, column in tables.items():
        with (MEASURED / table).open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["device"] in CATALOG.gpus:
                    weights = row.get(column) or "bf16"
                    if "gpt-oss" in row.get("model", ""):  # its experts are published in mxfp4
                        weights = "mxfp4"
                    measured.add((CATALOG.gpus[row["device"]].generation, weights))

    def backs(name: str, weights: str) -> bool:
        kernel = narrow_kernel(device(name), VLLM.weight_kernels, weights)
        return is_backed(device(name), engine=VLLM, kernels=[] if kernel is None else [kernel])

    of_generation = {gpu.generation: name for name, gpu in CATALOG.gpus.items()}
    runs = {(name, weights) for name in of_generation.values() for weights in ("bf16", *runnable(VLLM, device(name)))}
    assert {(device(name).generation, weights) for name, weights in runs if backs(name, weights)} == measured


@pytest.mark.parametrize(
    ("name", "formats", "missing"),
    [
        ("t4", {"weights": "bf16", "kv_cache": "fp8"}, ("a KV cache in fp8",)),
        ("t4", {"weights": "nvfp4"}, ("weights in nvfp4",)),
        ("t4", {"weights": "nvfp4", "kv_cache": "fp8"}, ("weights in nvfp4", "a KV cache in fp8")),
        ("t4", {"weights": "int8"}, ()),
        ("h100-sxm5-80gb", {"weights": "fp8", "kv_cache": "fp8"}, ()),
        ("apple-m4-10-core-gpu", {}, ("any number",)),
    ],
)
def test_only_formats_without_kernels_are_missing(name: str, formats: dict[str, Any], missing: tuple[str, ...]) -> None:
    request = Generation(prompt_tokens=8, output_tokens=2, engine=VLLM, **formats)
    assert request.missing_kernels(device(name)) == missing
