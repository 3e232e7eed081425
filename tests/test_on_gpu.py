"""The script that measures a GPU: its plan, what it reads of a GPU (a stand-in here), and a whole run on the CPU."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import on_gpu
import pytest
import torch
from measure_steps import FOLDER
from measure_steps import source_of as argument_of
from on_gpu import CHAIN_LENGTH, Nvml, SideFile, observed, planned, profile_counts
from torch.autograd import DeviceType

from advisor.answers.measurement_file import read_measurements, source_of
from advisor.workload.sources import load
from advisor.workload.trace import trace

ROOT = Path(__file__).resolve().parents[1]

CUDA = torch.device("cuda:0")
OUT = FOLDER / "some-gpu"
OPERATORS = ("__init__", "operators")
"""Not nets: `scripts/measure_steps.py` times single operators."""
NETS = [net for net in sorted((ROOT / "scripts/nets").glob("*.py")) if net.stem not in OPERATORS]


def event(name: str, *, us: float = 0.0, on_gpu: bool = False, **more: Any) -> SimpleNamespace:
    where = DeviceType.CUDA if on_gpu else DeviceType.CPU
    return SimpleNamespace(
        name=name,
        device_type=where,
        time_range=SimpleNamespace(elapsed_us=lambda: us),
        is_user_annotation=False,
        **more,
    )


EVENTS = (
    event("aten::linear"),
    event("aten::addmm"),
    event("cudaLaunchKernel"),
    event("cuLaunchKernelEx"),
    event("cudaDeviceSynchronize"),
    event("gemm", us=30.0, on_gpu=True),
    event("Memcpy HtoD", us=12.0, on_gpu=True),
    SimpleNamespace(**{**vars(event("Optimizer.step", us=99.0, on_gpu=True)), "is_user_annotation": True}),
)
COUNTS = {
    "operator_count": 2,
    "launch_count": 2,
    "kernel_count": 2,
    "kernel_s": pytest.approx(42e-6),
    "longest_kernels": [("gemm", 1, pytest.approx(30e-6)), ("Memcpy HtoD", 1, pytest.approx(12e-6))],
}


class NvmlError(Exception):
    """As `pynvml.NVMLError`."""


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """One GPU that knows nothing of its temperature, and lists the processes in `processes`."""
    fake: Any = ModuleType("pynvml")
    fake.NVMLError, fake.NVML_CLOCK_SM, fake.NVML_CLOCK_MEM, fake.NVML_TEMPERATURE_GPU = NvmlError, 1, 2, 0
    fake.nvmlInit = lambda: None
    fake.nvmlSystemGetDriverVersion = lambda: "580.1"
    fake.nvmlDeviceGetHandleByUUID = {"GPU-a": 7}.__getitem__
    fake.nvmlDeviceGetClockInfo = lambda handle, clock: {1: 1980, 2: 2619}[clock]
    fake.nvmlDeviceGetMaxClockInfo = lambda handle, clock: {1: 2000, 2: 2700}[clock]
    fake.nvmlDeviceGetPowerUsage = lambda handle: 650_000
    fake.nvmlDeviceGetEnforcedPowerLimit = lambda handle: 700_000
    fake.processes = []
    fake.nvmlDeviceGetComputeRunningProcesses = lambda handle: fake.processes

    def refuse(handle: int, sensor: int) -> int:
        raise NvmlError("Not Supported")

    fake.nvmlDeviceGetTemperature = refuse
    monkeypatch.setattr(on_gpu, "find_spec", lambda name: name)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_clocks_and_power_come_from_nvml_in_base_units_and_what_it_refuses_is_none(nvml: Any) -> None:
    state = Nvml("GPU-a").state()
    assert (state["sm_hz"], state["memory_hz"], state["power_w"]) == (1.98e9, 2.619e9, pytest.approx(650.0))
    assert state["temperature_c"] is None  # refused
    assert state["throttle_reasons"] is None  # these bindings have no such query
    limits = Nvml("GPU-a").limits()
    assert (limits["driver"], limits["most_sm_hz"], limits["power_limit_w"]) == ("580.1", 2e9, pytest.approx(700.0))


@pytest.mark.parametrize(
    ("pids", "expected"),
    [
        (["own", 1], 100),
        ([1], 100),  # alone: ours under the host's id
        ([1, 2], None),
        ([], None),
    ],
)
def test_the_memory_is_that_of_this_process_or_of_the_only_one(
    pids: list[Any], expected: int | None, nvml: Any
) -> None:
    ids = [os.getpid() if pid == "own" else -pid for pid in pids]
    nvml.processes = [SimpleNamespace(pid=pid, usedGpuMemory=100 + index) for index, pid in enumerate(ids)]
    assert Nvml("GPU-a").state()["process_bytes"] == expected


def test_without_the_bindings_nvml_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_gpu, "find_spec", lambda name: None)
    assert (Nvml("GPU-a").state(), Nvml("GPU-a").limits()) == ({}, {})


def test_kernels_and_launches_are_counted_and_annotations_are_none() -> None:
    # two aten operators; two launches, a wait is none; a product of 30 us and a copy of 12 us
    assert profile_counts(EVENTS) == COUNTS


def test_memory_peaks_are_read_before_and_after_one_more_step(monkeypatch: pytest.MonkeyPatch) -> None:
    peak = 900  # of the timed steps

    def reset(device: torch.device) -> None:
        nonlocal peak
        peak = 50  # the model alone

    def step() -> None:
        nonlocal peak
        peak += 20

    @contextmanager
    def profile(activities: list[Any]) -> Iterator[Any]:
        assert torch.profiler.ProfilerActivity.CUDA in activities
        yield SimpleNamespace(events=lambda: EVENTS)

    monkeypatch.setattr(torch.profiler, "profile", profile)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (3_000, 5_000))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: peak)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: 1_000)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", reset)
    assert observed(step, CUDA, Nvml(None)) == {
        "first_peak_bytes": 900,
        "reserved_peak_bytes": 1_000,
        "device_used_bytes": 2_000,
        "peak_bytes": 70,
        **COUNTS,
    }


def test_a_graph_is_captured_once_and_its_replay_is_timed_per_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    captured: list[Any] = []
    zeros = torch.zeros
    graph = SimpleNamespace(replay=lambda: None)

    @contextmanager
    def capturing(graph: Any) -> Iterator[None]:
        captured.append(graph)
        yield

    def time_step(step: Any, *, budget_s: float, repeats: Any) -> Any:
        step()
        return SimpleNamespace(step_s=CHAIN_LENGTH * 1e-6)

    monkeypatch.setattr(torch, "zeros", lambda size, device, **more: zeros(size, **more))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: graph)
    monkeypatch.setattr(torch.cuda, "graph", capturing)
    monkeypatch.setattr(on_gpu, "synchronizer", lambda device: lambda: None)
    monkeypatch.setattr(on_gpu, "time_step", time_step)
    found = on_gpu.launch_overheads(CUDA)
    assert captured == [graph]
    # a chain takes as many microseconds as it has operators; one operator with its wait is timed alone
    assert found["graph_kernel_s"] == found["operator_s"] == found["forward_backward_operator_s"] == 1e-6
    assert found["operator_and_wait_s"] == CHAIN_LENGTH * 1e-6


def test_the_plan_has_forty_models_in_every_regime_and_begins_with_the_small_ones() -> None:
    series = list(planned(OUT, name="a100", thread_count=None))
    assert len({one.model for one in series}) == len(on_gpu.SMALL) + len(on_gpu.LARGE) == 40
    assert {(one.mode, one.precision, one.compile) for one in series} == {
        (mode, precision, compile_mode)
        for mode in ("inference", "training")
        for precision in ("fp32", "amp-fp16")
        for compile_mode in ("eager", "compile")
    } - {("training", "fp32", "compile")}
    # inference and training of each small model in half, inference of the others, then the first compiled one
    assert [one.compile for one in series].index("compile") == len(on_gpu.SMALL) + 40
    assert len({(str(one), one.batches) for one in series}) == len(series)
    assert series[0].batches == (1024,)
    assert next(one for one in series if one.mode == "training").batches == (512,)  # half of 1024
    for one in series:
        argument = argument_of(one.model, folder=OUT)
        assert argument.startswith(("timm:", "torchvision:")) or Path(argument.removeprefix("hf:")).resolve().is_file()


@pytest.mark.parametrize(("memory_gib", "scale"), [(6, 1), (16, 2), (24, 2), (47.5, 4), (79.2, 8), (140, 8)])
def test_larger_gpus_get_larger_batches(memory_gib: float, scale: int) -> None:
    assert on_gpu.batch_scale(memory_gib * 2**30) == scale
    series = list(planned(OUT, name="a100", thread_count=None, scale=scale))
    assert series[0].batches == (1024 * scale,)
    assert sum(one.batches == (1,) for one in series) == len(on_gpu.SMALL)


def test_models_of_packages_that_are_missing_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_gpu, "find_spec", lambda name: None if name == "timm" else name)
    models = {one.model.partition(":")[0] for one in planned(OUT, name="a100", thread_count=None)}
    assert "timm" not in models
    assert {"hf", "torchvision"} < models


@pytest.mark.parametrize("net", NETS, ids=lambda net: net.stem)
def test_every_own_net_is_in_the_plan_and_can_be_trained(net: Path) -> None:
    assert f"scripts/nets/{net.name}" in on_gpu.SMALL | on_gpu.LARGE
    loaded = load(str(net), mode="training", specs=())
    assert loaded.loss is not None
    assert {row.phase for row in trace(loaded, mode="training", batch=2).rows} >= {"forward", "backward"}


def test_a_device_that_is_not_here_ends_the_run() -> None:
    inventory = {"devices": [{"id": "cpu"}], "machine": {"notes": ["no driver"]}}
    with pytest.raises(SystemExit, match=r"cuda:0.*cpu.*no driver"):
        on_gpu.found_device(inventory, "cuda:0")
    assert on_gpu.found_device(inventory, "cpu") == {"id": "cpu"}


def test_a_series_whose_process_dies_has_failed_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = SideFile(tmp_path / "run.json")
    side.update(steps=[], failed={})
    codes = [-11, 0]

    def run(command: list[str], **how: Any) -> Any:
        if len(codes) == 2:
            SideFile(tmp_path / "run.json").update(running="a net")
        return SimpleNamespace(returncode=codes.pop(0))

    monkeypatch.setattr(subprocess, "run", run)
    on_gpu.time_models_in_children(tmp_path, side, end_s=float("inf"))
    assert codes == []
    assert list(json.loads((tmp_path / "run.json").read_text())["failed"]) == ["a net"]


@pytest.mark.slow
def test_a_run_on_the_cpu_writes_rows_that_validate_reads_and_a_side_file(tmp_path: Path) -> None:
    wheels, out = tmp_path / "wheels", tmp_path / "out"
    build = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(wheels), str(ROOT)]
    subprocess.run([sys.executable, *build], check=True, capture_output=True)
    done = subprocess.run(
        [ROOT / "scripts/on_gpu.sh", "--cpu", "--seconds", "500", "--wheels", wheels, "--out", out],
        env=os.environ | {"PYTHON": sys.executable, "VENV": str(tmp_path / "venv"), "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    run = json.loads((out / "run.json").read_text())
    assert done.returncode == (0 if all(command["ok"] for command in run["commands"]) else 1), done.stderr
    assert [command["command"].split()[1] for command in run["commands"]] == ["devices", "calibrate", "doctor", "rank"]
    assert run["versions"]["torch"] == torch.__version__
    assert all(value > 0 for value in run["launch"].values())
    rows = read_measurements(out / "steps.csv")
    assert {row.torch for row in rows} == {".".join(torch.__version__.split(".")[:2])}
    assert all(Path(source_of(row)).is_file() for row in rows)
    assert {(row.mode, row.precision) for row in rows} >= {("inference", "fp32"), ("training", "amp-bf16")}
    assert [float(f"{step['step_s']:.5g}") for step in run["steps"]] == [row.step_s for row in rows]
    assert all(step["process_peak_bytes"] > 0 and step["operator_count"] > 0 for step in run["steps"])
