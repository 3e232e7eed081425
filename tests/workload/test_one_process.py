"""Code for several processes runs as one of them."""

import os
import sys
from textwrap import dedent

import pytest
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from advisor.workload.cuda_redirect import cuda_redirected
from advisor.workload.one_process import one_process
from advisor.workload.script_trace import trace_script
from tests.says import assert_says
from tests.workload.tracing import op_counts, rows_of

HEAD = """
import os
import torch
from torch import distributed, nn

def train(model):
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(1000):
        loss = model(torch.randn(4, 8, device="cuda")).mean()
        distributed.all_reduce(loss.detach())
        loss.backward()
        optimizer.step()

def net():
    return nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4))
"""


@pytest.fixture(autouse=True)
def _as_in_the_child(monkeypatch):
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    with cuda_redirected():
        yield


@pytest.fixture
def traced(tmp_path):
    def trace(body):
        path = tmp_path / "script.py"
        path.write_text(HEAD + dedent(body), encoding="utf-8")
        return trace_script(path, [])

    return trace


def test_a_script_for_torchrun_runs_as_one_process_and_its_model_keeps_its_names(traced):
    workload = traced("""
        rank = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(rank)
        distributed.init_process_group("nccl")
        model = nn.SyncBatchNorm.convert_sync_batchnorm(net().cuda(rank))
        train(nn.parallel.DistributedDataParallel(model, device_ids=[rank]))
        """)
    assert (workload.mode, workload.method) == ("training", "symbolic")
    assert {row.module for row in workload.rows if row.op == "aten.addmm"} == {"0", "1"}
    assert not workload.unknown_ops
    assert "LOCAL_RANK" not in os.environ
    assert not distributed.is_initialized()


def test_a_wrapped_model_keeps_its_names_in_inference_too(traced):
    workload = traced("""
        with torch.no_grad():
            nn.DataParallel(net())(torch.randn(4, 8))
        """)
    assert workload.mode == "inference"
    assert {row.module for row in workload.rows} == {"0", "1"}


def test_the_processes_that_a_script_starts_are_noted(traced):
    workload = traced("""
        def main(rank, count):
            distributed.init_process_group("nccl", init_method="tcp://10.0.0.1:1", rank=rank, world_size=count)
            assert distributed.get_world_size() == 1
            train(nn.parallel.DistributedDataParallel(net()))

        torch.multiprocessing.spawn(main, args=(8,), nprocs=8)
        """)
    [note] = [note for note in workload.assumptions if "processes" in note]
    assert_says(note, "8 processes", "script.py")


@pytest.mark.parametrize(
    "wrapped",
    [
        """
        from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
        model = nn.Sequential(*(FullyShardedDataParallel(layer) for layer in net()))
        model = FullyShardedDataParallel(model, mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))
        """,
        """
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        model = fully_shard(net(), mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
        model.set_requires_gradient_sync(True)
        """,
    ],
)
def test_fsdp_leaves_the_parameters_whole_and_its_precision_is_that_of_autocast(traced, wrapped):
    workload = traced(f"distributed.init_process_group()\n{dedent(wrapped)}train(model)\n")
    assert workload.script is not None
    assert (workload.script.gpu_precision, workload.script.cpu_precision) == ("amp-bf16", "fp32")
    assert workload.parameter_count == 8 * 16 + 16 + 16 * 4 + 4
    [row] = rows_of(workload, "optimizer")
    assert row.attributes["element_count"] == workload.parameter_count


def test_gradients_of_micro_batches_are_accumulated_without_a_group(traced):
    workload = traced("""
        model = nn.parallel.DistributedDataParallel(net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(1000):
            with model.no_sync():
                model(torch.randn(4, 8)).mean().backward()
            model(torch.randn(4, 8)).mean().backward()
            optimizer.step()
        """)
    assert workload.script is not None
    assert (workload.batch, workload.script.passes) == (8, 2)
    assert op_counts(workload, phase="forward")["aten.addmm"] == 4


def test_torchs_own_classes_and_functions_are_put_back():
    model, before = nn.Linear(2, 2), (DistributedDataParallel.__init__, distributed.init_process_group)
    with one_process():
        distributed.init_process_group("nccl")
        assert distributed.get_world_size() == 1
        assert DistributedDataParallel(model).module is model
        assert distributed.all_reduce(torch.ones(1), async_op=True).wait()
    assert (DistributedDataParallel.__init__, distributed.init_process_group) == before
    assert not distributed.is_initialized()
