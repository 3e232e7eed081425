"""What a script sets for itself is seen in its first step."""

import sys
from pathlib import Path
from textwrap import dedent

import pytest
import torch

from advisor.records.script import Script
from advisor.records.workload import Mode, Workload
from advisor.workload.cuda_redirect import cuda_redirected
from advisor.workload.run_script import NoTrainingStepError
from advisor.workload.script_trace import trace_script
from tests.workload.tracing import op_counts, tf32_settings_kept

HEAD = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
HEAD_LINES = HEAD.count("\n")


@pytest.fixture(autouse=True)
def _as_in_the_child(monkeypatch):
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    with cuda_redirected():
        yield


@pytest.fixture
def traced(tmp_path: Path):
    def trace(body: str, *, mode: Mode | None = None) -> Workload:
        path = tmp_path / "script.py"
        path.write_text(HEAD + dedent(body), encoding="utf-8")
        return trace_script(path, [], mode=mode)

    return trace


def script_of(workload: Workload) -> Script:
    assert workload.script is not None
    return workload.script


TRAINING = """\
for _ in range(1000):
    {context}
        loss = {model}(torch.randn(4, 8)).mean()
    loss.backward()
    optimizer.step()
raise AssertionError("the script went on after its first step")
"""


@pytest.mark.parametrize(
    ("context", "gpu", "cpu"),
    [
        ("if True:", "cudnn-tf32", "fp32"),
        ("with torch.autocast('cuda', dtype=torch.bfloat16):", "amp-bf16", "fp32"),
        ("with torch.autocast('cuda'):", "amp-fp16", "fp32"),  # torch's default dtype there
        ("with torch.cuda.amp.autocast():", "amp-fp16", "fp32"),
        ("with torch.autocast('cpu'):", "amp-fp16", "amp-bf16"),  # the device that a script chooses without a GPU
        ("with torch.autocast('cpu', dtype=torch.bfloat16):", "amp-bf16", "amp-bf16"),
        ("with torch.autocast('cuda', dtype=torch.bfloat16, enabled=False):", "cudnn-tf32", "fp32"),
        ("with torch.autocast('cuda'), torch.autocast('cuda', enabled=False):", "cudnn-tf32", "fp32"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*torch.cuda.amp.autocast.*:FutureWarning")
def test_autocast_is_seen_and_traced_in_the_models_own_precision(traced, context: str, gpu: str, cpu: str) -> None:
    workload = traced(TRAINING.format(context=context, model="model"))
    assert (script_of(workload).gpu_precision, script_of(workload).cpu_precision) == (gpu, cpu)
    assert {operand.dtype for row in workload.rows for operand in row.inputs} == {"float32"}
    assert not torch.is_autocast_enabled("cpu")


def test_autocast_inside_the_model_is_seen_with_its_line(traced) -> None:
    workload = traced("""\
        class Cast(Net):
            def forward(self, x):
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    return super().forward(x)

        cast = Cast()
        with torch.no_grad():
            cast(torch.randn(4, 8))
        """, mode="inference")  # fmt: skip
    assert script_of(workload).gpu_precision == "amp-bf16"
    assert f"script.py:{HEAD_LINES + 3})" in " ".join(workload.assumptions)


def test_autocast_that_is_off_without_a_gpu_is_doubted(traced) -> None:
    found = traced(TRAINING.format(context="with torch.autocast('cuda', enabled=False):", model="model"))
    plain = traced(TRAINING.format(context="if True:", model="model"))
    assert ["--precision amp-bf16" in one.script.unused_autocast for one in (found, plain)] == [True, False]


def test_autocast_that_a_library_switches_off_says_nothing_about_the_script(traced) -> None:
    workload = traced("""\
        from torch.utils.checkpoint import checkpoint
        for _ in range(1000):
            checkpoint(model, torch.randn(4, 8), use_reentrant=False).mean().backward()
            optimizer.step()
        """)  # fmt: skip
    assert workload.script.unused_autocast == ""


def test_parameters_of_several_dtypes_are_named(traced) -> None:
    workload = traced("""\
        class Mixed(Net):
            def forward(self, x):
                return self.second(self.first(x.bfloat16()).float())

        mixed = Mixed()
        mixed.first.bfloat16()
        with torch.no_grad():
            mixed(torch.randn(4, 8))
        """, mode="inference")  # fmt: skip
    assert script_of(workload).gpu_precision == "cudnn-tf32"
    assert any("bfloat16 and float32" in note for note in workload.assumptions)


def test_torchs_newer_settings_for_tf32_are_seen_too(traced) -> None:
    if not hasattr(torch.backends, "fp32_precision"):
        pytest.skip("torch has them since 2.9")
    body = "torch.backends.fp32_precision = {!r}\nwith torch.no_grad():\n    model(torch.randn(4, 8))\n"
    with tf32_settings_kept(of_cudnn="none"):
        seen = [script_of(traced(body.format(choice), mode="inference")).gpu_precision for choice in ("tf32", "ieee")]
    assert seen == ["tf32", "fp32"]


def test_a_model_in_half_and_settings_for_tf32_are_seen(traced, monkeypatch) -> None:
    body = "with torch.no_grad():\n    {}\n    model{}(torch.randn(4, 8{}))"
    half = traced(body.format("pass", ".bfloat16()", ", dtype=torch.bfloat16"), mode="inference")
    assert (script_of(half).gpu_precision, script_of(half).cpu_precision) == ("bf16", "bf16")
    before = torch.get_float32_matmul_precision()
    try:
        tf32 = traced(body.format("torch.set_float32_matmul_precision('high')", "", ""), mode="inference")
    finally:
        torch.set_float32_matmul_precision(before)
    assert (script_of(tf32).gpu_precision, script_of(tf32).cpu_precision) == ("tf32", "fp32")


@pytest.mark.parametrize(
    ("before", "called", "mode"),
    [
        ("", "model", "eager"),
        ("model = torch.compile(model)", "model", "compile"),
        ("model.compile(mode='reduce-overhead')", "model", "compile"),
        ("model.first = torch.compile(model.first, dynamic=False)", "model", "compile"),
        ("model = torch.compile(model, disable=True)", "model", "eager"),
        ("model = torch.compile(model, backend='eager')", "model", "eager"),
        ("other = torch.compile(nn.Linear(2, 2))", "model", "eager"),
        ("@torch.compile\ndef run(x):\n    return model(x)", "run", "compile"),
        ("@torch.compile(fullgraph=True)\ndef run(x):\n    return model(x)", "run", "compile"),
        ("@torch.compile\ndef unused(x):\n    return model(x)", "model", "eager"),
        (
            "import warnings\n"
            "from torch.nn.attention.flex_attention import flex_attention\n"
            "warnings.simplefilter('ignore')\n"
            "flex_attention = torch.compile(flex_attention)\n"
            "flex_attention(*torch.zeros(3, 1, 1, 16, 16))",
            "model",
            "eager",
        ),
    ],
)
def test_torch_compile_is_seen(traced, before: str, called: str, mode: str) -> None:
    workload = traced(f"{before}\n" + TRAINING.format(context="if True:", model=called))
    assert script_of(workload).compile == mode
    assert op_counts(workload)["aten.addmm"] == 2


def test_scaled_and_accumulated_gradients_are_one_step(traced) -> None:
    workload = traced("""\
        scaler = torch.amp.GradScaler("cpu")
        for index in range(1000):
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(torch.randn(4, 8)).mean() / 3
            scaler.scale(loss).backward()
            if (index + 1) % 3 == 0:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
        """)  # fmt: skip
    assert (workload.mode, workload.batch, script_of(workload).passes) == ("training", 3 * 4, 3)
    assert op_counts(workload)["aten.addmm"] == 3 * 2
    assert sum(row.op == "optimizer" for row in workload.rows) == 1


def test_a_loader_is_timed_on_one_thread_and_keeps_its_workers(traced) -> None:
    workload = traced("""\
        import time
        class Slow(TensorDataset):
            def __getitem__(self, index):
                time.sleep(0.002)
                return super().__getitem__(index)

        loader = DataLoader(Slow(torch.rand(64, 8)), batch_size=4, num_workers=1)
        for (x,) in loader:
            assert loader.num_workers == 1
            model(x).mean().backward()
            optimizer.step()
        """)  # fmt: skip
    script = script_of(workload)
    assert script.worker_count == 1
    assert script.loader_s_per_sample is not None
    assert 0.002 <= script.loader_s_per_sample < 0.2  # a sample sleeps 2 ms; a busy machine may take longer


def test_the_loader_is_the_one_whose_batch_the_step_takes(traced) -> None:
    workload = traced("""\
        train = iter(DataLoader(TensorDataset(torch.rand(64, 8)), batch_size=4, num_workers=1))
        with torch.no_grad():
            for (x,) in DataLoader(TensorDataset(torch.rand(8, 8)), batch_size=8):
                model(x)
        (x,) = next(train)
        model(x).mean().backward()
        optimizer.step()
        """)  # fmt: skip
    assert script_of(workload).worker_count == 1
    assert script_of(workload).loader_s_per_sample is not None


def test_a_loader_that_cannot_be_read_again_is_not_timed(traced) -> None:
    workload = traced("""\
        from torch.utils.data import IterableDataset
        class Stream(IterableDataset):
            def __iter__(self):
                yield from torch.rand(8, 8)

        for x in DataLoader(Stream(), batch_size=4):
            model(x).mean().backward()
            optimizer.step()
        """)  # fmt: skip
    assert (script_of(workload).worker_count, script_of(workload).loader_s_per_sample) == (0, None)


@pytest.mark.parametrize("context", ["torch.no_grad()", "torch.inference_mode()"])
def test_a_script_that_only_evaluates_is_inference_though_it_has_an_optimizer(traced, context: str) -> None:
    body = f"with {context}:\n    for _ in range(3):\n        print(model(torch.randn(5, 8)).shape)\n"
    workload = traced(body)
    assert (workload.mode, workload.batch, workload.optimizer) == ("inference", 5, None)
    with pytest.raises(NoTrainingStepError):
        traced(body, mode="training")


def test_channels_last_images_are_seen(traced) -> None:
    workload = traced("""\
        conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        with torch.no_grad():
            conv(torch.rand(2, 3, 8, 8).to(memory_format=torch.channels_last))
        """, mode="inference")  # fmt: skip
    assert script_of(workload).layout == "nhwc"


def test_what_a_script_raises_in_autocast_is_its_own(traced) -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        traced("with torch.autocast('cuda'):\n    model(torch.randn(4, 9)).mean().backward()\n")
    with pytest.raises(TypeError):
        traced("torch.amp.GradScaler(scale=2)\nmodel(torch.randn(4, 8)).mean().backward()\n")
