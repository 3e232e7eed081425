"""Lets code for several processes (torch.distributed, DDP, FSDP) run as one of them, without a network or a GPU."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import ModuleType
from typing import Any

import torch
from torch import distributed, multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel

from advisor.workload.import_hooks import patched_on_import
from advisor.workload.patching import Patch, patched
from advisor.workload.user_error import passes_arguments_on

_FSDP = "torch.distributed.fsdp"


@contextmanager
def one_process(
    *,
    note_processes: Callable[[int], None] = lambda count: None,
    note_compute_dtype: Callable[[torch.dtype], None] = lambda dtype: None,
) -> Iterator[None]:
    """Make a process group inside consist of this process; models stay as they are, and collectives do nothing.

    `note_processes` is called with the number of processes that the code asks for, `note_compute_dtype` with the dtype
    in which FSDP would compute.
    """
    with (
        patched(_patches(note_processes), in_all_threads=True),
        patched_on_import({_FSDP: lambda module: _of_fsdp(module, note_compute_dtype)}),
    ):
        try:
            yield
        finally:
            if distributed.is_available() and distributed.is_initialized():
                distributed.destroy_process_group()


class _Done:
    """Replaces the handle of a collective that is finished at once."""

    def wait(self, *_: Any) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


def _patches(note_processes: Callable[[int], None]) -> Iterator[Patch]:
    yield multiprocessing, "spawn", _spawner(note_processes)
    yield nn.SyncBatchNorm, "convert_sync_batchnorm", lambda module, *_, **__: module
    yield from _thin(DistributedDataParallel)
    for name in ("register_comm_hook", "_set_static_graph"):
        yield DistributedDataParallel, name, lambda *_, **__: None
    if distributed.is_available():
        yield distributed, "init_process_group", _initializer(distributed.init_process_group, note_processes)
        for name in ("all_reduce", "reduce", "broadcast", "barrier"):
            yield distributed, name, lambda *_, async_op=False, **__: _Done() if async_op else None


def _of_fsdp(module: ModuleType, note_dtype: Callable[[torch.dtype], None]) -> Iterator[Patch]:
    def note(policy: Any) -> None:
        if (dtype := getattr(policy, "param_dtype", None)) is not None:
            note_dtype(dtype)

    def sharded(model: nn.Module, **settings: Any) -> nn.Module:
        note(settings.get("mp_policy"))
        model.set_requires_gradient_sync = lambda *_, **__: None  # type: ignore[assignment]
        return model

    owner = module.FullyShardedDataParallel
    yield from _thin(owner, held_as="_fsdp_wrapped_module", note=lambda settings: note(settings.get("mixed_precision")))
    for name in ("named_parameters", "named_buffers"):
        yield owner, name, getattr(nn.Module, name)
    yield (
        owner,
        "clip_grad_norm_",
        lambda model, *args, **named: nn.utils.clip_grad_norm_(model.parameters(), *args, **named),
    )
    if hasattr(module, "fully_shard"):
        yield module, "fully_shard", sharded


def _thin(
    owner: Any, *, held_as: str = "module", note: Callable[[dict[str, Any]], None] = lambda settings: None
) -> Iterator[Patch]:
    """Make a wrapper class hold its model and only call it; `note` is given its other arguments."""

    @passes_arguments_on
    def init(wrapper: Any, module: nn.Module, *_: Any, **settings: Any) -> None:
        nn.Module.__init__(wrapper)
        setattr(wrapper, held_as, module)
        note(settings)

    @passes_arguments_on
    def forward(wrapper: Any, *args: Any, **named: Any) -> Any:
        return wrapper.module(*args, **named)

    yield owner, "__init__", init
    yield owner, "forward", forward
    yield owner, "no_sync", lambda wrapper: nullcontext()


def _initializer(initialize: Callable[..., None], note_processes: Callable[[int], None]) -> Callable[..., None]:
    def alone(
        backend: Any = None, init_method: Any = None, timeout: Any = None, world_size: int = -1, *_: Any, **__: Any
    ) -> None:
        note_processes(world_size if world_size > 0 else int(os.environ.get("WORLD_SIZE", "1")))
        store = distributed.HashStore()  # type: ignore[attr-defined]
        initialize("gloo", store=store, rank=0, world_size=1)

    return alone


def _spawner(note_processes: Callable[[int], None]) -> Callable[..., None]:
    @passes_arguments_on
    def alone(function: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, *_: Any, **__: Any) -> None:
        note_processes(nprocs)
        function(0, *args)

    return alone
