"""Converts a sample of published times of single operators to rows; a module of `scripts/list_measurements.py`.

The sources have hundreds of thousands of times. For each operator, some of the shapes that all devices ran are drawn,
evenly spaced in the logarithm of their size.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import TypeAlias, cast
from zlib import crc32

from measurement_table import DEVICE_IDS, NEUSIGHT_COMMIT, Dropped, Table, grouped, merged, read_csv

from advisor.records.device import Precision
from advisor.records.measurement import TimedStep

VIDUR_COMMIT = "7d475133"

NEUSIGHT_POINTWISE = {
    # NeuSight's name -> the name in operators.py. `u` marks a tensor and a number: the times are those of moving two
    # tensors, not three.
    "add": "add",
    "addu": "add_number",
    "div": "div",
    "divu": "div_number",
    "gelu": "gelu",
    "mul": "mul",
    "mulu": "mul_number",
    "pow": "pow",
    "relu": "relu",
    "tanh": "tanh",
}
NEUSIGHT_ALONG_ROWS = {"ln": "layer_norm", "softmax": "softmax"}
NEUSIGHT_SHAPE_COUNTS = {
    **dict.fromkeys(("bmm", "linear", "conv", "layer_norm", "softmax"), 60),
    **dict.fromkeys(NEUSIGHT_POINTWISE.values(), 20),  # fewer each, since they behave alike
}
"""Maximum number of shapes drawn for each operator."""
OVERHEAD_RATIO = 2.0
"""A time below twice the shortest of its operator and device counts as mostly launch overhead."""
OVERHEAD_EVERY = 10
"""One drawn shape in ten keeps its times that are mostly launch overhead."""

VIDUR_LINEARS = ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj")
VIDUR_SHAPE_COUNTS = dict.fromkeys((*VIDUR_LINEARS, "add"), 60)
VIDUR_LEFT_OUT = {
    # Source: data/model_configs and profiling/mlp/mlp_impl.py of Vidur.
    ("Qwen/Qwen-72B", "attn_pre_proj"): "has a bias",
    **dict.fromkeys([("microsoft/phi-2", operator) for operator in VIDUR_LINEARS], "has a bias"),
    ("microsoft/phi-2", "add"): "adds three tensors",
}
VIDUR_LEAST_S = 50e-6
"""Vidur's times are sums of kernel times. A step of one operator shorter than this would be bound by its launch."""
VIDUR_NORMS = ("input_layernorm", "post_attention_layernorm")
VIDUR_ENGINE_COUNTS = dict.fromkeys((*VIDUR_NORMS, "attn_rope", "mlp_act"), 60)
VIDUR_OTHER_KERNELS = {
    # The kernels of microsoft/phi-2, from the same files.
    "input_layernorm": "torch's layer norm",
    "attn_rope": "rotates a part of each head",
    "mlp_act": "torch's GELU",
}
VIDUR_ENGINE_LEAST_S = 5e-6
"""Times are published in whole microseconds, so a shorter one may be wrong by 10 % or more."""

MATMULS = Path(__file__).parent / "data/matmuls.csv"
MATMULS_PLACE = "zzc0721/torch-performance-test-data"
MATMUL_SIZES = (1024, 2048, 4096, 8192, 10240)
"""Columns of the table: products of two square matrices, each timed over 30 consecutive runs."""

AICONFIGURATOR_COMMIT = "095f58a5"
AICONFIGURATOR_EVERY = 4
"""One shape in four is kept, the same on every GPU; the source's rows are spread evenly over m and n x k."""
AICONFIGURATOR_PRECISIONS: Mapping[str, Precision] = {"bfloat16": "bf16", "float16": "fp16"}

Step: TypeAlias = tuple[str, int]
"""Model and batch of an operator, which identify it on every device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A published time of one operator. `size` is its multiply-adds or elements, by which the sample is spaced."""

    file: str
    operator: str
    size: int
    row: TimedStep

    @property
    def step(self) -> Step:
        """Return the model and batch that were timed."""
        return self.row.model, self.row.batch

    def dropped(self, reason: str) -> Dropped:
        """Return the entry of `dropped.csv` for this time."""
        return Dropped(file=self.file, model=self.operator, reason=reason)


def list_neusight_operators(data: Path) -> Table:
    """Return a sample of NeuSight's single operators in fp32."""
    folder = data / "measured/neusight"
    vectors = read_csv(folder / "ops_vector.csv.gz")
    powers = [published for published in vectors if published["op"] == "powu"]
    timed = [
        *map(neusight_product, read_csv(folder / "ops_matmul.csv.gz")),
        *map(neusight_convolution, read_csv(folder / "ops_conv.csv.gz")),
        *(neusight_vector(published) for published in vectors if published["op"] != "powu"),
    ]
    rows, dropped = sample_of(timed, counts=NEUSIGHT_SHAPE_COUNTS, overheads=overheads_of(timed))
    dropped += [Dropped(file="ops_vector.csv.gz", model="powu", reason="the exponent is not published")] * len(powers)
    return Table(name="neusight_ops", rows=merged(rows), dropped=dropped)


def neusight_product(published: Mapping[str, str]) -> Timed:
    """Convert a product: `bmm` is (B, M, K) by (B, K, N), `linear` is (M, K) by a weight (N, K)."""
    b, m, n, k = (int(published[name]) for name in "BMNK")
    is_linear = published["op"] == "linear"
    return neusight_timed(
        published,
        file="ops_matmul.csv.gz",
        operator=published["op"],
        name=f"linear_{k}_{n}" if is_linear else f"bmm_{m}_{n}_{k}",
        batch=m if is_linear else b,
        size=b * m * n * k,
    )


def neusight_convolution(published: Mapping[str, str]) -> Timed:
    """Convert a 3x3 convolution of square images with stride 1 and padding 1."""
    batch, channels, filters, side = (
        int(published[name]) for name in ("B", "Input_Channel", "Output_Channel", "Input_Size")
    )
    return neusight_timed(
        published,
        file="ops_conv.csv.gz",
        operator="conv",
        name=f"conv_{channels}_{filters}_{side}",
        batch=batch,
        size=batch * side**2 * channels * filters,
    )


def neusight_vector(published: Mapping[str, str]) -> Timed:
    """Convert an operator on (B, H), along H or elementwise."""
    batch, width = int(published["B"]), int(published["H"])
    along_rows = NEUSIGHT_ALONG_ROWS.get(published["op"])
    return neusight_timed(
        published,
        file="ops_vector.csv.gz",
        operator=along_rows or NEUSIGHT_POINTWISE[published["op"]],
        name=f"{along_rows}_{width}" if along_rows else NEUSIGHT_POINTWISE[published["op"]],
        batch=batch if along_rows else batch * width,
        size=batch * width,
    )


def neusight_timed(
    published: Mapping[str, str], *, file: str, operator: str, name: str, batch: int, size: int
) -> Timed:
    """Return the time of a NeuSight operator in fp32."""
    row = operator_row(
        name,
        precision="fp32",
        batch=batch,
        device=published["device"],
        step_ms=published["latency_ms"],
        source=f"NeuSight {file} ({published['split']}) @ {NEUSIGHT_COMMIT}",
    )
    return Timed(file=file, operator=operator, size=size, row=row)


def list_vidur(data: Path) -> Table:
    """Return a sample of Vidur's linear layers and residual additions in fp16; other operators use custom kernels."""
    timed: list[Timed] = []
    left_out: list[Dropped] = []
    for published in read_csv(data / "measured/vidur_mlp_ops_fp16.csv.gz"):
        for time in vidur_times(published):
            reason = vidur_problem(published["model"], time)
            if reason:
                left_out.append(time.dropped(reason))
            else:
                timed.append(time)
    rows, dropped = sample_of(timed, counts=VIDUR_SHAPE_COUNTS, overheads=frozenset())
    return Table(name="vidur_ops", rows=merged(rows), dropped=left_out + dropped)


def list_vidur_engine(data: Path) -> Table:
    """Return a sample of the kernels that Vidur took from vLLM: norms, rotary embedding, gated activation."""
    timed: list[Timed] = []
    left_out: list[Dropped] = []
    for published in read_csv(data / "measured/vidur_mlp_ops_fp16.csv.gz"):
        for time in vidur_engine_times(published):
            if published["model"] == "microsoft/phi-2":
                left_out.append(time.dropped(VIDUR_OTHER_KERNELS[time.operator]))
            elif time.row.step_s < VIDUR_ENGINE_LEAST_S:
                left_out.append(time.dropped("shorter than 5 us"))
            else:
                timed.append(time)
    rows, dropped = sample_of(timed, counts=VIDUR_ENGINE_COUNTS, overheads=frozenset())
    return Table(name="vidur_engine", rows=merged(rows), dropped=left_out + dropped)


def list_matmuls() -> Table:
    """Return all products of square matrices that owners of GPUs timed with torch and published in TFLOP/s."""
    rows = [
        TimedStep(
            model=f"operators.py::linear_{size}_{size}",
            mode="inference",
            precision=cast("Precision", published["precision"]),
            batch=size,
            device=published["device"],
            step_s=2 * size**3 / (float(published[str(size)]) * 1e12),
            source=f"{MATMULS_PLACE} {published['place']}, torch {published['torch']}",
        )
        for published in read_csv(MATMULS)
        for size in MATMUL_SIZES
    ]
    return Table(name="matmuls", rows=merged(rows), dropped=[])


def vidur_engine_times(published: Mapping[str, str]) -> Iterator[Timed]:
    """Yield the kernels of a block on one tensor-parallel worker; every worker normalizes whole tokens."""
    shape = VidurShape.of(published)
    for operator in VIDUR_NORMS:
        if published[f"{operator}_ms"]:
            yield vidur_timed(
                published,
                operator,
                name=f"rms_norm_{shape.width}",
                batch=shape.tokens,
                size=shape.tokens * shape.width,
            )
    queries, keys, hidden = shape.queries, shape.keys, shape.hidden
    yield vidur_timed(
        published,
        "attn_rope",
        name=f"rotary_{queries}_{keys}",
        batch=shape.tokens,
        size=shape.tokens * (queries + keys),
    )
    yield vidur_timed(
        published, "mlp_act", name=f"silu_and_mul_{hidden}", batch=shape.tokens, size=shape.tokens * hidden
    )


def vidur_problem(model: str, time: Timed) -> str:
    """Return the reason why an operator of a model is left out, or an empty string."""
    if time.row.step_s < VIDUR_LEAST_S:
        return "shorter than 50 us"
    return VIDUR_LEFT_OUT.get((model, time.operator), "")


def vidur_times(published: Mapping[str, str]) -> Iterator[Timed]:
    """Yield the linear layers and the addition of a block on one tensor-parallel worker.

    A gated MLP computes the gate and the up-projection in one product (vidur/profiling/mlp/mlp_impl.py).
    """
    shape = VidurShape.of(published)
    tokens, width, queries, keys, hidden = shape.tokens, shape.width, shape.queries, shape.keys, shape.hidden
    halves = 2 if published["use_gated_mlp"] == "True" else 1
    linears = {
        "attn_pre_proj": (width, queries + 2 * keys),
        "attn_post_proj": (queries, width),
        "mlp_up_proj": (width, halves * hidden),
        "mlp_down_proj": (hidden, width),
    }
    for operator, (inputs, outputs) in linears.items():
        yield vidur_timed(
            published, operator, name=f"linear_{inputs}_{outputs}", batch=tokens, size=tokens * inputs * outputs
        )
    yield vidur_timed(published, "add", name="add", batch=tokens * width, size=tokens * width)


@dataclass(frozen=True, slots=True, kw_only=True)
class VidurShape:
    """Token count, width, and one tensor-parallel worker's share of the queries, the keys and the hidden layer."""

    tokens: int
    width: int
    queries: int
    keys: int
    hidden: int

    @classmethod
    def of(cls, published: Mapping[str, str]) -> "VidurShape":
        """Return the shape of a published row."""
        names = ("num_tokens", "num_tensor_parallel_workers", "n_embd", "n_expanded_embd", "n_head", "n_kv_head")
        tokens, workers, width, hidden, heads, kv_heads = (int(published[name]) for name in names)
        return cls(
            tokens=tokens,
            width=width,
            queries=width // workers,
            keys=width // heads * kv_heads // workers,
            hidden=hidden // workers,
        )


def vidur_timed(published: Mapping[str, str], operator: str, *, name: str, batch: int, size: int) -> Timed:
    """Return the time of a Vidur operator in fp16."""
    file = "vidur_mlp_ops_fp16.csv.gz"
    row = operator_row(
        name,
        precision="fp16",
        batch=batch,
        device=published["gpu"],
        step_ms=published[f"{operator}_ms"],
        source=f"Vidur {file} @ {VIDUR_COMMIT}",
    )
    return Timed(file=file, operator=operator, size=size, row=row)


def operator_row(name: str, *, precision: Precision, batch: int, device: str, step_ms: str, source: str) -> TimedStep:
    """Return the row of a function in operators.py, given the published device and time."""
    return TimedStep(
        model=f"operators.py::{name}",
        mode="inference",
        precision=precision,
        batch=batch,
        device=DEVICE_IDS[device],
        step_s=float(step_ms) / 1e3,
        source=source,
    )


def sample_of(
    timed: Iterable[Timed], *, counts: Mapping[str, int], overheads: Set[Timed]
) -> tuple[list[TimedStep], list[Dropped]]:
    """Return the rows of at most `counts` shapes of each operator, and the times that were left out."""
    rows: list[TimedStep] = []
    dropped: list[Dropped] = []
    for operator, times in grouped(timed, by=lambda time: time.operator).items():
        steps = drawn_steps(times, count=counts[operator], overheads=overheads)
        drawn, with_overhead = set(steps), set(steps[::OVERHEAD_EVERY])
        for time in times:
            if time.step not in drawn:
                dropped.append(time.dropped("not drawn"))
            elif time in overheads and time.step not in with_overhead:
                dropped.append(time.dropped("mostly launch overhead"))
            else:
                rows.append(time.row)
    return rows, dropped


def overheads_of(timed: Iterable[Timed]) -> set[Timed]:
    """Return the times that are mostly launch overhead."""
    overheads: set[Timed] = set()
    for times in grouped(timed, by=lambda time: (time.operator, time.row.device)).values():
        limit_s = OVERHEAD_RATIO * min(time.row.step_s for time in times)
        overheads.update(time for time in times if time.row.step_s < limit_s)
    return overheads


def drawn_steps(timed: Iterable[Timed], *, count: int, overheads: Set[Timed]) -> list[Step]:
    """Draw steps that were timed on every device, one from each of `count` equal ranges of log(size), smallest first.

    Steps that are mostly launch overhead on every device are not drawn. The choice within a range depends only on the
    names of the steps.
    """
    by_step = grouped(timed, by=lambda time: time.step)
    devices = {time.row.device for times in by_step.values() for time in times}
    log_sizes = {
        step: log(times[0].size)
        for step, times in by_step.items()
        if {time.row.device for time in times} == devices and not all(time in overheads for time in times)
    }
    least, most = min(log_sizes.values()), max(log_sizes.values())
    width = (most - least) / count
    ranges = grouped(log_sizes, by=lambda step: min(int((log_sizes[step] - least) / width), count - 1))
    return [min(ranges[place], key=lambda step: crc32(repr(step).encode())) for place in sorted(ranges)]


def list_aiconfigurator(data: Path) -> Table:
    """Return a sample of the products (m, k) by a weight (n, k) in half that NVIDIA timed inside CUDA graphs."""
    path = data / "measured/aiconfigurator/gemm.csv.gz"
    rows, dropped = [], []
    for published in read_csv(path):
        m, n, k = (published[name] for name in "mnk")
        if published["dtype"] != "bfloat16":
            dropped.append(Dropped(file=path.name, model="gemm", reason=f"precision {published['dtype']}"))
        elif crc32(f"{m} {n} {k}".encode()) % AICONFIGURATOR_EVERY:
            dropped.append(Dropped(file=path.name, model="gemm", reason="not drawn"))
        else:
            row = operator_row(
                f"linear_{k}_{n}",
                precision=AICONFIGURATOR_PRECISIONS[published["ran_as"]],
                batch=int(m),
                device=published["gpu"],
                step_ms=str(float(published["step_s"]) * 1e3),
                source=f"ai-dynamo/aiconfigurator @ {AICONFIGURATOR_COMMIT}, {published['engine']} "
                f"{published['engine_version']}",
            )
            rows.append(row)
    return Table(name="aiconfigurator_matmuls", rows=merged(rows), dropped=dropped)
