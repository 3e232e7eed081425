"""QuickFakeMode answers as torch's own FakeTensorMode does."""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from advisor.workload.quick_fake_mode import QuickFakeMode
from tests.workload.tracing import Calls


class Answers(TorchDispatchMode):
    """Writes down what every operator gives."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        read = [storage_of(value) for value in args]
        self.seen.append((str(func), [(described(part), shared(part, read)) for part in parts_of(result)]))
        return result


def storage_of(value):
    """Return which storage a tensor has; None for one whose values are known, which gets its own."""
    is_known = getattr(value, "constant", None) is not None
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) and not is_known else None


def shared(value, read):
    """Return the positions of the arguments whose memory this result has."""
    return [position for position, storage in enumerate(read) if storage is not None and storage == storage_of(value)]


def parts_of(result):
    return [part for value in result for part in parts_of(value)] if isinstance(result, list | tuple) else [result]


def described(value):
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.stride(), value.storage_offset(), value.dtype, value.device
    return value if isinstance(value, (int, float, bool)) else type(value).__name__


def answers(mode, run, *, times=2):
    with mode, Answers() as answers:
        for _ in range(times):
            run()
    return answers.seen


def assert_as_torch(run):
    expected = answers(FakeTensorMode(allow_non_fake_inputs=True), run)
    assert answers(QuickFakeMode.create(), run) == expected
    assert expected


def trained(build, *shape, dtype=torch.float32, prepare=lambda x: x):
    """Build the module and run it forward and backward on an input of this shape."""

    def run():
        module = build()
        x = prepare(torch.rand(shape)) if dtype.is_floating_point else torch.zeros(shape, dtype=dtype)
        if dtype.is_floating_point:
            x.requires_grad_()
        output = module(x)
        parts = [part for part in parts_of(output) if isinstance(part, torch.Tensor) and part.requires_grad]
        sum(part.float().mean() for part in parts).backward()

    return run


def channels_last(x):
    return x.to(memory_format=torch.channels_last)


def convnet():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, groups=8), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2),
    )  # fmt: skip


def self_attention(self, x):
    q, k, v = self.inner(x).chunk(3, -1)
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


PROGRAMS = {
    "linear": trained(lambda: nn.Linear(8, 4), 3, 8),
    "convnet": trained(convnet, 2, 3, 16, 16),
    "channels last": trained(convnet, 2, 3, 16, 16, prepare=channels_last),
    "conv1d": trained(lambda: nn.Conv1d(6, 4, 3), 2, 6, 8),
    "conv3d": trained(lambda: nn.Conv3d(2, 4, 3, dilation=2), 1, 2, 8, 8, 8),
    "transposed conv": trained(lambda: nn.ConvTranspose2d(4, 2, 3, stride=2), 2, 4, 5, 5),
    "evaluated batchnorm": trained(lambda: nn.BatchNorm2d(3).eval(), 2, 3, 4, 4),
    "layer norm": trained(lambda: nn.LayerNorm(8), 2, 6, 8),
    "group norm": trained(lambda: nn.GroupNorm(2, 4), 2, 4, 5, 5),
    "rms norm": trained(lambda: nn.RMSNorm(8), 2, 6, 8),
    "embedding": trained(lambda: nn.Embedding(10, 4, padding_idx=0), 2, 6, dtype=torch.int64),
    "embedding bag": trained(lambda: nn.EmbeddingBag(10, 4), 2, 6, dtype=torch.int64),
    "transformer": trained(lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, 6, 8),
    "attention": trained(lambda: Calls(self_attention, inner=nn.Linear(8, 24)), 2, 2, 6, 8),
    "lstm": trained(lambda: nn.LSTM(8, 5, 2, bidirectional=True), 2, 6, 8),
    "gru": trained(lambda: nn.GRU(8, 5, batch_first=True), 2, 6, 8),
    "views": trained(lambda: Calls(lambda self, x: viewed(x)), 4, 6, 8),
    "products": trained(lambda: Calls(lambda self, x: (x @ x.new_ones(2, 8, 3)) @ x.new_ones(3, 5)), 2, 6, 8),
    "in place": trained(lambda: Calls(lambda self, x: functional.relu_(x.mul(2).add_(1)).mul(2).t_().exp_()), 4, 6),
    "written views": trained(lambda: Calls(lambda self, x: write_through_views(x.clone())), 4, 6),
    "expanded": trained(lambda: Calls(lambda self, x: x.expand(5, 4, 6) * x.sum(0, keepdim=True).expand(4, 6)), 4, 6),
    "softmax and losses": trained(lambda: Calls(lambda self, x: classified(x)), 4, 6),
    "several results": trained(lambda: Calls(lambda self, x: [*x.max(1)[:1], *x.topk(2, 1)[:1], *x.split(2, 1)]), 4, 6),
    "lists": trained(lambda: Calls(lambda self, x: torch.cat([torch.stack(x.unbind(1)), x.t()])), 4, 6),
    "interpolation": trained(lambda: nn.Upsample(scale_factor=2, mode="bilinear"), 2, 3, 4, 4),
    "dtypes": trained(lambda: Calls(lambda self, x: (x.half().float() * x.double()).bfloat16() + (x > 0)), 4, 6),
    "complex": trained(lambda: Calls(lambda self, x: torch.fft.ifft(torch.fft.fft(x).conj()).abs()), 4, 6),
    "index": trained(lambda: Calls(lambda self, x: x[rows(2, 1), rows(3)] + x[:, rows(3)][rows(2)]), 4, 6),
    "scalars": trained(lambda: Calls(lambda self, x: 1 / (2 - x) ** 2 + torch.arange(6) + torch.tensor(2.0)), 4, 6),
}  # fmt: skip


def rows(*shape):
    return torch.zeros(shape, dtype=torch.int64)


def viewed(x):
    return x.transpose(0, 1)[1:, ::2].unfold(0, 2, 1).permute(2, 0, 1, 3).reshape(-1).view(4, -1)


def classified(x):
    return functional.cross_entropy(x, torch.zeros(len(x)).long())


def write_through_views(x):
    x[0].zero_()
    x[:, 1].add_(x[:, 2])
    x[torch.zeros(4, 6, dtype=torch.bool)] = 1.0
    return x


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_operator_is_answered_as_torch_does(name):
    assert_as_torch(PROGRAMS[name])


@pytest.mark.parametrize("name", ["SGD", "AdamW", "RMSprop", "Adagrad"])
def test_optimizers_are_answered_as_torch_does(name):
    def run():
        layer = nn.Linear(4, 3)
        layer(torch.rand(2, 4)).mean().backward()
        optimizer = getattr(torch.optim, name)(layer.parameters(), lr=0.1)
        optimizer.step()
        optimizer.step()

    assert_as_torch(run)


def test_the_default_dtype_in_force_is_the_one_of_the_answer():
    def run():
        whole = torch.ones(3, dtype=torch.int64)
        for dtype in (torch.float32, torch.float64, torch.float32):
            torch.set_default_dtype(dtype)
            assert (whole / 2).dtype is dtype
            assert torch.arange(0.0, 3.0).dtype is dtype

    try:
        assert_as_torch(run)
    finally:
        torch.set_default_dtype(torch.float32)


def test_inference_mode_is_answered_as_torch_does():
    def run():
        with torch.inference_mode():
            x = torch.rand(2, 8)
            dropped = functional.dropout(nn.Linear(8, 8)(x), training=False)
            dropped.add_(1)
            nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)).eval()(torch.rand(2, 1, 8, 8))

    assert_as_torch(run)


WRONG = {
    "product": lambda: torch.zeros(2, 3) @ torch.zeros(4, 5),
    "sum": lambda: torch.zeros(2, 3) + torch.zeros(4),
    "concatenation": lambda: torch.cat([torch.zeros(2, 3), torch.zeros(2, 4)]),
    "convolution": lambda: nn.Conv2d(3, 4, 3)(torch.zeros(1, 2, 8, 8)),
    "view": lambda: torch.zeros(2, 3).view(4, 2),
    "embedding of floats": lambda: nn.Embedding(4, 3)(torch.zeros(2)),
    "dimension": lambda: torch.zeros(2, 3).sum(5),
    "in place": lambda: torch.zeros(2).add_(torch.zeros(3)),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_torch_refuses_is_refused_each_time(name, caplog):
    with FakeTensorMode(allow_non_fake_inputs=True), pytest.raises(Exception) as expected:  # noqa: PT011
        WRONG[name]()
    with QuickFakeMode.create():
        for _ in range(3):
            with pytest.raises(expected.type):
                WRONG[name]()


def test_results_of_a_known_call_are_tensors_of_their_own():
    with QuickFakeMode.create():
        x = torch.zeros(3)
        first, second = x + 1, x + 1
        assert first is not second
        assert first.untyped_storage()._cdata != second.untyped_storage()._cdata
        assert x.add_(1) is x
        assert x.add_(1) is x


def test_a_fake_tensor_has_the_attributes_that_torchs_constructor_gives():
    with QuickFakeMode.create() as mode:
        results = [torch.zeros(3), torch.zeros(3).view(1, 3), torch.zeros(3) + 1, torch.zeros(3) + 1]
        expected = vars(FakeTensor(mode, torch.empty(3, device="meta"), torch.device("cpu")))
    assert [vars(result) for result in results] == [expected] * 4


def test_a_real_tensor_is_taken_as_a_fake_one():
    real = torch.ones(3)
    with QuickFakeMode.create():
        result = torch.zeros(3) + real
    assert tuple(result.shape) == (3,)
    assert torch.equal(real, torch.ones(3))


def test_sparse_gradients_and_zero_tensors_are_answered_as_torch_does():
    with QuickFakeMode.create():
        table = nn.Embedding(5, 3, sparse=True)
        for _ in range(2):
            table(rows(4)).sum().backward()
            assert table.weight.grad.layout is torch.sparse_coo
            table.weight.grad = None
            zero = torch._efficientzerotensor((4, 3))
            assert (zero + table(rows(4)))._is_zerotensor() is False
            assert torch._efficientzerotensor((4, 3))._is_zerotensor()


def test_a_number_made_into_a_tensor_keeps_its_value_until_it_is_mixed():
    def run():
        count = torch.tensor(0.0)
        for _ in range(3):
            count += 1
        assert count.item() == 3.0
        assert (count * 2).item() == 6.0
        assert (count > 2).item()
        mixed = torch.zeros(3) * count
        assert tuple(mixed.shape) == (3,)
        assert count.item() == 3.0
        count += torch.rand(())
        with pytest.raises(RuntimeError):
            count.item()

    assert_as_torch(run)


def test_an_alias_of_a_number_follows_it():
    def run():
        count = torch.tensor(1.0)
        alias = count.view(1)
        count += 1
        assert alias.item() == 2.0
        count.copy_(torch.rand(()))
        with pytest.raises(RuntimeError):
            alias.item()

    assert_as_torch(run)


@pytest.mark.parametrize("view", [torch.Tensor.view, torch.ops.aten._unsafe_view.default], ids=["view", "unsafe view"])
@pytest.mark.parametrize(
    ("shape", "order", "size"),
    [
        ((4, 6), (0, 1), [2, 2, -1]),
        ((1, 4, 6), (0, 2, 1), [6, 1, 2, 2]),
        ((2, 1, 3), (2, 1, 0), [3, 1, 1, 2]),
        ((0, 3), (0, 1), [3, 0]),
    ],
)
def test_a_view_has_the_strides_of_a_real_one(view, shape, order, size):
    real = described(view(torch.empty(shape).permute(order), size))
    with QuickFakeMode.create():
        assert described(view(torch.empty(shape).permute(order), size)) == real


def test_a_view_that_a_real_tensor_refuses_raises_the_same_error():
    with pytest.raises(RuntimeError) as real:
        torch.empty(4, 6).t().view(-1)
    with QuickFakeMode.create(), pytest.raises(RuntimeError) as fake:
        torch.empty(4, 6).t().view(-1)
    assert str(fake.value) == str(real.value)


def test_values_are_not_there():
    with QuickFakeMode.create(), pytest.raises(RuntimeError):
        torch.rand(3).sum().item()


# -- what it does to the process ---------------------------------------------------------------------------------------


def run_python(code):
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


TRACE = """
import sys
import torch
from torch import nn
from advisor.workload.loaded import LoadedModel
from advisor.workload.trace import trace
model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(144, 2))
loaded = LoadedModel(name="m", model=model, make_inputs=lambda batch: ((torch.rand(batch, 3, 8, 8),), {}), batch=2,
                     batch_is_fixed=False, loss=None, optimizer=None, train_step=None, notes=())
for mode in ("inference", "training"):
    assert trace(loaded, mode=mode, batch=None, isolated=True).method == "fake"
"""


def test_an_ordinary_trace_does_not_import_the_compiler():
    code = TRACE + "print([name for name in ('torch._dynamo.eval_frame', 'torch._inductor') if name in sys.modules])"
    assert run_python(code).strip() == "[]"


def test_the_compiler_works_after_a_trace():
    code = TRACE + "print(torch.compile(lambda x: x + 1, backend='eager')(torch.ones(2)).tolist())"
    assert run_python(code).strip() == "[2.0, 2.0]"


def test_inductor_can_be_imported_after_a_trace():
    code = TRACE + "import torch._inductor.compile_fx, torch._dynamo; print(torch._dynamo.is_compiling())"
    assert run_python(code).strip() == "False"


def test_code_that_disables_the_compiler_works_in_a_trace():
    code = """
import torch
from advisor.workload.quick_fake_mode import QuickFakeMode
mode = QuickFakeMode.create()
@torch._dynamo.disable
def double(x):
    torch._dynamo.graph_break()
    return x * 2
@torch.compiler.disable
def triple(x):
    return x * 3
with mode:
    print(tuple((double(torch.ones(2)) + triple(torch.ones(2))).shape))
"""
    assert run_python(code).strip() == "(2,)"


def test_the_first_forward_mode_derivative_of_a_process_is_traced():
    """torch compiles its formulas for it with `torch.jit.script`, which does nothing to the user's code in a trace."""
    code = (
        TRACE
        + """
from advisor.workload.cuda_redirect import cuda_redirected
class Tangent(nn.Module):
    def forward(self, x):
        assert torch.jit.script(self) is self
        return torch.func.jvp(torch.sin, (x,), (torch.ones_like(x),))[1]
loaded = LoadedModel(name="m", model=Tangent(), make_inputs=lambda batch: ((torch.rand(batch, 3),), {}), batch=2)
with cuda_redirected():
    workload = trace(loaded, mode="inference", batch=None, isolated=True)
print(workload.method, workload.batch_is_affine)
"""
    )
    assert run_python(code).strip() == "fake True"


def test_decorators_of_the_compiler_work_before_a_trace():
    code = """
import torch
from advisor.workload.quick_fake_mode import stand_in_for_dynamo
stand_in_for_dynamo()
@torch._dynamo.allow_in_graph
@torch.compiler.disable(recursive=False)
def double(x):
    return x * 2
print(double(torch.ones(2)).tolist(), torch._dynamo.utils.counters is not None)
"""
    assert run_python(code).strip() == "[2.0, 2.0] True"


def test_a_compiler_that_is_imported_within_a_step_leaves_its_memory_as_it_is():
    code = """
import gc
import sys
import torch
from torch import nn
from advisor.workload.file import workload_to_json
from advisor.workload.loaded import LoadedModel
from advisor.workload.trace import trace

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
    def forward(self, x):
        large = self.layer(x).expand(64, -1, -1).exp()
        torch._dynamo.is_compiling()
        return large.mean((0, 2))

loaded = LoadedModel(name="m", model=Net(), make_inputs=lambda batch: ((torch.rand(batch, 8),), {}), batch=2)
gc.disable()  # as the child process does
before = "torch._dynamo.eval_frame" in sys.modules
traced = [workload_to_json(trace(loaded, mode="training", batch=None, isolated=True)) for _ in range(2)]
print(before, "torch._dynamo.eval_frame" in sys.modules, traced[0]["memory"] == traced[1]["memory"])
"""
    assert run_python(code).strip() == "False True True"
