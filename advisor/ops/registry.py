"""Registers the formula for each operator's FLOP and bytes, and defines the types that formulas use."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Literal

Number = Any
"""A float or a numpy array over batch sizes: every formula works on both."""
Autocast = Literal["low", "full", "widest"]
"""Type under autocast: half ("low"), fp32 ("full"), or the widest type of the inputs ("widest")."""
ListedAutocast = Literal["low", "full", "full on GPUs", "widest"]
"""The same as torch lists it for both kinds of devices. "full on GPUs": on CPUs, the widest type of the inputs.

From ATen/autocast_mode.h and .cpp; a backward operator follows its forward. The fp32 list of CPUs has losses and linear
algebra, but no norms, softmax, sums, interpolation or elementwise functions.
"""

IN_HALF = "in_half"
"""Attribute of calls inside an operator that autocast runs in half: they stay in half although listed as fp32."""
IN_FULL = "in_full"
"""Attribute of calls inside an operator that computes in fp32 what it is given in half, whatever autocast does."""
CHANNELS_LAST = "channels_last"
"""Attribute of calls with channels-last images in a net that otherwise uses NCHW, as after norms on permuted images."""
MADE_CONTIGUOUS = "made_contiguous"
"""Attribute: the number of operands that the kernel first copies to a contiguous layout."""
WITHOUT_INDICES = "without_indices"
"""Attribute of max pools that a CPU runs by a kernel without indices: `max_pool1d` without gradients. A GPU always
writes them (`max_pool1d` in ATen's MaxPooling.cpp)."""
COPIES_DESTINATION = "copies_destination"
"""Attribute of writes at indices that are not in place ("aten.index_add"): they copy the whole destination first."""
UNFUSED = "unfused"
"""Attribute of the softmax of attention that torch's math path computes: why no fused kernel does, as `WhyUnfused`."""
STRIDED = "strided"
"""Attribute of elementwise kernels and copies that compute an offset for each element: "transposed" if elements that
are adjacent in one operand are not in another, otherwise "rows"."""

_QUANTIZED_BYTES: Mapping[str, float] = {
    "int8": 1, "float8_e4m3fn": 1,  # with a scale for each column, which is not counted
    "int4": 0.5 + 2.5 / 128,  # an fp16 scale and a 4-bit zero point for 128 weights (AWQ, GPTQ)
    # A scale of 8 bits for 64 weights, and one of 32 bits for 256 scales (Dettmers et al., QLoRA, 2023, section 3).
    "nf4": 0.5 + 1 / 64 + 4 / (64 * 256),
    "mxfp4": 0.5 + 1 / 32,  # a scale of 8 bits for 32 weights (Open Compute Project, "OCP Microscaling Formats", 2023)
    "nvfp4": 0.5 + 1 / 16,  # an fp8 scale for 16 weights (NVIDIA, "Introducing NVFP4", 2025)
    # Bytes of a block over its weights in llama.cpp (ggml/src/ggml-common.h): scales in fp16, packed scales, weights.
    "q4_0": (2 + 16) / 32, "q8_0": (2 + 32) / 32,
    "q4_k": (4 + 12 + 128) / 256, "q5_k": (4 + 12 + 32 + 128) / 256, "q6_k": (2 + 16 + 64 + 128) / 256,
    # Half of the layers each (llama.cpp: src/llama-quant.cpp, `use_more_bits`).
    "q4_k/q6_k": (144 + 210) / 512, "q5_k/q6_k": (176 + 210) / 512,
}  # fmt: skip
QUANTIZED_DTYPES = frozenset(_QUANTIZED_BYTES)
"""Storage dtypes of quantized weights."""
ITEMSIZE_BYTES: Mapping[str, float] = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2,
    "float8_e5m2": 1, "float8_e5m2fnuz": 1, "float8_e4m3fnuz": 1, "float8_e8m0fnu": 1, "float4_e2m1fn_x2": 1,
    "complex128": 16, "complex64": 8, "complex32": 4,
    "int64": 8, "int32": 4, "int16": 2, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8, "bool": 1,
    # torch stores each of these integers in a byte of its own; "int4" is the format of quantized weights.
    "int1": 1, "int2": 1, "int3": 1, "int5": 1, "int6": 1, "int7": 1,
    "uint1": 1, "uint2": 1, "uint3": 1, "uint4": 1, "uint5": 1, "uint6": 1, "uint7": 1,
    "qint8": 1, "quint8": 1, "qint32": 4, "quint4x2": 1 / 2, "quint2x4": 1 / 4,
    "bits1x8": 1, "bits2x4": 1, "bits4x2": 1, "bits8": 1, "bits16": 2,
    **_QUANTIZED_BYTES,
}  # fmt: skip
"""Bytes of an element of each dtype of torch, by its name, and of each format of quantized weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """An operand at a given batch size and precision."""

    shape: tuple[Number, ...]
    dtype: str

    @property
    def numel(self) -> Number:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def itemsize_bytes(self) -> float:
        """Bytes of one element."""
        return ITEMSIZE_BYTES[self.dtype]

    @property
    def size_bytes(self) -> Number:
        """Bytes of all elements."""
        return self.numel * self.itemsize_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One operator call. `inputs` and `outputs` are the tensors in the order of the operator's schema."""

    op: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    attributes: Mapping[str, Any]

    @property
    def read_bytes(self) -> Number:
        """Bytes of all inputs."""
        return sum(tensor.size_bytes for tensor in self.inputs)

    @property
    def write_bytes(self) -> Number:
        """Bytes of all outputs."""
        return sum(tensor.size_bytes for tensor in self.outputs)

    @property
    def output_numel(self) -> Number:
        """Elements of all outputs."""
        return sum(tensor.numel for tensor in self.outputs)

    def streamed(self, *, flops: Number, between_bytes: Number = 0) -> "Cost":
        """Return the cost of reading every input once and writing every output once.

        An operator of several kernels also writes and reads `between_bytes` between them.
        """
        return Cost(
            flops=flops, read_bytes=self.read_bytes + between_bytes, write_bytes=self.write_bytes + between_bytes
        )

    def reading(self, *tensors: Tensor, read_bytes: Number = 0, flops: Number = 0.0) -> "Cost":
        """Return the cost of reading these tensors and `read_bytes` more, and writing every output once."""
        return Cost(
            flops=flops,
            read_bytes=read_bytes + sum(tensor.size_bytes for tensor in tensors),
            write_bytes=self.write_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """FLOP (a multiply-add is two) and bytes that must move between the operator and memory."""

    flops: Number = 0.0
    read_bytes: Number = 0.0
    write_bytes: Number = 0.0
    revisited_bytes: Number = 0.0
    """The part of `read_bytes` that reads the same addresses again."""
    revisited_set_bytes: Number = 0.0
    """The distinct bytes that are read repeatedly; if they fit into a cache, the repeated reads come from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """How the cost of one operator is counted."""

    op: str
    family: str
    autocast: ListedAutocast
    attributes: tuple[str, ...]
    """The schema's non-tensor arguments that `cost` needs; composites have no schema, and bring their own."""
    fusable: bool
    """torch.compile fuses it with its neighbours (pointwise operators, norms, softmax, reductions)."""
    cost: Callable[[Call], Cost]


_FORMULAS: dict[str, Formula] = {}


def aten(names: str) -> tuple[str, ...]:
    """Return the full names of torch's own operators, given separated by spaces."""
    return tuple(f"aten.{name}" for name in names.split())


_LEFT_TO_TORCH = frozenset(
    aten(
        "lu_unpack _to_sparse replication_pad1d_backward replication_pad2d_backward randperm uniform multinomial "
        "masked_scatter_backward upsample_linear1d_backward upsample_trilinear3d_backward upsample_bicubic2d_backward "
        "_weight_norm_interface_backward _thnn_fused_lstm_cell _amp_update_scale gcd digamma polygamma igamma igammac "
        "special_i0e special_i1e special_ndtri special_zeta special_airy_ai special_modified_bessel_k0 "
        "special_modified_bessel_k1 special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1 "
        "special_spherical_bessel_j0 special_chebyshev_polynomial_t special_chebyshev_polynomial_u "
        "special_chebyshev_polynomial_v special_chebyshev_polynomial_w special_shifted_chebyshev_polynomial_t "
        "special_shifted_chebyshev_polynomial_u special_shifted_chebyshev_polynomial_v "
        "special_shifted_chebyshev_polynomial_w special_hermite_polynomial_h special_hermite_polynomial_he "
        "special_laguerre_polynomial_l special_legendre_polynomial_p _adaptive_avg_pool3d "
        "_adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward max_pool3d_with_indices_backward "
        "adaptive_max_pool2d_backward adaptive_max_pool3d_backward fractional_max_pool2d_backward "
        "fractional_max_pool3d_backward histc bincount histogram _histogramdd_from_bin_cts"
    )
)
"""Operators that torch.compile does not fuse, though it fuses others of their kind: those without a decomposition in
`fallbacks` (torch/_inductor/lowering.py, torch 2.13)."""


def formula(
    *ops: str, family: str, autocast: ListedAutocast = "widest", attributes: tuple[str, ...] = (), fusable: bool = False
) -> Callable[[Callable[[Call], Cost]], Callable[[Call], Cost]]:
    """Register the decorated function as the cost of every operator in `ops`."""

    def register(cost: Callable[[Call], Cost]) -> Callable[[Call], Cost]:
        for op in ops:
            # A module whose import a signal handler of the user's ended is imported again.
            known = _FORMULAS[op].cost if op in _FORMULAS else cost
            if (known.__module__, known.__qualname__) != (cost.__module__, cost.__qualname__):
                raise ValueError(f"operator {op} has two formulas: {known} and {cost}")
            _FORMULAS[op] = Formula(
                op=op,
                family=family,
                autocast=autocast,
                attributes=attributes,
                fusable=fusable and op not in _LEFT_TO_TORCH,
                cost=cost,
            )
        return cost

    return register


def streaming(
    *ops: str,
    family: str,
    flops: float | Callable[[Call], Number],
    per: int | Literal["inputs", "outputs"] = "outputs",
    **traits: Any,
) -> None:
    """Register operators that read every input and write every output once.

    `flops` is a function of the call, or a number of FLOP per element of `per`: one input, by its index, all inputs, or
    all outputs. `traits` as in `formula`.
    """

    def cost(call: Call) -> Cost:
        if callable(flops):
            return call.streamed(flops=flops(call))
        tensors = {"inputs": call.inputs, "outputs": call.outputs}[per] if isinstance(per, str) else (call.inputs[per],)
        return call.streamed(flops=flops * sum(tensor.numel for tensor in tensors) if flops else 0.0)

    formula(*ops, family=family, **traits)(cost)


def formula_of(op: str) -> Formula | None:
    """Return the formula of `op`, or None; the caller must then list the operator as unknown, not count it as zero.

    An in-place operator ("aten.add_") has the formula of its out-of-place form.
    """
    _load_families()
    return _FORMULAS.get(op) or _FORMULAS.get(op.removesuffix("_"))


def counted_as(op: str) -> str:
    """Return the operator whose formula counts `op`: "aten.add" for "aten.add_", or `op` itself without a formula."""
    found = formula_of(op)
    return op if found is None else found.op


def number_of(attributes: Mapping[str, Any], name: str) -> float:
    """Return a numeric attribute; raise KeyError if it is missing, and TypeError if it is not a number."""
    value = attributes[name]
    if not isinstance(value, (int, float)):
        raise TypeError(f"attribute {name} is {value!r}, not a number")
    return float(value)


def is_one(length: Number) -> bool:
    """Return whether a dimension is 1 at every batch size."""
    return isinstance(length, (int, float)) and length == 1


def larger(a: Number, b: Number) -> Number:
    """Return the elementwise maximum of numbers or arrays."""
    return (a + b + abs(a - b)) / 2


def smaller(a: Number, b: Number) -> Number:
    """Return the elementwise minimum of numbers or arrays."""
    return (a + b - abs(a - b)) / 2


def log2(value: Number) -> Number:
    """Return the base 2 logarithm of a number or an array; values below 1 count as 1."""
    value = larger(value, 1.0)
    if isinstance(value, float):
        return math.log2(value)
    import numpy as np  # an array argument means that numpy is already loaded; floats must not pay for the import

    return np.log2(value)


def autocast_of(op: str, attributes: Mapping[str, Any], *, on_cpu: bool) -> Autocast:
    """Return what autocast does with a call; operators not on its lists run in the widest type of their inputs."""
    if attributes.get(IN_FULL):
        return "full"
    found = formula_of(op)
    if found is None:
        return "widest"
    policy: Autocast = ("widest" if on_cpu else "full") if found.autocast == "full on GPUs" else found.autocast
    return "low" if policy == "full" and attributes.get(IN_HALF) else policy


def formulas() -> Iterator[Formula]:
    """Return an iterator over all formulas, in order of registration."""
    _load_families()
    return iter(_FORMULAS.values())


@cache
def _load_families() -> None:
    for module in iter_modules(import_module("advisor.ops").__path__):
        import_module(f"advisor.ops.{module.name}")
