"""Initializes the lazy modules of a model, in a copy, by a call on fake tensors."""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import is_lazy

from advisor.errors import TraceError
from advisor.records.workload import Mode
from advisor.workload.fakes import fake_inputs, fake_mode, to_fake, untouched, with_tensors
from advisor.workload.loaded import LoadedModel, in_mode
from advisor.workload.patching import in_this_thread
from advisor.workload.user_error import is_of_user


def initialized(loaded: LoadedModel, *, mode: Mode) -> LoadedModel:
    """Return the model with the parameters that its first call gives to lazy modules; the given one stays lazy.

    Raises `TraceError` if the call fails, or if a module is still lazy after it.
    """
    if not any(is_lazy(tensor) for _, tensor in _tensors(loaded.model)):
        return loaded
    copied: dict[int, Any] = {id(tensor): _copy(tensor) for _, tensor in _tensors(loaded.model)}
    problem = ""
    with untouched([]):  # the random generators
        try:
            model = deepcopy(loaded.model, copied)
            _call(in_mode(model, mode), loaded)
        except Exception as error:  # the user's code, which may need values
            if not is_of_user(error):
                raise
            model, problem = loaded.model, f" ({str(error).strip().partition(chr(10))[0]})"
    if left := next((name for name, tensor in _tensors(model) if is_lazy(tensor)), None):
        raise TraceError(
            f"{loaded.name} has lazy modules, and a call on fake tensors did not initialize {left}{problem}",
            hint="call the model once first, so that its parameters have shapes",
        )
    return replace(loaded, model=model)


def _tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _copy(tensor: torch.Tensor) -> Any:
    """Return another lazy tensor, which a buffer's own `deepcopy` does not; a tensor with values is shared."""
    kind: Any = type(tensor)
    return kind(tensor.requires_grad, tensor.data.device, tensor.data.dtype) if is_lazy(tensor) else tensor


def _call(model: nn.Module, loaded: LoadedModel) -> None:
    """Call the model on fake tensors, which initializes its lazy modules with real ones."""
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    fake = fake_mode(symbolic=False, isolated=False)
    originals: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def stand_in(tensor: torch.Tensor) -> torch.Tensor:
        if is_lazy(tensor):
            return tensor
        return originals.setdefault(id(faked := to_fake(fake, tensor)), (faked, tensor))[0]

    def initialize(module: nn.Module, args: Any) -> None:
        """Initialize a lazy module before its own hook, which then finds nothing to do."""
        if isinstance(module, LazyModuleMixin) and module.has_uninitialized_params():
            with unset_fake_temporarily():
                module.initialize_parameters(*args)
            with_tensors([module], stand_in)

    with_tensors([model], stand_in)
    args, kwargs = fake_inputs(fake, loaded.make_inputs, loaded.batch)
    hook = nn.modules.module.register_module_forward_pre_hook(in_this_thread(initialize))
    try:
        with fake, torch.no_grad():
            model(*args, **kwargs)
    finally:
        hook.remove()
    with_tensors([model], lambda tensor: originals.get(id(tensor), (tensor, tensor))[1])
