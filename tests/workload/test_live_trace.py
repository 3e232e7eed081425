"""A model of the caller's own process is traced, and nothing of the process is changed."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn import functional

from advisor.workload.summary import totals
from advisor.workload.trace import trace_live
from tests.workload.tracing import Calls, loaded

PATCHED = (
    (functional, "scaled_dot_product_attention"),
    (torch.autograd, "_engine_run_backward"),
    (torch.cuda, "Stream"),
    (torch.cuda, "current_device"),
    (torch, "compile"),
    (torch, "load"),
    (nn.Module, "to"),
    (nn.MultiheadAttention, "forward"),
)


def functions_of_torch():
    return [getattr(owner, name) for owner, name in PATCHED]


def net():
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 4))


def vectors(batch):
    return torch.randn(batch, 8)


def traced_live(model, make_inputs=vectors, *, mode="inference", **options):
    return trace_live(loaded(model, make_inputs, **options), mode=mode, batch=None, attention="auto")


def flops(workload):
    return totals(workload, batch=4).flops


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_scripted_model_keeps_its_modes_its_weights_and_its_buffers(mode):
    model = torch.jit.script(net())
    next(model.children()).eval()
    modes = [module.training for module in model.modules()]
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    workload = traced_live(model, mode=mode)

    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert flops(workload) == flops(traced_live(net(), mode=mode))


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_an_exported_module_is_traced_as_it_was_exported(mode):
    batch = torch.export.Dim("batch")
    exported = torch.export.export(net().eval(), (vectors(4),), dynamic_shapes=({0: batch},)).module()
    attributes = dict(vars(exported))

    workload = traced_live(nn.Sequential(exported, nn.Linear(4, 4)), mode=mode)

    assert workload.parameter_count == totals(traced_live(net(), mode=mode), batch=4).parameter_count + 4 * 4 + 4
    assert vars(exported) == attributes
    with pytest.raises(NotImplementedError):
        exported.train()


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("built_inside", [False, True])
@pytest.mark.parametrize("is_real", [False, True])
def test_training_is_traced_where_the_caller_wants_no_gradients(context, built_inside, is_real):
    def run(self, x):
        return self.net(x) * (x.sum().item() if is_real and not hasattr(x, "fake_mode") else 1)

    with nullcontext() if not built_inside else context():
        model, inputs = Calls(run, net=net()), vectors(4)
    expected = flops(traced_live(Calls(run, net=net()), mode="training"))
    with context():
        workload = traced_live(model, lambda batch: inputs[torch.arange(batch) % 4], mode="training")
        assert not torch.is_grad_enabled()
    assert flops(workload) == expected


@pytest.mark.parametrize("how", ["torch.compile", "Module.compile", "a function"])
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_compiled_model_is_traced_as_it_is_and_compiled_only_when_it_runs(how, mode):
    compiled = []

    def backend(graph, inputs):
        compiled.append(graph)
        return graph.forward

    torch.compiler.reset()
    model, plain = (Calls(lambda self, x: self.net(x), net=net()) for _ in range(2))
    if how == "Module.compile":
        model.compile(backend=backend)
    elif how == "torch.compile":
        model = torch.compile(model, backend=backend)
    else:
        run = torch.compile(lambda inner, x: inner(x), backend=backend)
        model = Calls(lambda self, x: run(self.net, x), net=net())

    workload = traced_live(model, mode=mode)

    assert compiled == []
    assert [row.op for row in workload.rows] == [row.op for row in traced_live(plain, mode=mode).rows]
    assert flops(workload) == flops(traced_live(plain, mode=mode))
    model(vectors(4))
    assert len(compiled) == 1
    torch.compiler.reset()


def test_the_callers_own_stance_is_back_after_a_trace():
    run = torch.compile(lambda x: x + 1, backend="eager")
    with torch.compiler.set_stance("fail_on_recompile"):
        traced_live(net())
        with pytest.raises(RuntimeError, match="stance"):
            run(vectors(4))
    torch.compiler.reset()


def test_another_thread_sees_torch_as_it_is_while_a_step_is_traced():
    query = torch.randn(2, 3, 5, 8)
    expected = functional.scaled_dot_product_attention(query, query, query)
    before = functions_of_torch()
    seen = []

    def elsewhere():
        layer = nn.Linear(8, 8)
        optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
        bias = layer.bias.detach().clone()
        seen.append(torch.equal(functional.scaled_dot_product_attention(query, query, query), expected))
        layer(torch.ones(1, 8)).sum().backward()
        optimizer.step()
        # The bias's gradient is 1 for one sample.
        seen.append(torch.equal(layer.bias, bias - 1.0))
        seen.append(next(layer.to("meta").parameters()).is_meta)

    def run(self, x):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        heads = self.first(x).unflatten(-1, (1, 2, 4)).movedim(2, 1)
        return self.layer(functional.scaled_dot_product_attention(heads, heads, heads).flatten(1))

    workload = traced_live(Calls(run, first=nn.Linear(8, 8), layer=nn.Linear(8, 4)), mode="training")

    assert seen == [True] * len(seen)
    assert len(seen) >= 3
    assert {row.op for row in workload.rows} >= {"attention", "attention_backward", "optimizer"}
    assert {row.module for row in workload.rows if row.op == "aten.addmm"} == {"first", "layer"}
    assert functions_of_torch() == before


def test_threads_that_trace_at_once_get_what_each_gets_alone():
    before = functions_of_torch()
    widths = (4, 8, 16, 32, 64, 128)

    def count(width):
        return flops(traced_live(nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 4)), mode="training"))

    alone = [count(width) for width in widths]
    with ThreadPoolExecutor(len(widths)) as pool:
        assert list(pool.map(count, widths)) == alone
    assert functions_of_torch() == before


def test_a_trace_within_a_trace_leaves_nothing_behind():
    before = functions_of_torch()
    inner = []

    def run(self, x):
        if not inner:
            inner.append(None)
            inner[0] = flops(traced_live(nn.Linear(8, 4)))
        return self.layer(x)

    outer = flops(traced_live(Calls(run, layer=nn.Linear(8, 4))))
    assert inner == [outer]
    assert functions_of_torch() == before


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_hook_that_raises_leaves_nothing_behind(mode):
    before = functions_of_torch()
    model = net()

    def hook(*_):
        raise LookupError("theirs")

    model[2].register_forward_hook(hook)
    with pytest.raises(LookupError, match="theirs"):
        traced_live(model, mode=mode)
    assert functions_of_torch() == before
    assert all(module.training for module in model.modules())
    assert list(model[2]._forward_hooks.values()) == [hook]
    assert not nn.modules.module._global_forward_pre_hooks
