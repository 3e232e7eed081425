"""Traces one step of a model in the caller's own process, and leaves the process unchanged."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from advisor.records.workload import Attention, Mode, Workload
from advisor.workload.cuda_redirect import cuda_redirected
from advisor.workload.loaded import LoadedModel
from advisor.workload.torch_log import fake_tensor_log_silenced
from advisor.workload.trace import trace

_ONE_AT_A_TIME = threading.RLock()
"""Random generators, warning filters and torch's functions are shared by the process. The lock is reentrant: patches of
a nested trace lie on top and are removed first."""


@contextmanager
def gradients_allowed() -> Iterator[None]:
    """Allow training inside, even if the caller is in `torch.no_grad()` or `torch.inference_mode()`."""
    with torch.inference_mode(mode=False), torch.enable_grad():
        yield


def trace_live(loaded: LoadedModel, *, mode: Mode, batch: int | None, attention: Attention) -> Workload:
    """Trace one step as `trace` does, one thread at a time; other threads see torch unpatched."""
    with (
        _ONE_AT_A_TIME,
        gradients_allowed(),
        cuda_redirected(in_all_threads=False),
        fake_tensor_log_silenced(),
    ):
        return trace(loaded, mode=mode, batch=batch, attention=attention)
