"""A FakeTensorMode that starts and dispatches faster, for a process that exists for one trace.

torch's own mode imports the whole compiler in its constructor (0.6 s on top of a torch import of 0.8 s), and a look-up
in its cache of known calls costs as much as a meta kernel. Calls without a fast path go to torch's own mode.
"""

import gc
import importlib
import importlib.util
import os
import sys
import types
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch._decomp import decomposition_table, meta_table
from torch._subclasses.fake_impls import has_meta, index_tensor, op_implementations_checks
from torch._subclasses.fake_tensor import (
    FakeTensor,
    FakeTensorMode,
    in_kernel_invocation_manager,
    torch_decomp_decompositions,
)

from advisor.workload.user_error import passes_arguments_on

_Answer = Callable[["QuickFakeMode", Any, tuple[Any, ...], dict[str, Any]], Any]
_CPU = torch.device("cpu")
_PLAIN_TYPES = (
    int,
    float,
    bool,
    str,
    complex,
    type(None),
    torch.dtype,
    torch.layout,
    torch.memory_format,
    torch.device,
)


_MARKS = ("disable", "allow_in_graph", "assume_constant_result")
"""Decorators of torch's compiler that do nothing outside compilation."""
_RARELY_CALLED = (
    ("torch._dynamo.utils", "is_compile_supported"),  # imported by torchvision
    ("torch._dynamo._trace_wrapped_higher_order_op", "TransformGetItemToIndex"),  # by transformers
)
"""Functions of torch's compiler that libraries import, as (module, name)."""


class _NotPlainError(Exception):
    """Raised for an argument that only torch's own mode handles: a real tensor, a constant, a symbol, an object."""


class QuickFakeMode(FakeTensorMode):
    """Runs operators on plain fake CPU tensors by their meta kernels, and repeated calls from a table of shapes."""

    _answers: dict[Any, _Answer | None]
    _shapes: dict[Any, Any]
    _attributes: dict[str, Any]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    @classmethod
    def create(cls) -> "QuickFakeMode":
        """Return the mode, without importing torch._dynamo unless it is already imported."""
        stand_in_for_dynamo()
        if torch.distributed.is_available():
            # Otherwise some operators import it within the step, which would hold its tensors as below.
            importlib.import_module("torch.distributed.tensor")
        return cls.create_beside_the_compiler()

    @classmethod
    def create_beside_the_compiler(cls) -> "QuickFakeMode":
        """Return the mode; this imports torch._dynamo, as torch's own mode does."""
        mode = cls(allow_non_fake_inputs=True)
        mode._answers = {}
        mode._shapes = {}
        mode._attributes = dict(vars(FakeTensor(mode, torch.empty((), device="meta"), _CPU)))
        return mode

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Answer operators with a fast path without torch's own preparations."""
        if self._answers.get(func) is None:
            return super().__torch_dispatch__(func, types, args, kwargs or {})
        return self._cached_dispatch_impl(func, types, args, kwargs or {})

    def _cached_dispatch_impl(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func not in self._answers:
            self._answers[func] = _short_answer(func)
        answer = self._answers[func]
        try:
            if answer is None:
                raise _NotPlainError
            key = (func, self._key(args), self._key(kwargs.values()), tuple(kwargs), torch.get_default_dtype())
        except _NotPlainError:
            result = self._answer_constant(func, args, kwargs)
            if result is not NotImplemented:
                return result
            return self._answer_as_torch(func, types, args, kwargs)
        known = self._shapes.get(key)
        if known is not None:
            return args[0] if known == "in place" else self._fresh(known)
        result = answer(self, func, args, kwargs)
        if result is NotImplemented:
            return self._answer_as_torch(func, types, args, kwargs)
        self._shapes[key] = _shapes_of(func, result, args)
        return result

    @passes_arguments_on
    def _answer_constant(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Keep the values of tensors made from numbers, as torch's own mode does: optimizers count steps in them."""
        if func in FakeTensorMode.lift_fns:
            return self._constant(args[0].clone()) if self._may_be_constant(args[0]) else NotImplemented
        values = [value.constant if isinstance(value, FakeTensor) else value for value in args]
        are_known = all(isinstance(value, (torch.Tensor, int, float)) for value in values)
        has_constant = any(isinstance(value, FakeTensor) for value in args)
        if kwargs or not are_known or not has_constant or torch.Tag.nondeterministic_seeded in func.tags:
            return NotImplemented
        result = func(*values)
        if result is values[0]:
            return args[0]
        if isinstance(result, (int, float)):
            return result
        return self._constant(result) if self._may_be_constant(result) else NotImplemented

    def _may_be_constant(self, value: Any) -> bool:
        return type(value) is torch.Tensor and value.device == _CPU and self.may_turn_const(value)

    def _constant(self, value: torch.Tensor) -> FakeTensor:
        fake: FakeTensor = self._fresh((tuple(value.shape), value.stride(), value.dtype))
        fake.constant = value
        self.fake_tensor_converter.add_constant_storage_mapping(fake)
        return fake

    def _answer_as_torch(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        import torch._dynamo

        # Makes the stand-in import the real package as a whole, before torch imports parts of it.
        _ = torch._dynamo.reset
        return super()._cached_dispatch_impl(func, types, args, kwargs)

    def _key(self, values: Iterable[Any]) -> tuple[Any, ...]:
        parts: list[Any] = []
        for value in values:
            if isinstance(value, FakeTensor):
                is_known = value.fake_mode is self and value.fake_device == _CPU
                if not is_known or value.constant is not None or value.layout is not torch.strided:
                    raise _NotPlainError
                parts.append((value.shape, value.stride(), value.dtype))
            elif isinstance(value, _PLAIN_TYPES):
                parts.append((type(value), value))
            elif isinstance(value, (list, tuple)):
                parts.append(self._key(value))
            else:
                raise _NotPlainError
        return tuple(parts)

    def _fresh(self, known: Any) -> Any:
        if isinstance(known, list):
            return tuple(self._fresh(part) for part in known)
        if known is None:
            return None
        shape, stride, dtype = known
        return self._fake(torch.empty_strided(shape, stride, dtype=dtype, device="meta"))

    def _fake(self, meta: torch.Tensor) -> FakeTensor:
        """Return a fake CPU tensor with the metadata of `meta`, faster than the constructor of FakeTensor."""
        fake = torch.Tensor._make_subclass(
            FakeTensor, meta, meta.requires_grad, dispatch_device=True, device_for_backend_keys=_CPU
        )
        torch._C._set_throw_on_mutable_data_ptr(fake)
        vars(fake).update(self._attributes)
        return fake


def _shapes_of(func: Any, result: Any, args: tuple[Any, ...]) -> Any:
    """Return the answer for repeated calls, or None if the result shares memory with an argument."""
    returns = func._schema.returns
    if len(returns) == 1 and returns[0].alias_info is not None:
        return "in place" if returns[0].alias_info.is_write and result is args[0] else None
    parts = result if isinstance(result, (list, tuple)) else (result,)
    if any(part is not None and (type(part) is not FakeTensor or part._is_zerotensor()) for part in parts):
        return None  # an operator copies what it adds to a zero tensor
    if any(declared.alias_info is not None or isinstance(declared.type, torch.ListType) for declared in returns):
        return None  # the tensors of a list may share one storage
    if any(part is not None and (part.fake_device != _CPU or part.layout is not torch.strided) for part in parts):
        return None
    read = [value for value in args if isinstance(value, FakeTensor) and value.layout is torch.strided]
    stored = {value.untyped_storage()._cdata for value in read}
    if any(part is not None and part.untyped_storage()._cdata in stored for part in parts):
        return None  # a view that the schema does not declare, such as `_unsafe_view`
    known = [part if part is None else (tuple(part.shape), part.stride(), part.dtype) for part in parts]
    return known if isinstance(result, (list, tuple)) else known[0]


def _short_answer(func: Any) -> _Answer | None:
    """Return how torch's mode would finally answer `func`, or None without a fast path; called once per operator."""
    if not isinstance(func, torch._ops.OpOverload):
        return None
    if func.namespace == "prims" and hasattr(func, "prim_meta_impl"):
        return _run_inside(func.prim_meta_impl)
    if func.namespace == "profiler":
        return lambda mode, func, args, kwargs: func(*args, **kwargs)
    if func.namespace != "aten":
        return None
    if func.name() in _OWN_ANSWERS:
        return _OWN_ANSWERS[func.name()]
    if torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags:
        return None
    if func in FakeTensorMode.lift_fns or torch.Tag.inplace_view in func.tags:
        return None
    if func not in meta_table:
        if func in decomposition_table and torch_decomp_decompositions(func):
            return _run_inside(decomposition_table[func])
        if func._can_decompose():
            return _run_inside(func.decompose)
    for applies, implementation in op_implementations_checks:
        if applies(func):
            return lambda mode, func, args, kwargs: implementation(mode, func, *args, **kwargs)
    return _run_meta_kernel if has_meta(func) else None


def _run_inside(replacement: Callable[..., Any]) -> _Answer:
    """Return an answer by a function of operators that the mode answers in turn."""

    def answer(mode: QuickFakeMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with mode:
            return replacement(*args, **kwargs)

    return answer


def _grouped_mm(mode: QuickFakeMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Answer a mixture of experts' products: torch's meta kernel takes only bf16, its CPU kernel every float type.

    (tokens, k) x (experts, k, n) is (tokens, n); (k, tokens) x (tokens, n), the weights' gradient, is (experts, k, n).
    """
    first, second = args[:2]
    ends = kwargs.get("offs", args[2] if len(args) > 2 else None)
    if (first.dim(), second.dim()) == (2, 3):
        shape = [first.shape[0], second.shape[-1]]
    elif (first.dim(), second.dim()) == (2, 2) and ends is not None:
        shape = [ends.shape[0], first.shape[0], second.shape[-1]]
    else:
        return NotImplemented
    with mode:
        return torch.empty(shape, dtype=first.dtype)


def _index(mode: QuickFakeMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Answer an index of integers, whose result's shape follows from theirs; torch's mode answers one by a mask."""
    if any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1]):
        return NotImplemented
    return index_tensor(mode, func, *args, **kwargs)


@passes_arguments_on
def _run_meta_kernel(mode: QuickFakeMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with in_kernel_invocation_manager(mode):
        result = func(*args, **kwargs)
    if type(result) is torch.Tensor and args and type(args[0]) is FakeTensor and "device" not in kwargs:
        return mode._fake(result)
    flat = [*args, *kwargs.values()]
    flat = [leaf for value in flat for leaf in (value if isinstance(value, (list, tuple)) else (value,))]
    return mode.wrap_meta_outputs_with_default_device_logic(result, func, flat, device=kwargs.get("device"))  # type: ignore[arg-type]


_OWN_ANSWERS: dict[str, _Answer] = {
    "aten::_grouped_mm": _grouped_mm,
    "aten::index.Tensor": _index,
    # torch's mode computes the strides of a view in Python, because sizes may be symbols. That is slower.
    "aten::view": _run_meta_kernel,
    "aten::_unsafe_view": _run_meta_kernel,
}
"""By operator name, because an older torch may lack some of the operators."""


def stand_in_for_dynamo() -> None:
    """Keep torch._dynamo from being imported until it is needed, unless it is imported already.

    FakeTensorMode needs the settings module; dispatch and optimizers call `disable` and `graph_break`, which do nothing
    outside compilation. A bare package provides these, and what libraries need at their import. Any other attribute
    imports the real package.
    """
    if "torch._dynamo" in sys.modules:
        return
    package = types.ModuleType("torch._dynamo")
    package.__path__ = [os.path.join(os.path.dirname(torch.__file__), "_dynamo")]
    package.__file__ = os.path.join(package.__path__[0], "__init__.py")
    package.__dict__.update(dict.fromkeys(_MARKS, _marked))
    package.__dict__["graph_break"] = lambda *_, **__: None
    stand_ins = {"torch._dynamo": package}

    def load_real(module: str, name: str) -> Any:
        if name.startswith("__") and (module, name) != ("torch._dynamo", "__path__"):
            raise AttributeError(name)
        if sys.modules.get("torch._dynamo") is package:
            for stand_in in stand_ins:
                del sys.modules[stand_in]
            _import_dynamo(instead_of=package)
        return getattr(importlib.import_module(module), name)

    for module, function in _RARELY_CALLED:
        stand_ins[module] = types.ModuleType(module)
        stand_ins[module].__dict__[function] = lambda *args, _of=(module, function): load_real(*_of)(*args)
    for module, stand_in in stand_ins.items():
        stand_in.__dict__["__getattr__"] = partial(load_real, module)
    sys.modules |= stand_ins
    importlib.import_module("torch._dynamo.config")
    del package.__path__  # importing any other submodule then imports the real package


def _marked(fn: Any = None, *_: Any, **__: Any) -> Any:
    """Return the function unchanged, or the decorator that does so."""
    return _marked if fn is None else fn


def _import_dynamo(*, instead_of: types.ModuleType) -> None:
    """Import the real torch._dynamo and keep submodules that were already imported, which torch 2.6 reads from it."""
    spec = importlib.util.find_spec("torch._dynamo")
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError("torch._dynamo")
    dynamo = importlib.util.module_from_spec(spec)
    parts = {name: value for name, value in vars(instead_of).items() if isinstance(value, types.ModuleType)}
    vars(dynamo).update(parts)
    sys.modules["torch._dynamo"] = dynamo
    with torch._C._EnableTorchFunction():  # torch 2.6 needs this to find its own methods during the import
        spec.loader.exec_module(dynamo)
    torch._dynamo = dynamo
    gc.collect()  # `torch.fx.wrap` leaves cycles that hold the frames of the import's callers, and so a step's tensors
