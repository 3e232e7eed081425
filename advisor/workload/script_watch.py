"""Notes what a script sets for itself while it runs: autocast, torch.compile, its data loader, and from which line.

Autocast and gradient scalers are off inside, so that the step is traced in the model's own precision.
"""

import functools
import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data._utils.fetch import _MapDatasetFetcher
from torch.utils.data.dataloader import _BaseDataLoaderIter

from advisor import units
from advisor.records.device import Layout, Precision
from advisor.records.script import Script
from advisor.workload.flex_attention import FLEX_MODULE
from advisor.workload.own_autocast import IS_ON
from advisor.workload.patching import Patch
from advisor.workload.torch_devices import AUTOCAST_OF, HALF_OF, layout_of, plain_precision
from advisor.workload.user_error import is_user_file, passes_arguments_on, place_now

_UNCOMPILED_BACKENDS = ("eager", "aot_eager")
"""Backends that torch lists for debugging; they run torch's own kernels (PyTorch docs, "torch.compiler")."""
_OF_AUTOCAST = ("autocast_mode.py", "typing_extensions.py", "warnings.py")
"""Files of autocast's classes and of the decorator that deprecates some of them."""
_TIMED_S = 0.5
_TIMED_BATCHES = 8


@dataclass(slots=True, eq=False)
class _Autocast:
    """One use of autocast; without a dtype, torch's default for the device."""

    device: str
    dtype: torch.dtype | None
    is_on: bool
    place: str
    is_own: bool
    """Written in the user's code; libraries switch autocast off around parts of a model."""


class ScriptWatch:
    """The settings that the script has made so far; `begin` is called when its step begins."""

    def __init__(self) -> None:
        self._autocasts: list[_Autocast] = []
        """The autocast contexts that the step has entered, innermost last."""
        self._entered_before: list[_Autocast] = []
        """The autocast contexts that were entered before the step and are still open."""
        self.on_left: Callable[[], None] = lambda: None
        """Called when the step leaves an autocast that was entered before it."""
        self._autocast: _Autocast | None = None
        self._off: _Autocast | None = None
        self._told: tuple[Precision, str] | None = None
        self._processes = (1, "")
        self._assumed: list[str] = []
        self._sample_count: int | None = None
        self._compiled: list[tuple[Any, str]] = []
        self._scaler = ""
        self._loader: tuple[DataLoader[Any], str] | None = None
        self._loaders: WeakKeyDictionary[Any, tuple[DataLoader[Any], str]] = WeakKeyDictionary()
        """The loader of each iterator, and the line that began it."""
        self._is_in_step = False
        self._plain: Precision = "cudnn-tf32"
        self._half: Precision | None = None
        self._dtypes: list[str] = []
        self._layout: Layout = "nchw"

    def begin(self, model: nn.Module, inputs: Sequence[torch.Tensor]) -> None:
        """Note the settings in which the step begins."""
        self._is_in_step = True
        self._entered_before = list(self._autocasts)
        for autocast in self._autocasts[-1:]:
            self._use(autocast)
        self._plain = plain_precision()
        dtypes = {parameter.dtype for parameter in model.parameters() if parameter.dtype.is_floating_point}
        self._dtypes = sorted(str(dtype).removeprefix("torch.") for dtype in dtypes)
        self._half = HALF_OF.get(dtypes.pop()) if len(dtypes) == 1 else None
        self._layout = layout_of((*inputs, *model.parameters()))

    @property
    def has_parts_in_autocast(self) -> bool:
        """True if code of the step has used autocast on parameters in fp32, so that only parts of it run in 16 bits."""
        return self._autocast is not None and self._told is None and self._half is None

    @property
    def is_in_autocast(self) -> bool:
        """True inside the script's autocast; also if a library was told to use it."""
        return self._told is not None or (bool(self._autocasts) and self._autocasts[-1].is_on)

    def script(self, model: nn.Module, *, passes: int, batch: int, may_autocast: bool) -> Script:
        """Return what the script has set; its loader is timed now. `may_autocast`: its code has autocast somewhere."""
        gpu, cpu = self._precisions()
        loader = None if self._loader is None else self._loader[0]
        return Script(
            gpu_precision=gpu,
            cpu_precision=cpu,
            compile="compile" if self._compile_place(model) else "eager",
            layout=self._layout,
            passes=passes,
            worker_count=None if loader is None else loader.num_workers,
            loader_s_per_sample=None if loader is None else _loader_s_per_sample(loader, batch=batch // passes),
            sample_count=self._sample_count,
            unused_autocast=self._unused_autocast(may_autocast=may_autocast),
        )

    def notes(self, script: Script, model: nn.Module, *, accumulated: int) -> Iterator[str]:
        """Yield what was seen, each with its line; `accumulated` is the passes of each optimizer step."""
        compiled = self._compile_place(model)
        seen = [self._precision_text(script)]
        seen.append(f"torch.compile ({compiled})" if compiled else "no torch.compile")
        if script.layout == "nhwc":
            seen.append("channels-last images")
        if accumulated > 1:
            seen.append(f"gradients of {accumulated} passes for each step of the optimizer")
        seen.append("no DataLoader" if self._loader is None else self._loader_text(script, *self._loader))
        yield f"seen in the script: {', '.join(seen)}"
        yield from dict.fromkeys(self._assumed)
        count, place = self._processes
        if count > 1:
            yield f"the script trains in {count} processes together ({place}): this is the step of one of them"

    def patches(self) -> Iterator[Patch]:
        """Yield the replacements of torch's functions that note their calls here."""
        autocast = torch.amp.autocast_mode.autocast
        yield autocast, "__init__", self._autocast_init(autocast.__init__)
        yield autocast, "__enter__", _noting(self._entered, autocast.__enter__)
        yield autocast, "__exit__", _noting(self._left, autocast.__exit__)
        yield torch.amp.GradScaler, "__init__", self._scaler_init(torch.amp.GradScaler.__init__)
        yield torch, "compile", self._compile
        yield nn.Module, "compile", lambda module, *_, **settings: self._note_compiled(module, settings)
        yield DataLoader, "__iter__", self._iterate(DataLoader.__iter__)
        yield _BaseDataLoaderIter, "__next__", _noting(self._note_loader, _BaseDataLoaderIter.__next__)

    def note_gpu_precision(self, precision: Precision) -> None:
        """Note what a library was told to use on a GPU; it may use less here."""
        self._told = (precision, place_now())

    def note_gpu_compute_dtype(self, dtype: torch.dtype) -> None:
        """Note the dtype in which FSDP computes with its fp32 parameters, which is taken for autocast."""
        if precision := AUTOCAST_OF.get(dtype):
            self.note_gpu_precision(precision)

    def note_processes(self, count: int) -> None:
        """Note that the script trains in `count` processes together; one of them is traced."""
        if count > self._processes[0]:
            self._processes = (count, place_now())

    def note_job(self, sample_count: int, how: str) -> None:
        """Note how many samples the script trains, and how that is known."""
        self._sample_count = sample_count
        self.note(f"the script trains {sample_count:,} samples ({how}, {place_now()})")

    def note(self, text: str) -> None:
        """Note what was assumed, in words."""
        self._assumed.append(text)

    # -- precision ----------------------------------------------------------------------------------------------------

    def _use(self, autocast: _Autocast) -> None:
        if autocast.is_on:
            self._autocast = self._autocast or autocast
        elif autocast.is_own:
            self._off = self._off or autocast

    def _precisions(self) -> tuple[Precision, Precision]:
        """Return the precision on GPUs and on CPUs. Autocast for CUDA is off without it; its default is fp16."""
        used = self._autocast
        if used is None:
            on_gpu, on_cpu = (self._half, self._half) if self._half else (self._plain, "fp32")
            return self._told[0] if self._told else on_gpu, on_cpu
        on_gpu = self._told[0] if self._told else AUTOCAST_OF.get(used.dtype, "amp-fp16")
        return on_gpu, AUTOCAST_OF.get(used.dtype, "amp-bf16") if used.device == "cpu" else "fp32"

    def _unused_autocast(self, *, may_autocast: bool) -> str:
        if self._autocast is not None or self._told is not None or not (self._off or may_autocast):
            return ""
        where = f" ({self._off.place})" if self._off is not None else ""
        return (
            f"the script has autocast{where}, but it was not on in this run, which shows the script no GPU; if it is "
            "on where there is one, add --precision amp-bf16 or amp-fp16"
        )

    def _precision_text(self, script: Script) -> str:
        place = self._told[1] if self._told else self._autocast.place if self._autocast else None
        if place is not None:
            kind = "fp16" if script.gpu_precision == "amp-fp16" else "bf16"
            scaled = f" with scaled gradients ({self._scaler})" if self._scaler else ""
            return f"autocast in {kind} ({place}){scaled}"
        if script.gpu_precision in HALF_OF.values():
            return f"a model in {script.gpu_precision}"
        if len(self._dtypes) > 1:
            return f"parameters in {' and '.join(self._dtypes)}, without autocast"
        text = {"cudnn-tf32": "fp32 without autocast", "tf32": "fp32 with TF32, without autocast"}
        return text.get(str(script.gpu_precision), "fp32 without TF32 or autocast")

    def _autocast_init(self, init: Callable[..., None]) -> Callable[..., None]:
        def noted(
            autocast: Any,
            device_type: str,
            dtype: torch.dtype | None = None,
            enabled: bool = True,
            cache_enabled: bool | None = None,
        ) -> None:
            setattr(autocast, IS_ON, bool(enabled))
            autocast.advisor_seen = _Autocast(
                device=device_type, dtype=dtype, is_on=bool(enabled), place=place_now(), is_own=_is_called_by_user()
            )
            init(autocast, device_type, dtype=dtype, enabled=False, cache_enabled=cache_enabled)

        return noted

    def _entered(self, autocast: Any) -> None:
        self._autocasts.append(autocast.advisor_seen)
        if self._is_in_step:
            self._use(autocast.advisor_seen)

    def _left(self, autocast: Any, *_: Any) -> None:
        if autocast.advisor_seen in self._autocasts:
            self._autocasts.remove(autocast.advisor_seen)
        if autocast.advisor_seen in self._entered_before:
            self._entered_before.remove(autocast.advisor_seen)
            self.on_left()

    def _scaler_init(self, init: Callable[..., None]) -> Callable[..., None]:
        @passes_arguments_on
        def noted(scaler: Any, *args: Any, **settings: Any) -> None:
            given = inspect.signature(init).bind(scaler, *args, **settings)
            if given.arguments.get("enabled", True):
                self._scaler = place_now()
            given.arguments["enabled"] = False
            init(*given.args, **given.kwargs)

        return noted

    # -- torch.compile ------------------------------------------------------------------------------------------------

    def _compile(self, model: Any = None, **settings: Any) -> Any:
        if model is None:
            return lambda function: self._compile(function, **settings)
        if getattr(model, "__module__", "") == FLEX_MODULE:  # one operator of the model and its mask
            return model
        if isinstance(model, nn.Module) or not callable(model):
            self._note_compiled(model, settings)
            return model

        @functools.wraps(model)
        @passes_arguments_on
        def called(*args: Any, **others: Any) -> Any:
            self._note_compiled(None, settings, place=place)
            return model(*args, **others)

        place = place_now()
        return called

    def _note_compiled(self, module: Any, settings: dict[str, Any], *, place: str = "") -> None:
        if not settings.get("disable") and settings.get("backend") not in _UNCOMPILED_BACKENDS:
            self._compiled.append((module, place or place_now()))

    def _compile_place(self, model: nn.Module) -> str:
        """Return where the model, a part of it, a network around it, or a function that ran was compiled."""
        parts = {id(part) for part in model.modules()}
        for module, place in self._compiled:
            around = module.modules() if isinstance(module, nn.Module) else ()
            if module is None or id(module) in parts or any(part is model for part in around):
                return place
        return ""

    # -- data ---------------------------------------------------------------------------------------------------------

    def _iterate(self, iterate: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Note the loader, and load in this process: its workers would be copies of a process that traces."""

        @passes_arguments_on
        def noted(loader: Any) -> Any:
            workers, timeout = loader.num_workers, loader.timeout
            loader.num_workers, loader.timeout = 0, 0
            try:
                batches = iterate(loader)
            finally:
                loader.num_workers, loader.timeout = workers, timeout
            self._loaders[batches] = loader, place_now()
            return batches

        return noted

    def _note_loader(self, batches: Any) -> None:
        """Note the loader of a batch; the last one before the step is the step's."""
        if not self._is_in_step:
            self._loader = self._loaders.get(batches)

    def _loader_text(self, script: Script, loader: DataLoader[Any], place: str) -> str:
        workers = f"{loader.num_workers} worker{'' if loader.num_workers == 1 else 's'}"
        each = script.loader_s_per_sample
        took = "" if each is None else f", {units.format_duration(each)} per sample on one thread of this machine"
        return f"a DataLoader with {workers} ({place}){took}"


def _noting(note: Callable[..., None], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function`, which first passes its arguments to `note`."""

    def noted(*args: Any) -> Any:
        note(*args)
        return function(*args)

    return noted


def _is_called_by_user() -> bool:
    """Return True if the caller, apart from the classes of autocast, is the user's code and not a library's."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.endswith((__file__, *_OF_AUTOCAST)):
        frame = frame.f_back
    return frame is not None and is_user_file(frame.f_code.co_filename)


def _loader_s_per_sample(loader: DataLoader[Any], *, batch: int) -> float | None:
    """Return the median time in which one thread loads a sample of the step's batches; None if that cannot be told.

    The script has loaded its first batch in the same way before. A stream cannot be read a second time.
    """
    batches = loader.batch_sampler
    loaded = loader.batch_size or getattr(batches, "batch_size", None)  # as Accelerate makes loaders
    if batches is None or loaded != batch or isinstance(loader.dataset, IterableDataset):
        return None
    fetcher = _MapDatasetFetcher(loader.dataset, True, loader.collate_fn, False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in a worker of a DataLoader
    took_s: list[float] = []
    end_s = time.perf_counter() + _TIMED_S
    try:
        for indices in islice(batches, _TIMED_BATCHES):
            start_s = time.perf_counter()
            fetcher.fetch(indices)
            took_s.append((time.perf_counter() - start_s) / len(indices))
            if time.perf_counter() > end_s:
                break
    except Exception:  # noqa: BLE001 - the user's data set, which may raise anything
        return None
    finally:
        torch.set_num_threads(threads)
    return sorted(took_s)[len(took_s) // 2] if took_s else None
