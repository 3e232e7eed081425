"""Live models of any kind, in any state and context: tracing one changes nothing of it nor of the process."""

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from random import Random
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from advisor.workload.sources.live import load_live
from advisor.workload.trace import trace_live
from tests.reliability.attack import Attack

WIDTH = 8
OWNERS = (torch, torch.cuda, torch.jit, torch.autograd, functional, nn.Module, nn.MultiheadAttention)
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_forward_hooks_with_kwargs")


class TheirsError(Exception):
    """The error that a hook of the user raises."""


class Attention(nn.Module):
    """(batch, width) as one head."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = x[:, None, None]
        return functional.scaled_dot_product_attention(heads, heads, heads)[:, 0, 0]


class ReadsValues(nn.Module):
    """Code that only a real step can run."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * len(x.sum(0).numpy(force=True))


PARTS = (
    lambda: nn.Linear(WIDTH, WIDTH),
    lambda: nn.BatchNorm1d(WIDTH),
    lambda: nn.LayerNorm(WIDTH),
    lambda: nn.Dropout(0.5),
    nn.GELU,
    lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()),
)
EAGER_PARTS = (*PARTS, Attention, ReadsValues)


def _model(chance: Random) -> nn.Module:
    is_scripted = chance.random() < 0.3
    parts = [chance.choice(PARTS if is_scripted else EAGER_PARTS)() for _ in range(chance.randrange(1, 4))]
    model: nn.Module = nn.Sequential(nn.Linear(WIDTH, WIDTH), *parts)
    if is_scripted:
        model = torch.jit.script(model)
        if chance.random() < 0.5:
            model = nn.Sequential(nn.Linear(WIDTH, WIDTH), model)
    for module in model.modules():
        if chance.random() < 0.3:
            module.training = not module.training
    for parameter in list(model.parameters())[1:]:
        if chance.random() < 0.2:
            parameter.requires_grad_(False)
        if chance.random() < 0.2 and not parameter.is_inference():
            parameter.grad = torch.ones_like(parameter)
    return model


def _add_hook(model: nn.Module, chance: Random) -> None:
    eager = [module for module in model.modules() if not isinstance(module, torch.jit.ScriptModule)]
    if not eager:
        return
    raises = chance.random() < 0.5

    def hook(*_: Any) -> None:
        if raises:
            raise TheirsError

    module = chance.choice(eager)
    chance.choice((module.register_forward_hook, module.register_forward_pre_hook))(hook)


def _context(chance: Random) -> AbstractContextManager[Any]:
    return chance.choice((nullcontext, torch.no_grad, torch.inference_mode, torch.enable_grad))()


@contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    before, weights = _state(model), {name: tensor.clone() for name, tensor in model.state_dict().items()}
    yield
    for known, found in zip(before, _state(model), strict=True):
        assert known == found
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())


def _state(model: nn.Module) -> tuple[Any, ...]:
    modules = list(model.modules())
    parameters = [*model.parameters(), *model.buffers()]
    return (
        [module.training for module in modules],
        [[list(getattr(module, hooks)) for hooks in HOOKS] for module in modules if not _is_scripted(module)],
        [(id(parameter), type(parameter), parameter.requires_grad) for parameter in parameters],
        [None if tensor.is_inference() or tensor.grad is None else id(tensor.grad) for tensor in parameters],
        [{name: id(value) for name, value in vars(owner).items() if callable(value)} for owner in OWNERS],
        list(nn.modules.module._global_forward_hooks) + list(nn.modules.module._global_forward_pre_hooks),
        (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype()),
        torch.get_rng_state().tolist(),
        list(warnings.filters),
    )


def _is_scripted(module: nn.Module) -> bool:
    return isinstance(module, torch.jit.ScriptModule)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_live_models(attack: Attack) -> None:
    def check(chance: Random) -> None:
        torch.manual_seed(chance.randrange(2**32))
        with _context(chance):
            model, inputs = _model(chance), torch.randn(4, WIDTH)
        if chance.random() < 0.4:
            _add_hook(model, chance)
        loaded = load_live(model, inputs)
        mode = chance.choice(("inference", "training"))
        with _context(chance), _unchanged(model):
            try:
                workload = trace_live(loaded, mode=mode, batch=None, attention=chance.choice(("auto", "eager")))
            except TheirsError:
                return
        assert workload.rows
        assert {row.phase for row in workload.rows} >= ({"forward", "backward"} if mode == "training" else {"forward"})

    for mode in ("inference", "training"):  # torch imports parts of itself with the first trace
        first = load_live(nn.Sequential(nn.Linear(WIDTH, WIDTH), ReadsValues()), torch.randn(4, WIDTH))
        trace_live(first, mode=mode, batch=None, attention="auto")
    attack.each(check)
