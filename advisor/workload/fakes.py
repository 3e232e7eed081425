"""Fake tensors: a model's parameters swapped for storage-less twins, and put back as they were."""

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode


def fake_mode(*, symbolic: bool, isolated: bool) -> "FakeTensorMode":
    """A FakeTensorMode; `symbolic` lets data-dependent sizes and `.item()` through as unbacked symbols.

    `isolated`: this process exists for the trace alone, so torch's compiler need not be imported.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    if symbolic:
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        shape_env = ShapeEnv(allow_dynamic_output_shape_ops=True, allow_scalar_outputs=True)
        return FakeTensorMode(allow_non_fake_inputs=True, shape_env=shape_env, static_shapes=True)
    if isolated:
        from advisor.workload.quick_fake_mode import QuickFakeMode

        return QuickFakeMode.create()
    return FakeTensorMode(allow_non_fake_inputs=True)


def to_fake(mode: "FakeTensorMode", tensor: torch.Tensor) -> torch.Tensor:
    """A fake CPU tensor like `tensor`, whatever device that lies on; parameters stay parameters."""
    if tensor.layout is not torch.strided or type(tensor) not in (torch.Tensor, nn.Parameter):
        return mode.from_tensor(tensor)
    with mode:
        fake = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
    fake.requires_grad_(tensor.requires_grad)
    if isinstance(tensor, nn.Parameter):
        # As nn.Parameter marks tensor subclasses; its constructor would import torch.distributed to ask which.
        fake._is_param = True
    return fake


def fake_inputs(mode: "FakeTensorMode", make_inputs: Callable[[int], Any], batch: int) -> Any:
    """`make_inputs(batch)` as fake tensors: built as such where its code allows it, else really and then converted."""
    try:
        with mode:
            made = make_inputs(batch)
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        # The user's own function, which may well call .numpy() or .item(); run for real, its own errors are raised.
        made = make_inputs(batch)
    return pytree.tree_map_only(torch.Tensor, lambda tensor: _as_fake(mode, tensor), made)


def _as_fake(mode: "FakeTensorMode", tensor: torch.Tensor) -> torch.Tensor:
    if getattr(tensor, "fake_mode", None) is mode:
        return tensor
    return to_fake(mode, tensor.detach())


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Put back afterwards whatever the traced step does to the model and to the interpreter.

    Covers each module's attributes (parameters, buffers, training flag, hooks, caches kept in lists and dicts), the
    random generators of torch, Python and numpy, the default dtype and the grad mode.
    """
    modules = list(model.modules())
    attributes = [dict(module.__dict__) for module in modules]
    containers = [
        (value, value.copy())
        for saved in attributes
        for value in saved.values()
        if isinstance(value, (dict, list, set))  # parameters and buffers live in dicts too
    ]
    torch_state = torch.get_rng_state()
    cuda_states = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    python_state = random.getstate()
    numpy_random = sys.modules.get("numpy.random")
    numpy_state = numpy_random.get_state() if numpy_random else None
    dtype, grad_enabled = torch.get_default_dtype(), torch.is_grad_enabled()
    try:
        yield
    finally:
        for module, saved in zip(modules, attributes, strict=True):
            module.__dict__.clear()
            module.__dict__.update(saved)
        for container, content in containers:
            container.clear()
            if isinstance(container, list):
                container.extend(content)
            else:
                container.update(content)
        torch.set_rng_state(torch_state)
        if cuda_states:
            torch.cuda.set_rng_state_all(cuda_states)
        random.setstate(python_state)
        if numpy_random:
            numpy_random.set_state(numpy_state)
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(grad_enabled)


def with_tensors(model: nn.Module, stand_in: Callable[[torch.Tensor], torch.Tensor]) -> dict[int, torch.Tensor]:
    """Put `stand_in(tensor)` in the place of every parameter and buffer; returns them by the id of the real one.

    Tied tensors stay tied. Call inside `untouched`, which puts the real ones back.
    """
    replaced: dict[int, torch.Tensor] = {}
    for module in model.modules():
        for registry in (module._parameters, module._buffers):
            for name, tensor in registry.items():
                if tensor is None:
                    continue
                if id(tensor) not in replaced:
                    replaced[id(tensor)] = stand_in(tensor)
                registry[name] = replaced[id(tensor)]  # type: ignore[assignment]
        if isinstance(module, nn.RNNBase):
            # RNN layers keep a second list of their weights.
            module._flat_weights = [replaced.get(id(weight), weight) for weight in module._flat_weights]
    return replaced


def to_clone(tensor: torch.Tensor) -> torch.Tensor:
    """A CPU tensor of its own with the values of `tensor`, small random ones where that has none."""
    if tensor.is_meta:
        values = torch.empty(tensor.shape, dtype=tensor.dtype)
        # 0.02 is the usual spread of initial weights: it keeps activations finite.
        values = values.normal_(std=0.02) if values.is_floating_point() else values.zero_()
    else:
        values = tensor.detach().cpu().clone()
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(values, requires_grad=tensor.requires_grad)
    return values
