"""The published step times kept with the project, and the script that makes rows of them."""

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from math import prod
from pathlib import Path
from types import ModuleType

import pytest
import timm
import torch
import torchvision

from advisor.answers.measurement_file import read_measurements, source_of
from advisor.catalog.find import find_device
from advisor.catalog.overlay import load_catalog
from advisor.predict.capability import gpu_device
from advisor.records.measurement import Measurement, TimedStep
from advisor.workload.input_spec import parse_input_specs
from advisor.workload.sources import load
from advisor.workload.sources.python_file import import_file
from advisor.workload.trace import trace

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "scripts"
MEASURED = ROOT / "tests/data/measured"
OPERATORS = MEASURED / "operators.py"
DATA = ROOT.parent / "shared/data"
FILES = sorted(
    file
    for pattern in (
        "timm_infer_*.csv",
        "timm_train_*.csv",
        "neusight_*.csv",
        "ryujaehun.csv",
        "lamikr.csv",
        "*matmuls.csv",
        "deep_learning_examples.csv",
        "inductor_dashboard.csv",
        "intel.csv",
        "vidur_*.csv",
    )
    for file in MEASURED.glob(pattern)
)
CONFIG_FOLDERS = ("deep_learning_examples", "inductor_dashboard", "intel", "neusight")

LLAMA_ON_FOUR = {
    "gpu": "a40",
    "model": "meta-llama/Llama-2-70b-hf",
    "n_head": "64",
    "n_kv_head": "8",
    "n_embd": "8192",
    "n_expanded_embd": "28672",
    "use_gated_mlp": "True",
    "num_tokens": "16",
    "num_tensor_parallel_workers": "4",
}

with_data = pytest.mark.skipif(not DATA.is_dir(), reason="the data is not part of the project")


@pytest.fixture(scope="module", autouse=True)
def scripts() -> Iterator[None]:
    """The scripts import each other as they do where they are run."""
    sys.path.insert(0, str(SCRIPTS))
    yield
    sys.path.remove(str(SCRIPTS))


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return import_module("list_measurements")


@pytest.fixture(scope="module")
def operators() -> ModuleType:
    return import_module("operator_measurements")


@pytest.fixture(scope="module")
def measurements() -> tuple[Measurement, ...]:
    return tuple(measurement for file in FILES for measurement in read_measurements(file))


def named(measurements: tuple[Measurement, ...], scheme: str) -> set[str]:
    """Return the names after `scheme` in the measurements."""
    models = (measurement.model.partition(":") for measurement in measurements)
    return {reference for found, _, reference in models if found == scheme}


def test_every_source_has_its_rows(measurements: tuple[Measurement, ...]) -> None:
    assert {Path(measurement.file).stem for measurement in measurements} >= {
        "timm_infer_amp_nchw_rtx3090",
        "timm_infer_amp_nchw_rtx4090_compile",
        "timm_infer_amp_nchw_rtx4090_torch29",
        "timm_infer_amp_nchw_rtx5090_torch29_compile",
        "timm_infer_fp32_nchw_i9_10940x_compile",
        "timm_train_amp_nhwc_rtx3090",
        "neusight_e2e",
        "neusight_ops",
        "ryujaehun",
        "lamikr",
        "deep_learning_examples",
        "inductor_dashboard",
        "aiconfigurator_matmuls",
        "intel",
        "vidur_ops",
        "vidur_engine",
        "matmuls",
    }


def test_every_device_has_a_profile_of_that_very_id(measurements: tuple[Measurement, ...]) -> None:
    catalog = load_catalog()
    ids = {measurement.device.partition("@")[0] for measurement in measurements}
    assert {find_device(catalog, device).id for device in ids} == ids


def test_every_net_of_timm_and_torchvision_is_known_to_the_installed_package(
    measurements: tuple[Measurement, ...],
) -> None:
    assert {reference.partition("@")[0] for reference in named(measurements, "timm")} <= set(timm.list_models())
    assert named(measurements, "torchvision") <= set(torchvision.models.list_models())


def test_every_config_lies_beside_the_rows_that_name_it(measurements: tuple[Measurement, ...]) -> None:
    configs = {source_of(row).removeprefix("hf:") for row in measurements if row.model.startswith("hf:")}
    assert configs
    assert configs == {str(file) for folder in CONFIG_FOLDERS for file in (MEASURED / folder).glob("*.json")}


def test_every_input_is_what_the_flag_takes(measurements: tuple[Measurement, ...]) -> None:
    texts = {measurement.input for measurement in measurements}
    assert {" ".join(map(str, parse_input_specs(text.split()))) for text in texts} == texts


def test_no_step_has_two_times_in_a_table(measurements: tuple[Measurement, ...]) -> None:
    steps = Counter(replace(measurement, step_s=0.0, source="", line=0) for measurement in measurements)
    assert [step for step, count in steps.items() if count > 1] == []


def test_a_product_of_large_matrices_takes_its_flop_over_the_published_rate(operators: ModuleType) -> None:
    # Issue 120: an L4 multiplies matrices of 8,192 in fp32 at 10.66 TFLOP/s.
    (row,) = [
        row for row in operators.list_matmuls().rows if (row.device, row.precision, row.batch) == ("l4", "fp32", 8192)
    ]
    assert row.model == "operators.py::linear_8192_8192"
    assert row.step_s == pytest.approx(2 * 8192**3 / 10.66e12)
    assert "issue 120" in row.source


@pytest.mark.slow  # builds every net of timm without its weights
@with_data
def test_the_files_are_what_the_script_writes_byte_for_byte(script: ModuleType, tmp_path: Path) -> None:
    script.write_measurements(DATA, out=tmp_path)
    written = {file.relative_to(tmp_path): file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    configs = (file for folder in CONFIG_FOLDERS for file in MEASURED.glob(f"{folder}/*.json"))
    kept = [*FILES, MEASURED / "dropped.csv", *configs]
    assert written.keys() == {file.relative_to(MEASURED) for file in kept}
    assert [name for name in written if written[name] != (MEASURED / name).read_bytes()] == []


def test_a_row_has_the_torch_of_its_table_and_the_form_of_the_net_that_was_timed(
    measurements: tuple[Measurement, ...],
) -> None:
    def rows(table: str, net: str) -> set[tuple[str, str]]:
        chosen = (row for row in measurements if Path(row.file).stem == f"timm_infer_amp_nchw_{table}")
        return {(row.model, row.torch) for row in chosen if f":{net}@224" in row.model}

    assert rows("rtx4090", "resnet50_gn") == {("timm:resnet50_gn@224+fast-norm", "2.4")}
    assert rows("rtx4090", "mvitv2_tiny") == {("timm:mvitv2_tiny@224+fast-norm", "2.4")}
    assert rows("rtx4090_torch29", "resnet50_gn") == {("timm:resnet50_gn@224+fast-norm", "2.9")}
    assert rows("rtx5090_torch29_compile", "resnet50_gn") == {("timm:resnet50_gn@224", "2.9")}
    assert rows("rtx4090", "repvgg_a0") == {("timm:repvgg_a0@224", "2.4")}
    assert rows("rtx5090_torch29", "repvgg_a0") == {("timm:repvgg_a0@224+reparam", "2.9")}
    assert rows("rtx4090", "vit_base_patch16_224") == {("timm:vit_base_patch16_224@224", "2.4")}
    assert rows("rtx4090_torch29", "vit_base_patch16_224") == {("timm:vit_base_patch16_224@224+fast-norm", "2.9")}


@pytest.mark.slow
@with_data
def test_the_nets_of_timm_have_the_published_number_of_parameters(script: ModuleType) -> None:
    """A name may stand for another net today; only a head of other classes is let pass, 9 % of a net at most."""
    names, renamed = script.timm_names()
    counts: dict[str, tuple[int, float]] = {}
    for path in sorted((DATA / "measured/timm").glob("*.csv")):
        task = "infer" if "infer" in path.name else "train"
        for row in script.read_csv(path):
            name = row["model"] if row["model"] in names else renamed.get(row["model"], "")
            if name in names and row["model"] not in script.TIMM_CHANGED and "reparam" not in script.timm_forms(name):
                counts[name] = (int(row[f"{task}_img_size"]), float(row["param_count"]) * 1e6)
    assert {name: count for name, (size, count) in counts.items() if not is_near(name, size, count)} == {}


def is_near(name: str, size: int, count: float) -> bool:
    """Return True if the net that timm builds today has about `count` parameters."""
    with torch.device("meta"):
        try:
            model = timm.create_model(name, img_size=size)
        except TypeError:  # takes any size, and no such argument
            model = timm.create_model(name)
    return abs(sum(parameter.numel() for parameter in model.parameters()) / count - 1) < 0.1


def a_row(*, step_s: float, batch: int = 1) -> TimedStep:
    return TimedStep(
        model="timm:resnet18@224",
        mode="training",
        precision="amp-fp16",
        batch=batch,
        device="rtx-3090",
        step_s=step_s,
        source="a table",
    )


def test_both_builds_of_torch_on_one_gpu_are_steps_of_their_own(measurements: tuple[Measurement, ...]) -> None:
    found = {
        (row.torch, row.step_s)
        for row in measurements
        if (Path(row.file).stem, row.device, row.model) == ("lamikr", "radeon-rx-7700s", "torchvision:resnet18")
        and (row.mode, row.precision) == ("inference", "fp32")
    }
    assert {torch for torch, _ in found} == {"", "2.3"}
    assert len(found) == 2


def test_default_fp32_is_tf32_in_convolutions_on_a_gpu_that_has_it(measurements: tuple[Measurement, ...]) -> None:
    rows = [row for row in measurements if row.file.endswith("lamikr.csv") and row.precision != "fp16"]
    precisions = {row.device: row.precision for row in rows}
    assert {device for device, precision in precisions.items() if precision == "cudnn-tf32"} == {"rtx-4060-ti"}


def test_a_sampled_shape_is_the_same_on_every_gpu_that_timed_it(measurements: tuple[Measurement, ...]) -> None:
    """The hash has no GPU in it: three GPUs share 1,478 of 1,500 shapes of the source."""
    shapes: dict[str, set[tuple[str, int]]] = {}
    for row in measurements:
        if row.file.endswith("aiconfigurator_matmuls.csv"):
            shapes.setdefault(row.device, set()).add((row.model, row.batch))
    assert len(shapes["b200"] & shapes["l40s"] & shapes["h100-sxm5-80gb"]) > 0.95 * len(shapes["b200"])
    assert sum(map(len, shapes.values())) <= 1500


def test_rows_of_one_step_become_one_with_their_median(script: ModuleType) -> None:
    rows = [a_row(step_s=time_s) for time_s in (0.3, 0.1, 0.9)]
    other = a_row(step_s=0.5, batch=2)
    (merged, kept) = script.merged([*rows, other])
    assert (merged.step_s, merged.source) == (0.3, "a table, median of 3 rows")
    assert kept == other


@pytest.mark.slow
@with_data
def test_a_training_table_of_timm_gives_renamed_nets_with_scores_that_travel_through_memory(script: ModuleType) -> None:
    names, renamed = script.timm_names()
    path = DATA / "measured/timm/benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv"
    table = script.list_timm(path, names=names, renamed=renamed)
    assert table.name == "timm_train_amp_nhwc_rtx3090"
    models = {row.model for row in table.rows}
    assert "timm:resnext101_32x16d@224" in models  # ig_resnext101_32x16d, which timm itself sends to 32x8d
    assert "ig_resnext101_32x48d" in {row.model for row in table.dropped}
    assert {(row.mode, row.layout, row.attention) for row in table.rows} == {("training", "nhwc", "eager")}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ResNet18", ("torchvision:resnet18", "")),
        ("BERT large QNLI", ("hf:intel/bert_large.json", "input_ids=128:int64 attention_mask=128:int64")),
        ("DistilBERT base MRPC FX", ("hf:intel/distilbert_base.json", "input_ids=128:int64 attention_mask=128:int64")),
        ("BERT large SQuAD", ("", "")),
        ("Wave2Vec2", ("", "")),
    ],
)
def test_a_name_of_intels_is_a_source_only_where_net_and_length_are_certain(
    script: ModuleType, name: str, expected: tuple[str, str]
) -> None:
    assert script.intel_model(name) == expected


def test_a_summed_rate_is_divided_by_its_instances(measurements: tuple[Measurement, ...]) -> None:
    # Ten instances did 61.09 samples/s of ResNeXt101_32x8d at batch 1: each took 10 / 61.09 = 0.1636929 s for one.
    (row,) = (row for row in measurements if row.file.endswith("intel.csv") and "resnext101" in row.model)
    assert row.step_s == pytest.approx(0.1636929, rel=1e-6)


@pytest.mark.parametrize(
    ("device", "model", "precision", "step_s"),
    [
        ("b200", "bert_large", "fp16", 1 / 2.17),  # whole steps, without the first
        (
            "rtx-a6000",
            "bert_large",
            "fp16",
            93.94434666633606 / 101,
        ),  # 101 steps in 93.9 s, published as 68 sequences/s
        ("b200", "waveglow", "tf32", 0.797),  # 88 segments of 8,000 values
        ("a10", "resnet50", "tf32", 224 / 349),
    ],
)
def test_the_rate_of_an_example_becomes_the_time_of_its_step(
    measurements: tuple[Measurement, ...], device: str, model: str, precision: str, step_s: float
) -> None:
    (row,) = (
        row
        for row in measurements
        if row.file.endswith("deep_learning_examples.csv")
        and (row.device, row.precision) == (device, precision)
        and f"{model}." in f"{row.model.replace('@', '.')}"
    )
    assert row.step_s == pytest.approx(step_s, rel=5e-3)  # rates are published in whole numbers


def test_an_example_has_the_parameters_that_its_run_printed() -> None:
    loaded = load(
        f"hf:{MEASURED}/deep_learning_examples/bert_base.json", mode="training", specs=("input_ids=384:int64",)
    )
    pooler = 768 * 768 + 768  # which gets no gradient, and transformers leaves out
    assert sum(one.numel() for one in loaded.model.parameters()) == 109_488_386 - pooler


def test_times_in_milliseconds_become_seconds_of_the_whole_batch(measurements: tuple[Measurement, ...]) -> None:
    # 10.761 ms for 1,024 images.
    (row,) = (row for row in measurements if row.model == "timm:test_byobnet@160" and row.layout == "nhwc")
    assert (row.batch, row.step_s) == (1024, 0.010761)


# Single operators.


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("linear_3_5", (4, 5)),
        ("bmm_2_3_5", (4, 2, 3)),  # (2, 5) by (5, 3)
        ("conv_3_5_7", (4, 5, 7, 7)),
        ("softmax_3", (4, 3)),
        ("layer_norm_3", (4, 3)),
        ("add", (4,)),
        ("mul_number", (4,)),
        ("pow", (4,)),
        ("gelu", (4,)),
    ],
)
def test_an_operator_gives_what_its_name_says(name: str, shape: tuple[int, ...]) -> None:
    module = import_file(OPERATORS)
    assert getattr(module, name)()(module.example_inputs(4)).shape == shape


def test_every_named_operator_can_be_built(measurements: tuple[Measurement, ...]) -> None:
    module = import_file(OPERATORS)
    names = {measurement.model.partition("::")[2] for measurement in measurements if "::" in measurement.model}
    with torch.device("meta"):
        assert len(names) > 300
        assert [name for name in names if not isinstance(getattr(module, name)(), torch.nn.Module)] == []


def test_the_step_of_an_operator_is_that_operator_and_copies_nothing_to_the_device() -> None:
    loaded = load(f"{OPERATORS}::linear_3_5", mode="inference", specs=())
    workload = trace(loaded, mode="inference", batch=None)
    assert [row.op for row in workload.rows if row.family != "creation"] == ["aten.mm"]
    (given,) = workload.inputs
    assert given.shape[-1] == 0
    assert workload.batch_is_affine


def test_no_matrix_product_was_faster_than_the_published_peak(measurements: tuple[Measurement, ...]) -> None:
    """A wrong width, or a wrong part of a tensor-parallel layer, would show itself here.

    Owners' cards run above their rated clock: an RTX 2070 at 1.06 of its peak in fp32, an RTX 5090 at 1.17 in TF32.
    """
    catalog = load_catalog()
    for row in measurements:
        if not row.model.startswith(("operators.py::linear", "operators.py::bmm")):
            continue
        device = gpu_device(find_device(catalog, row.device))
        peak = device.peak_flops_per_s.get(row.precision) or device.peak_flops_per_s["fp32"]
        sizes = [int(size) for size in row.model.partition("::")[2].split("_")[1:]]
        reached = 2 * row.batch * prod(sizes) / row.step_s / peak
        assert reached < (1.2 if row.file.endswith("matmuls.csv") else 1.0), row


def a_time(operators: ModuleType, name: str, *, device: str, step_s: float, size: int) -> object:
    row = TimedStep(
        model=f"operators.py::{name}",
        mode="inference",
        precision="fp32",
        batch=1,
        device=device,
        step_s=step_s,
        source="a table",
    )
    return operators.Timed(file="a.csv", operator="softmax", size=size, row=row)


def test_a_shape_is_drawn_of_each_range_of_sizes_if_every_device_ran_it(operators: ModuleType) -> None:
    # Two ranges of log(size) over 1 to 100: up to 10 and above.
    times = [
        *(a_time(operators, "softmax_1", device=device, step_s=1.0, size=1) for device in ("t4", "p4")),
        a_time(operators, "softmax_2", device="t4", step_s=1.0, size=2),
        *(a_time(operators, "softmax_100", device=device, step_s=1.0, size=100) for device in ("t4", "p4")),
    ]
    drawn = operators.drawn_steps(times, count=2, overheads=frozenset())
    assert drawn == [("operators.py::softmax_1", 1), ("operators.py::softmax_100", 1)]


def test_a_time_below_twice_the_least_of_its_device_is_overhead(operators: ModuleType) -> None:
    least, near, far = (
        a_time(operators, f"softmax_{size}", device="t4", step_s=step_s, size=size)
        for size, step_s in ((1, 1.0), (2, 1.9), (3, 2.0))
    )
    other = a_time(operators, "softmax_4", device="p4", step_s=0.5, size=4)
    assert operators.overheads_of([least, near, far, other]) == {least, near, other}


def test_the_layers_of_a_tensor_parallel_worker_have_its_part_of_the_widths(operators: ModuleType) -> None:
    # Llama-2-70b on four workers. Heads of 8192 / 64 = 128; queries, keys and values: 128 x (64 + 8 + 8) / 4 = 2560.
    # 8192 / 4 = 2048 of the attention's output; two halves of 28672 / 4 = 7168 up, one of them down.
    published = LLAMA_ON_FOUR | dict.fromkeys((f"{operator}_ms" for operator in operators.VIDUR_SHAPE_COUNTS), "0.25")
    times = list(operators.vidur_times(published))
    assert {time.operator: (time.row.model.partition("::")[2], time.row.batch) for time in times} == {
        "attn_pre_proj": ("linear_8192_2560", 16),
        "attn_post_proj": ("linear_2048_8192", 16),
        "mlp_up_proj": ("linear_8192_14336", 16),
        "mlp_down_proj": ("linear_7168_8192", 16),
        "add": ("add", 131072),
    }
    assert {time.row.step_s for time in times} == {0.00025}


def test_an_engines_kernels_have_the_widths_of_a_tensor_parallel_worker(operators: ModuleType) -> None:
    # Llama-2-70b on four workers: 8192 / 4 = 2048 of the queries, 128 x 8 / 4 = 256 of the keys, 28672 / 4 = 7168
    # of a half of the hidden layer. Norms are of whole tokens.
    published = LLAMA_ON_FOUR | dict.fromkeys((f"{operator}_ms" for operator in operators.VIDUR_ENGINE_COUNTS), "0.006")
    times = list(operators.vidur_engine_times(published))
    assert {time.operator: time.row.model.partition("::")[2] for time in times} == {
        "input_layernorm": "rms_norm_8192",
        "post_attention_layernorm": "rms_norm_8192",
        "attn_rope": "rotary_2048_256",
        "mlp_act": "silu_and_mul_7168",
    }
    assert {time.row.batch for time in times} == {16}
