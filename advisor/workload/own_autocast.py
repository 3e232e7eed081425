"""Follows where a model switches autocast off around a part of itself, which then computes in fp32."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import checkpoint

from advisor.workload import patching
from advisor.workload.recorder import Recorder

IS_ON = "advisor_is_on"
"""Attribute of an autocast context: whether the code asked for autocast, which is off in a trace and without a GPU."""


def autocast_followed(recorder: Recorder) -> Iterator[patching.Patch]:
    """Yield patches that tell the recorder when the model's code enters and leaves a region of autocast.

    The inputs of such a region are taken to be cast to fp32, since its parameters are in fp32.
    """
    autocast = torch.amp.autocast_mode.autocast
    init: Callable[..., None] = autocast.__init__
    enter: Callable[..., Any] = autocast.__enter__
    leave: Callable[..., Any] = autocast.__exit__
    autocast_file = torch.amp.autocast_mode.__file__

    def made(
        self: Any,
        device_type: str,
        dtype: torch.dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        init(self, device_type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)
        # A checkpoint enters the autocast of its forward pass again, which is off in a trace.
        is_of_checkpoint = patching.caller(skipping=(__file__, autocast_file)) == checkpoint.__file__
        setattr(self, IS_ON, bool(enabled) or is_of_checkpoint)

    def entered(self: Any) -> Any:
        recorder.enter_autocast(is_on=getattr(self, IS_ON, True))
        return enter(self)

    def left(self: Any, *args: Any) -> Any:
        recorder.leave_autocast()
        return leave(self, *args)

    patches: tuple[tuple[str, Callable[..., Any]], ...] = (
        ("__init__", made), ("__enter__", entered), ("__exit__", left),
    )  # fmt: skip
    for name, replacement in patches:
        yield autocast, name, replacement
