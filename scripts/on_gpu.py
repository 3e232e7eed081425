"""Calibrates this machine's GPU, checks the commands that use it, and times about 40 models within a time budget.

    scripts/on_gpu.sh --seconds 420

`scripts/on_gpu.sh` installs what is missing, then runs this script. It writes into --out:

- `steps.csv`: measured steps, as `advise validate` reads them; paths of models are relative to the folder
- `run.json`: device, versions, clocks and power limit; the commands that were checked; launch overheads; of each step
  its memory peaks, kernels and clocks; the series that failed, with their reasons
- `devices.json`, `calibration.yaml`, `doctor.json`, `measure.json`: what the commands answered

`--only-steps` goes on with the steps of an earlier run, without calibrating and without checking the commands.

Exits with 1 if a command failed or did not see the device. Steps are timed as by `scripts/measure_steps.py`, in shorter
blocks. They run in a child process, which is started again without the running series if it dies. With `--cpu` a few
models run on the CPU instead.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import date
from importlib import metadata
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from check_memory import process_bytes
from measure_steps import FOLDER, REPEATS, Rows, Series, machine_text, measure, request_of
from torch.autograd import DeviceType  # type: ignore[attr-defined]  # public, but not in __all__

from advisor.calibrate.repeat_timing import time_step
from advisor.calibrate.run_step import time_loaded
from advisor.files.whole_file import write_whole
from advisor.records.device import CompileMode, Precision
from advisor.records.machine import BUS_ORDER
from advisor.records.measurement import MeasuredMode
from advisor.records.timing import StepTiming
from advisor.workload.loaded import LoadedModel
from advisor.workload.torch_devices import gpu_uuid, keep_freed_memory, synchronizer

ROOT = Path(__file__).resolve().parents[1]
SHORT_REPEATS = replace(REPEATS, overtime=4.0)
SHORT_S = 0.4
"""Time for the blocks of a step; 40 models in eight regimes leave about a second for each, with loading."""
EXPECTED_S: Mapping[CompileMode, float] = {"eager": 4.0, "compile": 30.0}
"""A series is begun if this much time is left, or as much as the slowest of its kind took; these are first guesses."""
COMMAND_SHARE = 0.15
"""The share of the time budget that one checked command may take."""
GRACE_S = 10.0
"""Time for the running series to end after the budget."""
LONGEST_KERNELS, KERNEL_NAME_LENGTH = 24, 120
"""How many kernels of a step are written by name, and how much of a name."""
CHAIN_LENGTH = 256
"""Operators of a chain that measures overheads: too few to fill CUDA's queue of 1,024 launches."""

SMALL: Mapping[str, int] = {
    "scripts/nets/deep_mlp.py": 1024,
    "examples/lstm.py": 64,
    "timm:resnet18@224": 128,
    "scripts/nets/unet.py": 16,
    "scripts/nets/embedding_bag.py": 8192,
    "hf:configs/bert_base_128.json": 32,
    "timm:vit_small_patch16_224": 64,
    "timm:mobilenetv3_large_100@224": 128,
    "scripts/nets/diffusion.py": 32,
    "scripts/nets/gru.py": 64,
    "timm:convnext_tiny@224": 64,
    "examples/transformer.py": 8,
    "examples/resnet50.py": 64,
}
"""The models that are timed in every regime, each with its batch size in inference; training takes half."""
COMPILED_FIRST = 4
LARGE: Mapping[str, int] = {
    "scripts/nets/wide_mlp.py": 256,
    "examples/mlp.py": 8192,
    "examples/small_cnn.py": 1024,
    "scripts/nets/long_attention.py": 8,
    "scripts/nets/video.py": 16,
    "scripts/nets/super_resolution.py": 16,
    "scripts/nets/graph.py": 32,
    "timm:efficientnet_b0@224": 128,
    "timm:regnety_016@224": 64,
    "timm:resnext50_32x4d@224": 64,
    "timm:densenet121@224": 64,
    "timm:swin_tiny_patch4_window7_224": 64,
    "timm:ghostnet_100@224": 128,
    "timm:levit_256": 128,
    "timm:poolformer_s12": 64,
    "timm:mixer_b16_224": 32,
    "timm:repvgg_a2@224": 64,
    "timm:tf_efficientnetv2_s@224": 32,
    "timm:vit_base_patch16_224": 32,
    "torchvision:squeezenet1_1": 128,
    "torchvision:shufflenet_v2_x1_0": 128,
    "torchvision:vgg11": 32,
    "hf:configs/distilbert_128.json": 64,
    "hf:configs/gpt2_small_256.json": 16,
    "hf:configs/t5_small_128.json": 32,
    "hf:configs/whisper_tiny_encoder.json": 16,
    "timm:vgg16@224": 32,
}
BATCH_BYTES, MOST_SCALE = 8 * 2**30, 8
"""The batch sizes above are for a GPU with this much memory; on a larger one they are up to eight times as large.

With the batches as they stand, kernels filled 85 % and more of the step in 13 of 67 steps of an H100.
"""
ON_CPU: Mapping[str, int] = {"scripts/nets/deep_mlp.py": 16, "scripts/nets/gru.py": 2, "scripts/nets/unet.py": 2}
NO_LOSS = ("examples/mlp.py", "examples/small_cnn.py")
"""Models that can only be timed in inference."""
PACKAGES = {"timm": "timm", "torchvision": "torchvision", "hf": "transformers"}
"""The package that a model's scheme needs."""

Regime = tuple[MeasuredMode, Precision, CompileMode]


class SideFile:
    """The JSON file beside the rows; each change is written at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    def update(self, **changes: Any) -> None:
        """Change keys and write the file."""
        self.content |= changes
        write_whole(json.dumps(self.content, indent=1) + "\n", self._path)


def batch_scale(memory_bytes: float) -> int:
    """Return the power of two by which the batch sizes grow on a GPU with this much memory."""
    scale = 1
    while 2 * scale <= min(MOST_SCALE, memory_bytes / BATCH_BYTES):
        scale *= 2
    return scale


def planned(out: Path, *, name: str, thread_count: int | None, scale: int = 1) -> Iterator[Series]:
    """Yield the series, the most informative and shortest first; models whose package is missing are left out.

    Batch sizes are multiplied by `scale`, except batches of one.
    """
    amp: Precision = "amp-fp16" if thread_count is None else "amp-bf16"
    small, large = (SMALL, LARGE) if thread_count is None else (ON_CPU, {})

    def series(models: Iterable[str], *regimes: Regime, single: bool = False) -> Iterator[Series]:
        for model in models:
            batch = 1 if single else {**small, **large}[model] * scale
            for mode, precision, compile_mode in regimes if is_installed(model) else ():
                if mode == "training" and model in NO_LOSS:
                    continue
                yield Series(
                    model=path_from(out, model),
                    mode=mode,
                    precision=precision,
                    layout="nchw",
                    compile=compile_mode,
                    device=name if thread_count is None else f"{name}@{thread_count}",
                    thread_count=thread_count,
                    batches=(batch // 2 if mode == "training" else batch,),
                    folder=out,
                )

    in_half: list[Regime] = [("inference", amp, "eager"), ("training", amp, "eager")]
    in_full: list[Regime] = [("inference", "fp32", "eager"), ("training", "fp32", "eager")]
    compiled: list[Regime] = [("inference", amp, "compile"), ("training", amp, "compile")]
    yield from series(small, *in_half)
    yield from series(large, in_half[0])
    yield from series([*small][:COMPILED_FIRST] if large else [*small][:1], *compiled)
    yield from series(small, *in_full)
    yield from series(large, in_half[1], in_full[0])
    yield from series(small, in_half[0], single=True)
    if large:
        yield from series([*small][COMPILED_FIRST:], *compiled)
        yield from series(small, ("inference", "fp32", "compile"))


def is_installed(model: str) -> bool:
    """Return whether the package that the model comes from is installed."""
    package = PACKAGES.get(model.partition(":")[0])
    return package is None or find_spec(package) is not None


def path_from(out: Path, model: str) -> str:
    """Return the model with its path relative to `out`."""
    scheme, colon, reference = model.rpartition(":")
    if colon and scheme != "hf":
        return model
    file = FOLDER / reference if scheme == "hf" else ROOT / reference
    return f"{scheme}{colon}{os.path.relpath(file, out.resolve())}"


class Nvml:
    """One GPU as NVML sees it; every answer is empty without `nvidia-ml-py` or a driver (AMD)."""

    def __init__(self, uuid: str | None) -> None:
        self._nvml: Any = None
        if uuid is None or find_spec("pynvml") is None:
            return
        import pynvml

        try:
            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        except pynvml.NVMLError:
            return
        self._nvml = pynvml

    def _ask(self, name: str, *arguments: int, unit: float = 1.0) -> Any:
        """Return None for what this driver or GPU does not tell."""
        query = getattr(self._nvml, f"nvmlDeviceGet{name}", None)
        try:
            found = None if query is None else query(self._handle, *arguments)
        except self._nvml.NVMLError:
            return None
        return found * unit if isinstance(found, int) and unit != 1.0 else found

    def limits(self) -> dict[str, Any]:
        """Return the highest clocks and the power limits."""
        if self._nvml is None:
            return {}
        sm, memory = self._nvml.NVML_CLOCK_SM, self._nvml.NVML_CLOCK_MEM
        return {
            "driver": str(self._nvml.nvmlSystemGetDriverVersion()),
            "most_sm_hz": self._ask("MaxClockInfo", sm, unit=1e6),
            "most_memory_hz": self._ask("MaxClockInfo", memory, unit=1e6),
            "power_limit_w": self._ask("EnforcedPowerLimit", unit=1e-3),
            "default_power_limit_w": self._ask("PowerManagementDefaultLimit", unit=1e-3),
        }

    def state(self) -> dict[str, Any]:
        """Return clocks, power, temperature, throttle reasons (a bit mask), and this process's memory."""
        if self._nvml is None:
            return {}
        return {
            "sm_hz": self._ask("ClockInfo", self._nvml.NVML_CLOCK_SM, unit=1e6),
            "memory_hz": self._ask("ClockInfo", self._nvml.NVML_CLOCK_MEM, unit=1e6),
            "power_w": self._ask("PowerUsage", unit=1e-3),
            "temperature_c": self._ask("Temperature", self._nvml.NVML_TEMPERATURE_GPU),
            "throttle_reasons": self._ask("CurrentClocksThrottleReasons"),
            "process_bytes": self._process_bytes(),
        }

    def _process_bytes(self) -> int | None:
        """Return this process's memory; in a container NVML lists another id, which is ours if it is alone."""
        processes = self._ask("ComputeRunningProcesses") or []
        own = [one for one in processes if one.pid == os.getpid()] or processes
        return own[0].usedGpuMemory if len(own) == 1 else None


def observed(step: Callable[[], None], device: torch.device, nvml: Nvml) -> dict[str, Any]:
    """Return memory peaks, clocks and kernel counts of a step that has just been timed.

    `first_peak_bytes` includes the warm-up, where cuDNN tries algorithms; `peak_bytes` is that of one more step.
    """
    found = nvml.state()
    is_gpu = device.type == "cuda"
    if is_gpu:
        free_bytes, all_bytes = torch.cuda.mem_get_info(device)
        found |= {
            "first_peak_bytes": torch.cuda.max_memory_allocated(device),
            "reserved_peak_bytes": torch.cuda.max_memory_reserved(device),
            "device_used_bytes": all_bytes - free_bytes,
        }
        torch.cuda.reset_peak_memory_stats(device)
    else:
        found["process_peak_bytes"] = process_bytes()["VmHWM"]
    activities = [torch.profiler.ProfilerActivity.CPU] + [torch.profiler.ProfilerActivity.CUDA] * is_gpu
    with torch.profiler.profile(activities=activities) as profile:
        step()
    if is_gpu:
        found["peak_bytes"] = torch.cuda.max_memory_allocated(device)
    return found | profile_counts(profile.events() or ())


def profile_counts(events: Iterable[Any]) -> dict[str, Any]:
    """Count operators, launches and kernels (with copies) of profiled events, and add up the kernels' times.

    `longest_kernels` are the names, numbers and seconds of the kernels that take most of the time.
    """
    events = list(events)
    kernels = [
        event
        for event in events
        if event.device_type == DeviceType.CUDA and not getattr(event, "is_user_annotation", False)
    ]
    names = [event.name for event in events if event.device_type == DeviceType.CPU]
    kernel_s: dict[str, list[float]] = {}
    for event in kernels:
        kernel_s.setdefault(event.name[:KERNEL_NAME_LENGTH], []).append(event.time_range.elapsed_us() / 1e6)
    longest = sorted(kernel_s.items(), key=lambda named: -sum(named[1]))[:LONGEST_KERNELS]
    return {
        "operator_count": sum(name.startswith("aten::") for name in names),
        "launch_count": sum(re.match(r"(cu|hip)\w*Launch", name) is not None for name in names),
        "kernel_count": len(kernels),
        "kernel_s": sum(map(sum, kernel_s.values())),
        "longest_kernels": [(name, len(each_s), sum(each_s)) for name, each_s in longest],
    }


def launch_overheads(device: torch.device) -> dict[str, float]:
    """Return the times of an operator that does almost nothing: eager, with backward, in a CUDA graph, compiled."""
    x, synchronize = torch.zeros(1, device=device), synchronizer(device)
    wants_gradient = torch.zeros(1, device=device, requires_grad=True)

    def operators(count: int) -> None:
        for _ in range(count):
            x.add_(1.0)

    def forward_backward() -> None:
        y = wants_gradient
        for _ in range(CHAIN_LENGTH):
            y = y * 1.0
        y.backward()

    def time_of(work: Callable[[], Any]) -> float:
        return time_step(lambda: (work(), synchronize())[1], budget_s=SHORT_S, repeats=SHORT_REPEATS).step_s

    found = {
        "operator_s": time_of(lambda: operators(CHAIN_LENGTH)) / CHAIN_LENGTH,
        "operator_and_wait_s": time_of(lambda: operators(1)),
        "forward_backward_operator_s": time_of(forward_backward) / CHAIN_LENGTH,
    }
    if device.type == "cuda":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            operators(CHAIN_LENGTH)
        found["graph_kernel_s"] = time_of(graph.replay) / CHAIN_LENGTH
    return found


def versions() -> dict[str, str | None]:
    """Return the versions of what decides about times."""
    packages = ("torch", "triton", "timm", "torchvision", "transformers", "numpy", "device-advisor")
    installed = {one.name.lower(): one.version for one in metadata.distributions() if one.name}
    return {
        **{package: installed.get(package) for package in packages},
        "python": platform.python_version(),
        "cuda": torch.version.cuda,
        "rocm": torch.version.hip,
        "cudnn": str(torch.backends.cudnn.version()),
    }


def time_models(out: Path, *, end_s: float) -> None:
    """Measure the overheads and the series that the files in `out` do not have, until `end_s` of the clock."""
    keep_freed_memory()
    torch.backends.cudnn.benchmark = True
    side, rows = SideFile(out / "run.json"), Rows(out / "steps.csv")
    thread_count = side.content["thread_count"]
    device = torch.device("cuda:0" if thread_count is None else "cpu")
    nvml = Nvml(gpu_uuid(0) if device.type == "cuda" else None)
    if "launch" not in side.content:
        side.update(versions=versions(), limits=nvml.limits(), launch=launch_overheads(device))

    def time_it(loaded: LoadedModel, series: Series, *, batch: int) -> StepTiming:
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)
        else:
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets VmHWM, see proc(5)
        found: dict[str, Any] = {}
        request = replace(request_of(series, batch=batch), budget_s=SHORT_S)
        timing = time_loaded(
            loaded, request, repeats=SHORT_REPEATS, then=lambda step: found.update(observed(step, device, nvml))
        )
        step = {"series": str(series), "batch": batch, "step_s": timing.step_s, "iqr_ratio": timing.iqr_ratio, **found}
        side.update(steps=[*side.content["steps"], step])
        return timing

    def remarks_on_last() -> list[str]:
        last = side.content["steps"][-1]
        return [f"kernels fill {last['kernel_s'] / last['step_s']:.2f} of the step"] if device.type == "cuda" else []

    expected_s = dict(EXPECTED_S)
    machine = machine_text(device.type)
    scale = 1 if device.type == "cpu" else batch_scale(torch.cuda.mem_get_info(device)[1])
    for series in planned(out, name=side.content["device"], thread_count=thread_count, scale=scale):
        begin_s, name = time.time(), f"{series} batch {series.batches[0]}"
        if name in side.content["failed"] or begin_s + expected_s[series.compile] > end_s:
            continue
        side.update(running=name)
        problem = measure(
            series,
            rows,
            machine=machine,
            again=False,
            is_over=lambda: time.time() > end_s,
            time_it=time_it,
            remarks_on_last=remarks_on_last,
        )
        failed = side.content["failed"] | ({name: problem} if problem else {})
        side.update(running="", failed=failed)
        expected_s[series.compile] = max(expected_s[series.compile], time.time() - begin_s)
        synchronizer(device)()  # raises if an error has left the GPU unusable, so that a new process goes on


def time_models_in_children(out: Path, side: SideFile, *, end_s: float) -> None:
    """Run `time_models` in a process, and in another one if it dies, until the time is over."""
    while (left_s := end_s - time.time()) > 0:
        command = [sys.executable, __file__, "--out", str(out), "--end", str(end_s)]
        try:
            code = subprocess.run(command, check=False, timeout=left_s + GRACE_S).returncode
            reason = f"the process ended with code {code}"
        except subprocess.TimeoutExpired:
            code, reason = 0, "the time was over"
        side.content = SideFile(out / "run.json").content
        running = side.content.get("running")
        if running:
            side.update(running="", failed=side.content["failed"] | {running: reason})
        if code == 0:
            return
        if not running:
            sys.exit(f"no model could be timed: {reason}; its reason is above")


def advise(*arguments: str, timeout_s: float) -> tuple[dict[str, Any], str]:
    """Run `advise` and return how that went, with its standard output."""
    begin_s = time.time()
    found: dict[str, Any] = {"command": " ".join(("advise", *arguments)).replace(f"{ROOT}/", ""), "code": None}
    output = ""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "advisor", *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
        found |= {"code": done.returncode, "said": done.stderr.strip().splitlines()[-3:]}
        output = done.stdout
    except subprocess.TimeoutExpired:
        found["said"] = [f"not done after {timeout_s:.0f} s"]
    return found | {"seconds": round(time.time() - begin_s, 1)}, output


def checked_commands(device: str, out: Path, *, seconds: float) -> Iterator[dict[str, Any]]:
    """Calibrate, then run the commands that use the device; each with `ok`: it ended well and used the device."""
    timeout_s = seconds * COMMAND_SHARE
    budget = f"{max(5, round(seconds / 20))}s"
    calibrated, _ = advise(
        "calibrate",
        "--on",
        device,
        "--time-budget",
        budget,
        "--export",
        str(out / "calibration.yaml"),
        timeout_s=timeout_s,
    )
    yield calibrated | {"ok": calibrated["code"] == 0}
    examined, output = advise("doctor", "-o", "json", timeout_s=timeout_s)
    (out / "doctor.json").write_text(output, encoding="utf-8")
    yield examined | {"ok": examined["code"] == 0 and device_check_passes(json.loads(output), device)}
    model = "examples/resnet50.py" if device != "cpu" else "examples/mlp.py"
    measured, output = advise("rank", model, "--measure", "--device", "local", "-o", "json", timeout_s=timeout_s)
    (out / "measure.json").write_text(output, encoding="utf-8")
    kind = "cpu" if device == "cpu" else "gpu"
    steps = json.loads(output)["measured"] if measured["code"] == 0 else []
    yield measured | {"ok": any(step["device"]["kind"] == kind for step in steps)}


def device_check_passes(doctor: Mapping[str, Any], device: str) -> bool:
    """Return whether `advise doctor` found nothing missing of the device."""
    checks = [check for check in doctor["checks"] if check["name"] == device]
    return bool(checks) and all(check["state"] in ("ok", "note") for check in checks)


def found_device(inventory: Mapping[str, Any], device: str) -> Mapping[str, Any]:
    """Return the device in the answer of `advise devices`; exit if it is not there."""
    found = next((one for one in inventory["devices"] if one["id"] == device), None)
    if found is None:
        here = ", ".join(one["id"] for one in inventory["devices"])
        sys.exit(f"this machine has no {device}; found: {here}. Notes: {'; '.join(inventory['machine']['notes'])}")
    return dict(found)


def main() -> None:
    """Check the commands, then time the models."""
    begin_s = time.time()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder for the results (default: DEVICE-DATE in the project's own)")
    parser.add_argument("--seconds", type=float, default=420.0, help="time budget (default: 420)")
    parser.add_argument("--cpu", action="store_true", help="use the CPU and a few small models")
    parser.add_argument("--only-steps", action="store_true", help="go on with the steps; neither calibrate nor check")
    parser.add_argument("--end", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.end is not None:
        time_models(arguments.out, end_s=arguments.end)
        return
    os.environ.update(BUS_ORDER)  # of this process, its children and their torch alike
    device = "cpu" if arguments.cpu else "cuda:0"
    end_s = begin_s + arguments.seconds
    listed, output = advise("devices", "-o", "json", timeout_s=arguments.seconds * COMMAND_SHARE)
    if listed["code"] != 0:
        sys.exit("\n".join(listed["said"]))
    here = found_device(json.loads(output), device)
    name = here["profile"]["id"] if here["profile"] else here["name"]
    out = arguments.out or FOLDER / f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}-{date.today().isoformat()}"
    out.mkdir(parents=True, exist_ok=True)
    (out / "devices.json").write_text(output, encoding="utf-8")
    side = SideFile(out / "run.json")
    side.update(
        at=date.today().isoformat(),
        device=name,
        device_name=here["name"],
        thread_count=max(1, int(here["device"]["core_count"])) if arguments.cpu else None,
        steps=side.content.get("steps", []),
        failed=side.content.get("failed", {}),
        commands=side.content.get("commands", []) if arguments.only_steps else [],
    )
    first = listed | {"ok": here["device"] is not None}
    checks = chain([first], checked_commands(device, out, seconds=arguments.seconds))
    for check in () if arguments.only_steps else checks:
        side.update(commands=[*side.content["commands"], check])
        print(f"{'ok' if check['ok'] else 'FAILED'}: {check['command']}, {check['seconds']} s", flush=True)
    time_models_in_children(out, side, end_s=end_s)
    print(f"{len(side.content['steps'])} steps in {out / 'steps.csv'}, {len(side.content['failed'])} series failed")
    sys.exit(0 if all(check["ok"] for check in side.content["commands"]) else 1)


if __name__ == "__main__":
    main()
