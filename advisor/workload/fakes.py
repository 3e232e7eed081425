"""Swaps a model's tensors for fake ones without storage, and restores everything afterwards."""

import logging
import random
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils import _foreach_utils
from torch.utils import _pytree as pytree

from advisor.workload.patching import patched, switched

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode

_LOG = logging.getLogger("torch._subclasses.fake_tensor")
StandIn = Callable[[torch.Tensor], torch.Tensor]
_CONTAINERS = (dict, OrderedDict, defaultdict, Counter, list, deque, set)
"""Exactly these types: a subclass may not allow clearing."""


def fake_mode(*, symbolic: bool, isolated: bool) -> "FakeTensorMode":
    """Return a FakeTensorMode; with `symbolic`, data-dependent sizes and `.item()` become unbacked symbols.

    `isolated` means that this process exists only for the trace, so torch's compiler need not be imported.
    """
    if symbolic:
        from torch._subclasses.fake_tensor import FakeTensorMode

        from advisor.workload.assuming_shapes import AssumingShapeEnv

        return FakeTensorMode(allow_non_fake_inputs=True, shape_env=AssumingShapeEnv(), static_shapes=True)
    from advisor.workload.quick_fake_mode import QuickFakeMode

    return QuickFakeMode.create() if isolated else QuickFakeMode.create_beside_the_compiler()


fake_tensor_log_silenced = partial(switched, lambda: _LOG.level, _LOG.setLevel, logging.CRITICAL)
"""Silences the fake tensor log, which would print errors with torch's traceback in addition to raising them."""


def with_foreach() -> AbstractContextManager[None]:
    """Run operators over whole lists of fake tensors, as torch does over plain ones when it clips gradients."""
    from torch._subclasses.fake_tensor import FakeTensor

    types = [*_foreach_utils._foreach_supported_types, FakeTensor]
    return patched([(_foreach_utils, "_foreach_supported_types", types)], in_all_threads=True)


def to_fake(mode: "FakeTensorMode", tensor: torch.Tensor) -> torch.Tensor:
    """Return a fake CPU tensor like `tensor`, whatever its device, or itself if it is one; parameters stay such."""
    if getattr(tensor, "fake_mode", None) is mode:
        return tensor
    if tensor.layout is not torch.strided or type(tensor) not in (torch.Tensor, nn.Parameter):
        return mode.from_tensor(tensor)
    with mode:
        fake = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
    fake.requires_grad_(tensor.requires_grad)
    if isinstance(tensor, nn.Parameter):
        # As nn.Parameter marks tensor subclasses. Its constructor would import torch.distributed for a type check.
        fake._is_param = True
    return fake


def fake_inputs(mode: "FakeTensorMode", make_inputs: Callable[[int], Any], batch: int) -> Any:
    """Return `make_inputs(batch)` as fake CPU tensors, built as fakes if its code allows, else converted."""
    try:
        with mode:
            made = make_inputs(batch)
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        # The user's function may call .numpy() or .item(). The real run raises its own errors.
        made = make_inputs(batch)

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        if getattr(tensor, "fake_mode", None) is not mode:
            return to_fake(mode, tensor.detach())
        if tensor.device.type != "meta":
            return tensor
        with mode:
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")

    return pytree.tree_map_only(torch.Tensor, fake, made)


def real_inputs(make_inputs: Callable[[int], Any], batch: int) -> Any:
    """Return `make_inputs(batch)`, with copies of tensors on the meta device and of tensors made in inference mode.

    Autograd cannot save those made in inference mode.
    """

    def real(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_meta:
            return to_clone(tensor)
        return tensor.clone() if tensor.is_inference() else tensor

    return pytree.tree_map_only(torch.Tensor, real, make_inputs(batch))


@contextmanager
def untouched(objects: Sequence[Any]) -> Iterator[None]:
    """Restore `objects` and the interpreter's state after the traced step.

    Covers the attributes of each object and of each module in it (parameters, buffers, gradients, training flag, hooks,
    contents of nested lists, dicts and sets), the random generators of torch, Python and numpy, the default dtype and
    the grad mode.
    """
    attributes = [(owner, dict(vars(owner))) for owner in _owners(objects)]
    contents = _containers(value for _, saved in attributes for value in saved.values())
    containers = [(container, container.copy()) for container in contents]
    slots = _script_slots(owner for owner, _ in attributes)
    flags = [(owner, owner.training) for owner, _ in attributes if isinstance(owner, torch.jit.ScriptModule)]
    parameters = [p for owner, _ in attributes if isinstance(owner, nn.Module) for p in owner._parameters.values()]
    gradients = [(parameter, parameter.grad) for parameter in parameters if parameter is not None]
    settings: list[tuple[Callable[[Any], object], Any]] = [
        (torch.set_rng_state, torch.get_rng_state()),
        (random.setstate, random.getstate()),
        (torch.set_default_dtype, torch.get_default_dtype()),
        (torch.set_grad_enabled, torch.is_grad_enabled()),
    ]
    if torch.cuda.is_initialized():
        settings.append((torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
    if numpy_random := sys.modules.get("numpy.random"):
        settings.append((numpy_random.set_state, numpy_random.get_state()))
    try:
        yield
    finally:
        for owner, saved in attributes:
            vars(owner).clear()
            vars(owner).update(saved)
        for container, content in containers:
            container.clear()
            _fill(container, content)
        for registry, name, tensor in slots:
            registry[name] = tensor
        for owner, training in flags:
            owner.training = training
        for parameter, gradient in gradients:
            if parameter.grad is not gradient:
                parameter.grad = gradient
        for restore, state in settings:
            restore(state)


def with_tensors(
    objects: Sequence[Any], stand_in: StandIn, *, loose: Sequence[torch.Tensor] = ()
) -> dict[int, torch.Tensor]:
    """Replace every parameter and buffer by `stand_in(tensor)`; return the replacements by the id of the original.

    Tied tensors stay tied, and other references to them (an optimizer's groups, the flat weights of an RNN) are
    replaced too. Tensors in other attributes are small constants that code may read or write in place; they become
    copies, except for those in `loose`. Call inside `untouched`, which restores the originals.
    """
    owners = _owners(objects)
    registries = [
        registry for owner in owners if isinstance(owner, nn.Module) for registry in (owner._parameters, owner._buffers)
    ]
    replaced = {id(tensor): tensor for tensor in loose}
    for registry in registries:
        for tensor in registry.values():
            if tensor is not None and id(tensor) not in replaced:
                replaced[id(tensor)] = stand_in(tensor)

    def replacement(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in replaced:
                replaced[id(value)] = stand_in(value) if value.is_meta else to_clone(value)
            return replaced[id(value)]
        if type(value) is tuple:
            return tuple(map(replacement, value))
        return value

    # An optimizer's state belongs to the real parameters; their replacements get their own state.
    places = _containers(owner.param_groups if isinstance(owner, Optimizer) else vars(owner) for owner in owners)
    for container in places:
        if isinstance(container, dict):
            container.update({name: replacement(value) for name, value in container.items() if _holds_tensor(value)})
        elif any(map(_holds_tensor, container)):
            content = list(map(replacement, container))
            container.clear()
            _fill(container, content)
    for registry, name, tensor in _script_slots(owners):
        registry[name] = replaced[id(tensor)]
    return replaced


def _script_slots(owners: Iterable[Any]) -> list[tuple[Any, str, torch.Tensor]]:
    """Return (registry, name, tensor) of each parameter and buffer of a TorchScript module, stored outside Python."""
    compiled = [owner for owner in owners if isinstance(owner, torch.jit.ScriptModule)]
    registries: list[Any] = [registry for owner in compiled for registry in (owner._parameters, owner._buffers)]
    return [(registry, name, tensor) for registry in registries for name, tensor in registry.items()]


def _holds_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or (type(value) is tuple and any(map(_holds_tensor, value)))


def _owners(objects: Sequence[Any]) -> list[Any]:
    """Return `objects` and all their submodules, each once."""
    owners: dict[int, Any] = {}
    for found in objects:
        for owner in found.modules() if isinstance(found, nn.Module) else (found,):
            owners[id(owner)] = owner
    return list(owners.values())


def _containers(values: Iterable[Any]) -> list[Any]:
    """Return the dicts, lists, deques and sets in `values`, nested ones included, each once."""
    found: dict[int, Any] = {}
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if type(value) in _CONTAINERS and id(value) not in found:
            found[id(value)] = value
            waiting.extend(value.values() if isinstance(value, dict) else value)
    return list(found.values())


def _fill(container: Any, content: Any) -> None:
    if isinstance(container, (list, deque)):
        container.extend(content)
    else:
        container.update(content)


def to_clone(tensor: torch.Tensor) -> torch.Tensor:
    """Return a CPU copy of `tensor`, with small random values if it is a meta tensor."""
    if tensor.is_meta:
        values = torch.empty(tensor.shape, dtype=tensor.dtype)
        # 0.02 is the usual standard deviation of initial weights; it keeps activations finite.
        values = values.normal_(std=0.02) if values.is_floating_point() else values.zero_()
    else:
        values = tensor.detach().cpu().clone()
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(values, requires_grad=tensor.requires_grad)
    return values
