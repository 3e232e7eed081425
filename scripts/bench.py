"""Runs the benchmarks of the project and writes the results to docs/internals/benchmarks.md.

    python scripts/bench.py (= make bench)

Each benchmark compares the median time of a subject with a reference or with a fixed limit. Subject and reference
alternate on the same machine, so that other load affects both alike. Exits with 1 if a limit is exceeded.
"""

import compileall
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[1]
ADVISE = [str(Path(sys.executable).parent / "advise")]
REPEATS = 7
SEVENTY_BILLION = """import sys
sys.path.insert(0, {examples!r})
from transformer import LanguageModel, example_inputs, loss, optimizer

def get_model():  # 86 layers x 12 x 8192^2 weights = 69.3 billion, and 0.4 billion of embeddings
    return LanguageModel(layer_count=86, width=8192, head_count=64)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One line of the table: the medians, their ratio, and the limit."""

    what: str
    subject: str
    reference: str
    ratio: str
    bar: str
    is_met: bool


def main() -> None:
    """Run all benchmarks and write the table."""
    # An installed package has its bytecode; an editable one has none where Python may not write it.
    compileall.compile_dir(ROOT / "advisor", quiet=1)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        large = seventy_billion(scratch)
        results = [
            *command_lines(scratch),
            *catalogs(scratch),
            ranking(scratch),
            ranking_many(scratch),
            breaking_even(),
            tracing(),
            *following(),
            *large,
        ]
    table = as_markdown(results)
    (ROOT / "docs" / "internals" / "benchmarks.md").write_text(table)
    print(table)
    if not all(result.is_met for result in results):
        sys.exit(1)


def command_lines(scratch: Path) -> list[Result]:
    """Time `advise --help`, and whole commands from a model file to the answer, with and without a cached trace."""
    nothing, torch = [sys.executable, "-c", "pass"], [sys.executable, "-c", "import torch"]
    model = str(ROOT / "examples" / "resnet50.py")
    cache = scratch / "commands"
    environment = {"XDG_CACHE_HOME": str(cache)}
    again = run(*ADVISE, model, environment=environment)
    training = run(*ADVISE, model, "--mode", "training", environment=environment)
    adapters = ("--finetune", "lora", "--lora-targets", "all-linear", "--sequence", "2048")
    tuning = run(*ADVISE, "hf:meta-llama/Llama-3.1-8B", *adapters, environment=environment)

    def untraced(timed: Callable[[], float]) -> Callable[[], float]:
        def first() -> float:
            shutil.rmtree(cache / "advisor" / "workloads")
            return timed()

        return first

    again()  # measures this machine once
    return [
        _ratio("advise --help / python -c pass", run(*ADVISE, "--help"), run(*nothing), most=5.0),
        _ratio("advise resnet50.py again / import torch", again, run(*torch), most=1.5),
        _ratio("advise resnet50.py, traced / import torch", untraced(again), run(*torch), most=2.0),
        _ratio("advise resnet50.py --mode training, traced / import torch", untraced(training), run(*torch), most=2.3),
        _ratio("advise, LoRA of 8 billion parameters, traced / import torch", untraced(tuning), run(*torch), most=6.0),
    ]


def catalogs(scratch: Path) -> list[Result]:
    """Time loading all profiles: parsing them, and reading them from the cache."""
    cache = {"XDG_CACHE_HOME": str(scratch / "cache")}
    load = (
        "import time; from advisor.catalog.overlay import load_catalog; start = time.process_time(); load_catalog(); "
        "print(time.process_time() - start)"
    )

    def cold() -> float:
        subprocess.run(["rm", "-rf", cache["XDG_CACHE_HOME"]], check=True)
        return _printed_s(load, cache)

    def warm() -> float:
        return _printed_s(load, cache)

    torch = "import time; start = time.process_time(); import torch; print(time.process_time() - start)"
    cold()
    return [
        _absolute("load all profiles, cold (processor time)", cold, most_s=0.5),
        _absolute("load all profiles, warm (processor time)", warm, most_s=0.06),
        _ratio("catalog cold / import torch", cold, lambda: _printed_s(torch, cache), most=0.5),
    ]


def ranking(scratch: Path) -> Result:
    """Time the prediction and ranking of every offer at 20 batch sizes for a GPT-2 training step."""
    saved = scratch / "workload.json"
    model = str(ROOT / "examples" / "transformer.py")
    subprocess.run([*ADVISE, "profile", model, "--mode", "training", "-o", str(saved)], check=True, capture_output=True)
    code = (
        "import sys, time; from pathlib import Path; from advisor.answers.ranking import rank;"
        "from advisor.catalog.overlay import load_catalog; from advisor.workload.file import read_workload;"
        "from advisor.question.from_source import question_of;"
        "from advisor.records.options import Options; catalog = load_catalog();"
        "workload = read_workload(Path(sys.argv[1]));"
        "options = Options(mode='training', batch=','.join(str(n) for n in range(1, 21)));"
        "question = question_of(workload, options, catalog=catalog); rank(question);"
        "start = time.perf_counter(); rank(question);"
        "print(time.perf_counter() - start)"
    )
    torch = "import time; start = time.perf_counter(); import torch; print(time.perf_counter() - start)"
    return _ratio(
        "predict and rank all offers x 20 batches, GPT-2 training / import torch",
        lambda: _printed_s(code, {}, str(saved)),
        lambda: _printed_s(torch, {}),
        most=0.2,
    )


def ranking_many(scratch: Path) -> Result:
    """Time the ranking alone, for 2,000 offers: the shipped ones, repeated with other regions and prices."""
    code = """
import sys, time
from dataclasses import replace
from pathlib import Path
from advisor.catalog.overlay import load_catalog
from advisor.cost.job import job_for
from advisor.cost.market import Market
from advisor.cost.rank_offers import rank
from advisor.cost.selection import select_offers
from advisor.predict.batches import batch_candidates
from advisor.predict.capability import fleet_of
from advisor.predict.step_time import predict
from advisor.records.options import Options
from advisor.workload.file import read_workload

def elsewhere(offer, number):
    prices = tuple(replace(price, usd_per_hour=price.usd_per_hour * (1 + number / 2000)) for price in offer.prices)
    return replace(offer, id=f"{offer.id}-{number}", region=f"{offer.region}-{number}", prices=prices)

catalog, workload = load_catalog(), read_workload(Path(sys.argv[1]))
options = Options(samples=1_000_000)
offers = [elsewhere(catalog.offers[number % len(catalog.offers)], number) for number in range(2000)]
job = job_for(workload, options)
selection = select_offers(offers, options=options, price_kind=job.price, errors=catalog.price_errors)
fleet = fleet_of(selection.offers, gpus=catalog.gpus, cpus=catalog.cpus)
predictions = predict(
    workload, devices=fleet.devices, efficiencies=catalog.efficiencies,
    batches=batch_candidates("auto", mode="inference", source_batch=workload.batch),
    precision="auto", layout="nchw", compile_mode="eager",
)
rank(Market(selection, fleet=fleet, billing=catalog.billing), predictions=predictions, job=job)
start = time.process_time()
rank(Market(selection, fleet=fleet, billing=catalog.billing), predictions=predictions, job=job)
print(time.process_time() - start)
"""
    saved = scratch / "inference.json"
    model = str(ROOT / "examples" / "resnet50.py")
    subprocess.run([*ADVISE, "profile", model, "-o", str(saved)], check=True, capture_output=True)
    return _absolute("rank 2,000 offers (processor time)", lambda: _printed_s(code, {}, str(saved)), most_s=0.05)


def breaking_even() -> Result:
    """Time the break-even of GPT-2 from its config; the trace is cached from the warm-up on."""
    gpt2 = f"hf:{ROOT / 'examples' / 'configs' / 'gpt2.json'}"
    return _absolute("advise breakeven GPT-2, warm", run(*ADVISE, "breakeven", gpt2), most_s=3.0)


def tracing() -> Result:
    """Time a trace of ResNet-50 at batch 256 against fvcore's FLOP count of the same model."""
    common = (
        "import sys, time, warnings, torch; sys.path.insert(0, sys.argv[1]); warnings.simplefilter('ignore');"
        "from resnet50 import get_model; model = get_model().eval();"
    )
    ours = common + (
        "from advisor.workload.trace import trace; from advisor.workload.sources.live import load_live;"
        "start = time.perf_counter();"
        "trace(load_live(model, lambda batch=256: torch.zeros(batch, 3, 224, 224)), mode='inference', batch=256,"
        "      isolated=True);"
        "print(time.perf_counter() - start)"
    )
    theirs = common + (
        "from fvcore.nn import FlopCountAnalysis; start = time.perf_counter();"
        "torch.set_grad_enabled(False);"
        "FlopCountAnalysis(model, torch.zeros(256, 3, 224, 224)).unsupported_ops_warnings(False).total();"
        "print(time.perf_counter() - start)"
    )
    examples = str(ROOT / "examples")
    return _ratio(
        "trace of ResNet-50 at batch 256 (three batch sizes) / fvcore's count",
        lambda: _printed_s(ours, {}, examples),
        lambda: _printed_s(theirs, {}, examples),
        most=0.2,
        repeats=3,
    )


def following() -> list[Result]:
    """Time what `advisor.TrainerCallback` adds to a step of a small network, while it observes and afterwards.

    Its hooks and events are called alone, as often as a step calls them: the difference of two loops would be noise.
    """
    import torch

    import advisor

    sys.path.insert(0, str(ROOT / "examples"))
    example = import_module("small_cnn")
    model, images = example.get_model(), example.example_inputs()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    callback = advisor.TrainerCallback(say=str)
    state = SimpleNamespace(global_step=0, max_steps=1000, is_world_process_zero=True)
    given = (SimpleNamespace(world_size=1, dataloader_num_workers=0, torch_compile=False), state, None)

    def step() -> None:
        optimizer.zero_grad()
        model(images).mean().backward()
        optimizer.step()

    def events() -> None:
        callback.on_step_begin(*given)
        callback.on_step_end(*given)

    def observed() -> float:
        state.global_step = 0
        callback.on_train_begin(*given, model=model)
        (observer,) = callback._observers

        def hooks() -> None:
            observer._before_call(model, (images,), {})
            observer._inside_call(model[0], (images,))
            observer._after_call(model, (images,), None)
            observer._after_optimizer(optimizer, (), {})
            events()

        taken_s = per_call_s(hooks)
        callback.end()
        return taken_s

    def afterwards() -> float:
        state.global_step = 0
        callback.on_train_begin(*given, model=model)
        callback.end()
        state.global_step = 500
        return per_call_s(events)

    def per_call_s(run: Callable[[], None], count: int = 20) -> float:
        start = time.perf_counter()
        for _ in range(count):
            run()
        return (time.perf_counter() - start) / count

    what = "TrainerCallback, {} / a training step of examples/small_cnn.py at batch 64"
    return [
        _ratio(what.format("a step that it observes"), observed, lambda: per_call_s(step), most=0.01),
        _ratio(what.format("a later step"), afterwards, lambda: per_call_s(step), most=0.01),
    ]


def seventy_billion(scratch: Path) -> list[Result]:
    """Measure the time and peak memory of a training profile of a 70-billion-parameter transformer, without caches."""
    model = scratch / "seventy_billion.py"
    model.write_text(SEVENTY_BILLION.format(examples=str(ROOT / "examples")))
    start = time.perf_counter()
    subprocess.run([*ADVISE, "profile", str(model), "--mode", "training"], check=True, capture_output=True)
    elapsed_s = time.perf_counter() - start
    peak_gib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    return [
        Result(
            what="70-billion-parameter training profile, whole command",
            subject=f"{elapsed_s:.1f} s",
            reference="-",
            ratio="-",
            bar="under 10 s",
            is_met=elapsed_s < 10,
        ),
        Result(
            what="its peak memory (the largest process)",
            subject=f"{peak_gib:.2f} GiB",
            reference="-",
            ratio="-",
            bar="under 1.5 GiB",
            is_met=peak_gib < 1.5,
        ),
    ]


def run(*command: str, environment: Mapping[str, str] | None = None) -> Callable[[], float]:
    """Return a function that runs the command and returns its duration in seconds."""

    def timed() -> float:
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, env=os.environ | (environment or {}))
        return time.perf_counter() - start

    return timed


def _printed_s(code: str, environment: dict[str, str], *arguments: str) -> float:
    """Run a program that prints its own duration, and return it."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )
    return float(done.stdout.split()[-1])


def _ratio(
    what: str,
    subject: Callable[[], float],
    reference: Callable[[], float],
    *,
    most: float,
    repeats: int = REPEATS,
    interleaved: bool = True,
) -> Result:
    """Return the ratio of the medians of `subject` and `reference`, after one warm-up of each."""
    subject()
    reference()
    subjects, references = [], []
    if interleaved:
        for _ in range(repeats):
            subjects.append(subject())
            references.append(reference())
    else:
        references = [reference() for _ in range(repeats)]
        subjects = [subject() for _ in range(repeats)]
    ratio = statistics.median(subjects) / statistics.median(references)
    return Result(
        what=what,
        subject=_with_spread(subjects),
        reference=_with_spread(references),
        ratio=f"{ratio:.2f}" if ratio >= 0.01 else f"{ratio:.5f}",
        bar=f"at most {most:g}",
        is_met=ratio <= most,
    )


def _absolute(what: str, subject: Callable[[], float], *, most_s: float) -> Result:
    """Return the median of `subject`, held to an absolute time, after one warm-up."""
    subject()
    times_s = [subject() for _ in range(REPEATS)]
    return Result(
        what=what,
        subject=_with_spread(times_s),
        reference="-",
        ratio="-",
        bar=f"at most {most_s * 1e3:g} ms",
        is_met=statistics.median(times_s) <= most_s,
    )


def _with_spread(times_s: Sequence[float]) -> str:
    ordered = sorted(times_s)
    mid, low, high = (one * 1e3 for one in (statistics.median(ordered), ordered[0], ordered[-1]))
    decimals = 0 if mid >= 1 else 4
    return f"{mid:.{decimals}f} ms [{low:.{decimals}f}-{high:.{decimals}f}]"


def as_markdown(results: Sequence[Result]) -> str:
    """Return the text of docs/internals/benchmarks.md."""
    import torch

    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`. Ratios of medians, measured in turns in one run; in brackets the least and the most.",
        f"{datetime.now(UTC):%Y-%m-%d}, {_cpu_name()}, {os.cpu_count()} vCPU, Python {platform.python_version()}, "
        f"torch {torch.__version__}, {REPEATS} repeats.",
        "",
        "| what | subject | reference | ratio | target | met |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {r.what} | {r.subject} | {r.reference} | {r.ratio} | {r.bar} | {'yes' if r.is_met else 'NO'} |"
        for r in results
    ]
    return "\n".join(lines) + "\n"


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    main()
