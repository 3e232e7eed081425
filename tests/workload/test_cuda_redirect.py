import io
from collections.abc import Callable, Iterator
from typing import Any
from weakref import ref

import pytest
import torch
from torch import nn

from advisor.workload.cuda_redirect import cuda_redirected
from advisor.workload.loaded import COMPILED

if torch.cuda.is_available():
    pytest.skip("these requests are granted where there is a GPU", allow_module_level=True)


@pytest.fixture
def redirected() -> Iterator[None]:
    with cuda_redirected():
        yield


def _checkpoint() -> io.BytesIO:
    file = io.BytesIO()
    torch.save({"weight": torch.ones(2)}, file)
    file.seek(0)
    return file


REQUESTS: dict[str, Callable[[], Any]] = {
    "tensor.cuda": lambda: torch.ones(2).cuda(),
    "tensor.cuda with an index": lambda: torch.ones(2).cuda(0, non_blocking=True),
    "tensor.to a name": lambda: torch.ones(2).to("cuda:0"),
    "tensor.to a device": lambda: torch.ones(2).to(torch.device("cuda")),
    "tensor.to an index": lambda: torch.ones(2).to(0),
    "tensor.to by keyword": lambda: torch.ones(2).to(device="cuda", dtype=torch.float16),
    "tensor.to another GPU": lambda: torch.ones(2).to("mps"),
    "tensor.pin_memory": lambda: torch.ones(2).pin_memory(),
    "factory": lambda: torch.zeros(2, device="cuda"),
    "factory with an index": lambda: torch.randn(2, device=1),
    "torch.tensor": lambda: torch.tensor([1.0], device=torch.device("cuda", 1)),
    "like": lambda: torch.zeros_like(torch.ones(2), device="cuda"),
    "new": lambda: torch.ones(2).new_zeros(3, device="cuda"),
    "device as a context": lambda: _made_under_device(),
    "module.cuda": lambda: nn.Linear(1, 1).cuda().weight,
    "module.to a name": lambda: nn.Linear(1, 1).to("cuda").weight,
    "module.to an index": lambda: nn.Linear(1, 1).to(0).weight,
    "module.to by keyword": lambda: nn.Linear(1, 1).to(device=torch.device("cuda")).weight,
    "layer on a device": lambda: nn.Linear(1, 1, device="cuda").weight,
    "torch.load": lambda: torch.load(_checkpoint(), map_location="cuda:0")["weight"],
}


def _made_under_device() -> torch.Tensor:
    with torch.device("cuda"):
        return torch.zeros(2)


@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.usefixtures("redirected")
def test_a_request_for_a_gpu_gives_the_cpu(request_name: str) -> None:
    assert REQUESTS[request_name]().device == torch.device("cpu")


@pytest.mark.usefixtures("redirected")
def test_a_change_of_dtype_beside_the_device_is_kept() -> None:
    assert torch.ones(2).to("cuda", torch.float16).dtype == torch.float16
    assert nn.Linear(1, 1).to("cuda", torch.float64).weight.dtype == torch.float64


@pytest.mark.usefixtures("redirected")
def test_a_fake_module_changes_its_dtype_in_place() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    weight = net[0].weight
    net.to("cuda", torch.bfloat16)
    assert net[0].weight is weight
    assert {tensor.dtype for tensor in (weight, net[1].running_mean)} == {torch.bfloat16}
    assert net[1].num_batches_tracked.dtype == torch.int64
    assert net.float().cuda()[0].weight.dtype == torch.float32


@pytest.mark.usefixtures("redirected")
def test_a_module_of_the_dtype_asked_for_keeps_its_tensors() -> None:
    """Switch Transformers' router does so in every step; torch cannot swap a fake tensor that is referred to."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(), cuda_redirected():
        layer = nn.Linear(2, 2)
        weight, reference = layer.weight, ref(layer.weight)
        assert layer.to(torch.float32).weight is weight is reference()


def test_the_meta_device_is_left_alone() -> None:
    assert torch.ones(2).to("meta").is_meta
    assert torch.zeros(2, device="meta").is_meta


@pytest.mark.usefixtures("redirected")
def test_numbers_that_are_no_device_are_left_alone() -> None:
    assert torch.ones(2, 3).sum(0).tolist() == [2.0, 2.0, 2.0]
    assert torch.full((2,), 0).tolist() == [0, 0]


@pytest.mark.usefixtures("redirected")
def test_the_housekeeping_of_a_cuda_script_runs() -> None:
    torch.cuda.set_device(0)
    torch.cuda.manual_seed_all(0)
    torch.cuda.empty_cache()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    with torch.cuda.stream(torch.cuda.Stream()), torch.cuda.device(0), torch.cuda.nvtx.range("step"):
        torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
    end.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(end) > 0
    assert torch.cuda.current_device() == 0
    assert torch.cuda.max_memory_allocated() == 0


@pytest.mark.usefixtures("redirected")
def test_autocast_and_grad_scaler_for_cuda_are_off_without_a_warning() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scaler = torch.amp.GradScaler("cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        output = model(torch.ones(1, 2))
    assert output.dtype == torch.float32
    before = model.weight.detach().clone()
    scaler.scale(output.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(model.weight, before)


@pytest.mark.usefixtures("redirected")
def test_compile_and_script_leave_the_model_as_it_is() -> None:
    model = nn.Linear(2, 2)
    assert torch.compile(model) is model
    assert torch.compile(mode="max-autotune")(model) is model
    assert torch.jit.script(model) is model
    assert torch.jit.trace(model, torch.ones(1, 2)) is model
    assert hasattr(model, COMPILED)
    other = nn.Linear(2, 2)
    assert not hasattr(other, COMPILED)
    other.compile()
    assert hasattr(other, COMPILED)
    assert other._compiled_call_impl is None


def test_afterwards_everything_is_as_it_was() -> None:
    before = (torch.load, torch.compile, torch.cuda.synchronize, torch.cuda.Stream, nn.Module.to, nn.Module.cuda)
    with cuda_redirected():
        torch.set_default_device("cuda")
        torch.set_default_device(None)
    after = (torch.load, torch.compile, torch.cuda.synchronize, torch.cuda.Stream, nn.Module.to, nn.Module.cuda)
    assert after == before
    with pytest.raises((AssertionError, RuntimeError)):
        torch.ones(2).cuda()
