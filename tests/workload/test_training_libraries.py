"""Scripts that train with a library are seen as it would run on a GPU."""

import sys
from textwrap import dedent

import pytest

from advisor.workload.cuda_redirect import cuda_redirected
from advisor.workload.script_trace import trace_script
from advisor.workload.sources.installed import declare_torchvision_operators
from tests.says import assert_says
from tests.workload.tracing import op_counts, rows_of, tf32_settings_kept

HEAD = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def net():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))

def loader():
    data = TensorDataset(torch.zeros(64, 8), torch.zeros(64, dtype=torch.int64))
    return DataLoader(data, batch_size=4, num_workers=2)
"""


@pytest.fixture(autouse=True)
def _as_in_the_child(monkeypatch):
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    declare_torchvision_operators()
    with cuda_redirected():
        yield


@pytest.fixture
def traced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def trace(body):
        path = tmp_path / "script.py"
        path.write_text(HEAD + dedent(body), encoding="utf-8")
        return trace_script(path, [])

    return trace


# -- Accelerate -----------------------------------------------------------------------------------------------------

ACCELERATED = """
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState

AcceleratorState._reset_state(reset_partial_state=True)
GradientState._reset_state()
accelerator = Accelerator({settings})
model = net()
model, optimizer, batches = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), loader())
for x, y in batches:
    with accelerator.accumulate(model):
        accelerator.backward(nn.functional.cross_entropy(model(x), y))
        optimizer.step()
        optimizer.zero_grad()
raise AssertionError("the script went on after its first step")
"""


@pytest.mark.parametrize(
    ("settings", "gpu", "cpu"),
    [
        ("", "cudnn-tf32", "fp32"),
        ("mixed_precision='bf16'", "amp-bf16", "amp-bf16"),
        ("mixed_precision='fp16'", "amp-fp16", "fp32"),  # Accelerate has no fp16 on CPUs
    ],
)
def test_accelerate_has_the_precision_that_it_was_told(traced, settings, gpu, cpu):
    pytest.importorskip("accelerate")
    workload = traced(ACCELERATED.format(settings=settings))
    assert workload.script is not None
    assert (workload.script.gpu_precision, workload.script.cpu_precision) == (gpu, cpu)
    assert (workload.mode, workload.batch, workload.script.worker_count) == ("training", 4, 2)
    assert workload.script.loader_s_per_sample is not None
    assert {row.module for row in workload.rows if row.op == "aten.addmm"} == {"0", "2"}


def test_accelerate_accumulates_the_gradients_of_one_step(traced):
    pytest.importorskip("accelerate")
    workload = traced(ACCELERATED.format(settings="gradient_accumulation_steps=3"))
    assert workload.script is not None
    assert (workload.batch, workload.script.passes) == (12, 3)
    assert op_counts(workload)["aten.addmm"] == 6


# -- transformers ---------------------------------------------------------------------------------------------------

TRAINER = """
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

config = BertConfig(
    vocab_size=100, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128,
    max_position_embeddings=16,
)
model = BertForSequenceClassification(config)
{change}
rows = [{{"input_ids": torch.ones(16, dtype=torch.int64), "labels": torch.tensor(1)}} for _ in range(64)]
arguments = TrainingArguments(
    "out", per_device_train_batch_size=4, gradient_accumulation_steps=2, dataloader_num_workers=1, report_to=[],
    disable_tqdm=True, {settings}
)
Trainer(model=model, args=arguments, train_dataset=rows).train()
raise AssertionError("the script went on after its first step")
"""


def trained(traced, settings, *, change=""):
    """What Trainer with these arguments does in its first step."""
    import_utils = pytest.importorskip("transformers.utils.import_utils")
    import_utils.enable_tf32.cache_clear()  # it remembers that it has done so
    accelerate = pytest.importorskip("accelerate")
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    return traced(TRAINER.format(settings=settings, change=change))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "gpu", "mode", "samples"),
    [
        ("", "cudnn-tf32", "eager", 3 * 64),  # three epochs are the default
        ("bf16=True, num_train_epochs=0.5", "amp-bf16", "eager", 32),
        ("fp16=True, torch_compile=True, max_steps=10", "amp-fp16", "compile", 10 * 4 * 2),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_trainer_runs_as_its_arguments_say(traced, settings, gpu, mode, samples):
    with tf32_settings_kept():
        workload = trained(traced, settings)
    assert workload.script is not None
    assert (workload.script.gpu_precision, workload.script.compile) == (gpu, mode)
    assert (workload.mode, workload.method, workload.batch) == ("training", "symbolic", 8)
    assert (workload.script.passes, workload.script.worker_count, workload.script.sample_count) == (2, 1, samples)
    assert f"the script trains {samples} samples" in " ".join(workload.assumptions)
    assert workload.optimizer == "AdamW"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_trainer_has_its_tf32_checkpoints_and_optimizer_without_their_hardware_and_packages(traced):
    with tf32_settings_kept():
        workload = trained(traced, "tf32=True, gradient_checkpointing=True, optim='paged_adamw_8bit'")
    assert workload.script is not None
    assert (workload.script.gpu_precision, workload.optimizer) == ("tf32", "PagedAdamW8bit")
    assert any(note.startswith("torch.utils.checkpoint: bert.encoder.layer.*") for note in workload.assumptions)
    assert not any("autocast, but" in note for note in workload.assumptions)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_adapter_is_trained_in_fp32_on_a_base_in_bf16(traced):
    pytest.importorskip("peft")
    workload = trained(
        traced,
        "",
        change="""
from peft import LoraConfig, get_peft_model
model = get_peft_model(model.to(torch.bfloat16), LoraConfig(r=4, target_modules=["query", "value"]))
""",
    )
    [row] = rows_of(workload, "optimizer")
    # 2 layers x query and value x (64 x 4 + 4 x 64), with two moments of 4 bytes and a step count of 4 a tensor.
    assert row.attributes["element_count"] == 2 * 2 * 2 * 64 * 4
    assert row.attributes["state_bytes_per_element"] == pytest.approx(8 + 8 * 4 / 2048)
    assert_says(" ".join(workload.assumptions), "bfloat16 and float32")
    assert any(row.module.endswith("query.lora_A.default") for row in workload.rows)


# -- Lightning ------------------------------------------------------------------------------------------------------

MODULE = """
class Classifier({package}.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = net()

    def training_step(self, batch, batch_idx):
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

"""
STAND_IN = """
class Trainer:
    max_epochs, max_steps, accumulate_grad_batches = 5, -1, 1

    def __init__(self, *, accelerator="auto", devices="auto", num_nodes=1, strategy="auto", precision=None):
        assert (accelerator, devices, num_nodes, strategy) == ("cpu", 1, 1, "auto")

    def fit(self, module, loader):
        optimizer = module.configure_optimizers()
        try:
            for index, batch in enumerate(loader):
                module.training_step(batch, index).backward()
                optimizer.step()
        except BaseException:
            raise RuntimeError("the trainer fails to clean up")
"""
FIT = "{package}.Trainer({settings}).fit(Classifier(), loader())"


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """A package `pytorch_lightning` with as much of Lightning as the script uses."""
    package = tmp_path / "pytorch_lightning"
    (package / "trainer").mkdir(parents=True)
    (package / "core").mkdir()
    (package / "trainer" / "__init__.py").touch()
    (package / "core" / "__init__.py").touch()
    (package / "trainer" / "trainer.py").write_text(STAND_IN)
    log = "def log(self, *_): raise AssertionError('metrics are kept in real tensors')"
    module = f"from torch import nn\nclass LightningModule(nn.Module):\n    {log}\n    log_dict = log\n"
    (package / "core" / "module.py").write_text(module)
    (package / "__init__.py").write_text(
        "from .core.module import LightningModule\nfrom .trainer.trainer import Trainer\n"
    )
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in [name for name in sys.modules if name.startswith("pytorch_lightning") and name not in before]:
        del sys.modules[name]


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize(
    ("precision", "gpu"),
    [("None", "cudnn-tf32"), ("16", "amp-fp16"), ("'16-mixed'", "amp-fp16"), ("'bf16-mixed'", "amp-bf16")],
)
def test_lightnings_trainer_runs_on_one_cpu_in_the_precision_of_its_gpus(traced, precision, gpu):
    settings = f"accelerator='gpu', devices=4, num_nodes=2, strategy='ddp', precision={precision}"
    package = "pytorch_lightning"
    workload = traced(f"import {package}\n{(MODULE + FIT).format(package=package, settings=settings)}")
    assert workload.script is not None
    assert workload.script.gpu_precision == gpu
    assert (workload.mode, workload.batch, workload.optimizer) == ("training", 4, "SGD")
    assert {row.module for row in workload.rows if row.op == "aten.addmm"} == {"net.0", "net.2"}
    [note] = [note for note in workload.assumptions if "processes" in note]
    assert_says(note, "8 processes")
    assert workload.script.sample_count == 5 * 64


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_lightning_itself_does(traced):
    pytest.importorskip("lightning")
    package = "lightning"
    settings = (
        "accelerator='gpu', devices=2, precision='16-mixed', accumulate_grad_batches=3, logger=False, max_steps=7"
    )
    workload = traced(f"import {package}\n{(MODULE + FIT).format(package=package, settings=settings)}")
    assert workload.script is not None
    assert (workload.script.gpu_precision, workload.script.cpu_precision) == ("amp-fp16", "amp-bf16")
    assert (workload.method, workload.batch, workload.script.passes) == ("symbolic", 12, 3)
    assert workload.script.sample_count == 7 * 12
    assert {row.module for row in workload.rows if row.op == "aten.addmm"} == {"net.0", "net.2"}


FABRIC = """
from lightning.fabric import Fabric

fabric = Fabric(accelerator="cuda", devices=8, precision="bf16-mixed", strategy="ddp")
fabric.launch()
model = net()
model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
for x, y in fabric.setup_dataloaders(loader()):
    fabric.backward(nn.functional.cross_entropy(model(x), y))
    optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_model_of_fabric_keeps_its_names(traced):
    pytest.importorskip("lightning")
    workload = traced(FABRIC)
    assert workload.script is not None
    assert workload.script.gpu_precision == "amp-bf16"
    assert {row.module for row in workload.rows if row.op == "aten.addmm"} == {"0", "2"}
    assert op_counts(workload, phase="forward")["aten.addmm"] == 2
