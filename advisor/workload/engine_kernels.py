"""A model in, which of its layers launch no kernel of their own in an engine out.

Products of one input are one: queries, keys and values, gate and up projections (vLLM: `QKVParallelLinear`,
`MergedColumnParallelLinear`). A norm written as a mean and pointwise operators is one too (`rms_norm`), and tokens are
sorted by expert in one kernel (`moe_align_block_size`).
"""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

MERGED_FAMILIES = frozenset({"matmul", "reduction", "gather", "scan", "creation"})
"""What of a module that is merged belongs to another kernel."""


@contextmanager
def following_inputs(seen: set[int]) -> Iterator[None]:
    """Add to `seen` the ids of linear layers that are called inside with the very input of the last one."""
    last: Any = lambda: None  # noqa: E731 - as a weak reference that is dead

    def on_call(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        nonlocal last
        if isinstance(module, nn.Linear) and inputs:
            if inputs[0] is last():
                seen.add(id(module))
            last = weakref.ref(inputs[0])

    hook = nn.modules.module.register_module_forward_pre_hook(on_call)
    try:
        yield
    finally:
        hook.remove()


def joined_modules(model: nn.Module) -> set[int]:
    """The ids of its norms and its sets of experts, of which every family of models has classes of its own."""
    names = ("Norm", "Experts")
    return {id(module) for module in model.modules() if type(module).__name__.endswith(names)}
