"""Maps each operator of ONNX to its counterpart: the calls of torch that compute the same.

The operators are those of https://onnx.ai/onnx/operators/, by their versions: many took their axes as an attribute
before they took them as an input. An operator without a counterpart here is counted as one without a formula.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch.nn import functional

Array = np.ndarray[Any, Any]
Result = Any
"""A tensor, a sequence of tensors, or `NotImplemented` for a form of the operator without a counterpart."""
_SINCE_ONE_AXIS = 13
"""The version from which Softmax works on one axis; before, on all axes from `axis` on."""
_SINCE_BROADCAST_SLOPE = 7
"""The version from which the slope of PRelu broadcasts to its input; before, it had one number or one per channel."""
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One operator call. An omitted input is None; `known` has the inputs whose values follow from shapes alone."""

    op: str
    version: int
    inputs: Sequence[torch.Tensor | None]
    known: Sequence[Array | None]
    attributes: Mapping[str, Any]
    output_count: int

    def tensor(self, index: int = 0) -> torch.Tensor:
        """Return an input that must be there; raise `ValueError` otherwise."""
        found = self.optional(index)
        if found is None:
            raise ValueError(f"input {index} is missing")
        return found

    def optional(self, index: int) -> torch.Tensor | None:
        """Return an input, or None if it is omitted."""
        return self.inputs[index] if index < len(self.inputs) else None

    def is_given(self, index: int) -> bool:
        """Return True if the input is not omitted."""
        return self.optional(index) is not None

    def operand(self, index: int) -> Any:
        """Return an input, as a number if it is a single known one: torch takes numbers as arguments of a kernel."""
        known = self.known[index]
        return self.tensor(index) if known is None or known.size != 1 else known.item()

    def values(self, index: int, name: str = "") -> list[Any] | None:
        """Return the values of an input, or of the attribute that older versions have instead; None if omitted.

        Raises `ValueError` if they depend on what the model computes.
        """
        if not self.is_given(index):
            stated = self.attributes.get(name)
            return stated if stated is None or isinstance(stated, list) else [stated]
        known = self.known[index]
        if known is None:
            raise ValueError(f"input {index} is computed from the model's inputs, so a shape is not known")
        return list(known.reshape(-1).tolist())

    def get(self, name: str, default: Any = None) -> Any:
        """Return an attribute."""
        return self.attributes.get(name, default)

    def by_dimension(self, name: str, count: int) -> list[int]:
        """Return an attribute with a number for each of `count` spatial dimensions; ones if it is omitted."""
        return self.get(name) or [1] * count


Counterpart = Callable[[Call], Result]


def _plain(function: Callable[..., Any], count: int = 1) -> Counterpart:
    return lambda call: function(*(call.tensor(index) for index in range(count)))


def _binary(function: Callable[[Any, Any], Any]) -> Counterpart:
    return lambda call: function(call.operand(0), call.operand(1))


def _variadic(function: Callable[[Any, Any], Any]) -> Counterpart:
    return lambda call: reduce(function, (call.tensor(index) for index in range(len(call.inputs))))


def _divided(call: Call) -> Result:
    first, second = call.operand(0), call.operand(1)
    some = first if isinstance(first, torch.Tensor) else second
    return first / second if some.is_floating_point() else first // second


def _matrix_product(call: Call) -> Result:
    """Gemm: a bias of one row with the weight's transpose is torch's `linear`, whose kernel adds it too."""
    first, second, bias = call.tensor(0), call.tensor(1), call.optional(2)
    first = first.t() if call.get("transA", 0) else first
    second = second.t() if call.get("transB", 0) else second
    alpha, beta = call.get("alpha", 1.0), call.get("beta", 1.0)
    if bias is None:
        product = first @ second
        return product if alpha == 1 else product * alpha
    return torch.addmm(bias, first, second, alpha=alpha, beta=beta)


def _reduced(function: Callable[..., Any]) -> Counterpart:
    """Return the counterpart of a reduction `function(tensor, axes, keepdims)`."""

    def counterpart(call: Call) -> Result:
        axes, source = call.values(1, "axes"), call.tensor()
        if not axes and call.get("noop_with_empty_axes", 0):
            return source
        return function(source, tuple(axes or range(source.dim())), bool(call.get("keepdims", 1)))

    return counterpart


def _product_of(source: torch.Tensor, axes: Sequence[int], keeps: bool) -> torch.Tensor:
    for axis in sorted((axis % source.dim() for axis in axes), reverse=True):
        source = source.prod(axis, keepdim=keeps)
    return source


def _arg(function: Callable[..., torch.Tensor]) -> Counterpart:
    return lambda call: function(call.tensor(), dim=call.get("axis", 0), keepdim=bool(call.get("keepdims", 1)))


def _softmax(function: Callable[..., torch.Tensor]) -> Counterpart:
    def counterpart(call: Call) -> Result:
        source = call.tensor()
        if call.version >= _SINCE_ONE_AXIS:
            return function(source, call.get("axis", -1))
        axis = call.get("axis", 1) % max(1, source.dim())
        return function(source.flatten(axis), axis).reshape(source.shape)

    return counterpart


def _clamped(call: Call) -> Result:
    limits = [
        call.get(name) if not call.is_given(index) else call.operand(index) for index, name in ((1, "min"), (2, "max"))
    ]
    return call.tensor() if limits == [None, None] else torch.clamp(call.tensor(), *limits)


def _sloped(call: Call) -> Result:
    source, slope = call.tensor(0), call.tensor(1)
    if call.version < _SINCE_BROADCAST_SLOPE:
        return torch.prelu(source, slope.reshape(-1))
    return torch.ops.aten._prelu_kernel(source, slope)  # the kernel of torch.prelu, which takes only slopes of channels


# -- convolutions and pooling -----------------------------------------------------------------------------------------


def _padded(
    call: Call, source: torch.Tensor, kernel: Sequence[int], *, value: float = 0.0
) -> tuple[torch.Tensor, list[int]]:
    """Return the source, padded here if its two sides differ, and the padding of each dimension left to the kernel."""
    count = len(kernel)
    steps, gaps = call.by_dimension("strides", count), call.by_dimension("dilations", count)
    mode, pads = call.get("auto_pad", "NOTSET"), call.get("pads") or [0] * (2 * count)
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        # ceil(size / step) outputs: https://onnx.ai/onnx/operators/onnx__Conv.html, `auto_pad`.
        sizes = source.shape[-count:]
        reach = [gap * (size - 1) + 1 for gap, size in zip(gaps, kernel, strict=True)]
        total = [
            max(0, (math.ceil(size / step) - 1) * step + extent - size)
            for size, step, extent in zip(sizes, steps, reach, strict=True)
        ]
        less, more = [pad // 2 for pad in total], [pad - pad // 2 for pad in total]
        pads = [*less, *more] if mode == "SAME_UPPER" else [*more, *less]
    before, after = pads[:count], pads[count:]
    if before == after:
        return source, before
    sides = [side for pair in reversed(list(zip(before, after, strict=True))) for side in pair]
    return functional.pad(source, sides, value=value), [0] * count


def _convolved(call: Call) -> Result:
    source, weight = call.tensor(0), call.tensor(1)
    count = weight.dim() - 2
    source, padding = _padded(call, source, list(weight.shape[2:]))
    steps, gaps = call.by_dimension("strides", count), call.by_dimension("dilations", count)
    convolution = (functional.conv1d, functional.conv2d, functional.conv3d)[count - 1]
    return convolution(source, weight, call.optional(2), steps, padding, gaps, call.get("group", 1))


def _convolved_back(call: Call) -> Result:
    source, weight = call.tensor(0), call.tensor(1)
    count = weight.dim() - 2
    pads = call.get("pads") or [0] * (2 * count)
    if call.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or call.get("output_shape") is not None:
        return NotImplemented
    if pads[:count] != pads[count:]:
        return NotImplemented
    steps, gaps = call.by_dimension("strides", count), call.by_dimension("dilations", count)
    more, groups = call.get("output_padding") or [0] * count, call.get("group", 1)
    transposed = (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)[count - 1]
    return transposed(source, weight, call.optional(2), steps, pads[:count], more, groups, gaps)


def _max_pooled(call: Call) -> Result:
    kernel = call.get("kernel_shape")
    source, padding = _padded(call, call.tensor(), kernel, value=-math.inf)
    pool = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)[len(kernel) - 1]
    steps, gaps = call.by_dimension("strides", len(kernel)), call.by_dimension("dilations", len(kernel))
    return pool(source, kernel, steps, padding, gaps, bool(call.get("ceil_mode", 0)))


def _mean_pooled(call: Call) -> Result:
    kernel = call.get("kernel_shape")
    if any(gap != 1 for gap in call.get("dilations") or ()):
        return NotImplemented
    source, padding = _padded(call, call.tensor(), kernel)
    pool: Any = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)[len(kernel) - 1]
    steps, is_wide = call.by_dimension("strides", len(kernel)), bool(call.get("ceil_mode", 0))
    return pool(source, kernel, steps, padding, is_wide, bool(call.get("count_include_pad", 0)))


def _pooled_to_one(call: Call) -> Result:
    kind = "avg" if call.op == "GlobalAveragePool" else "max"
    count = call.tensor().dim() - 2
    return getattr(functional, f"adaptive_{kind}_pool{count}d")(call.tensor(), (1,) * count)


def _resized(call: Call) -> Result:
    """Resize takes (source, roi, scales, sizes), and (source, scales) before version 11, as Upsample does."""
    source = call.tensor()
    at = 1 if call.op == "Upsample" or len(call.inputs) == 2 else 2
    scales, sizes = call.values(at, "scales"), call.values(3)
    new = sizes or [math.floor(size * scale) for size, scale in zip(source.shape, scales or (), strict=True)]
    mode, count = call.get("mode", "nearest"), source.dim() - 2
    if call.get("axes") is not None or new[:2] != list(source.shape[:2]) or not 1 <= count <= 3:
        return NotImplemented
    if mode == "nearest":
        return functional.interpolate(source, new[2:], mode="nearest")
    form = {"linear": ("linear", "bilinear", "trilinear")[count - 1], "cubic": "bicubic"}[mode]
    is_smooth = bool(call.get("antialias", 0)) and count == 2
    return functional.interpolate(source, new[2:], mode=form, align_corners=False, antialias=is_smooth)


# -- norms ------------------------------------------------------------------------------------------------------------


def _batch_normed(call: Call) -> Result:
    source, weight, bias, mean, variance = (call.tensor(index) for index in range(5))
    if call.get("training_mode", 0):
        return NotImplemented
    return functional.batch_norm(source, mean, variance, weight, bias, training=False, eps=call.get("epsilon", 1e-5))


def _layer_normed(call: Call) -> Result:
    source = call.tensor()
    shape = source.shape[call.get("axis", -1) % source.dim() :]
    weight, bias = (None if one is None else one.expand(shape) for one in (call.optional(1), call.optional(2)))
    if call.op == "RMSNormalization":
        return torch.rms_norm(source, list(shape), weight, call.get("epsilon", 1e-5))
    return torch.native_layer_norm(source, list(shape), weight, bias, call.get("epsilon", 1e-5))


def _group_normed(call: Call) -> Result:
    source, weight, bias = (call.tensor(index) for index in range(3))
    if call.op == "InstanceNormalization":
        return functional.instance_norm(source, weight=weight, bias=bias, eps=call.get("epsilon", 1e-5))
    if weight.shape[0] != source.shape[1]:  # one of each group, before version 21
        return NotImplemented
    return functional.group_norm(source, call.get("num_groups"), weight, bias, call.get("epsilon", 1e-5))


def _normed_over_channels(call: Call) -> Result:
    alpha, beta, bias = call.get("alpha", 1e-4), call.get("beta", 0.75), call.get("bias", 1.0)
    return functional.local_response_norm(call.tensor(), call.get("size"), alpha, beta, bias)


# -- indexing and shapes ----------------------------------------------------------------------------------------------


def _gathered(call: Call) -> Result:
    source, indices, axis = call.tensor(0), call.tensor(1), call.get("axis", 0)
    if (known := call.known[1]) is not None and known.ndim == 0:
        return source.select(axis, int(known))
    if axis == 0 and source.dim() == 2 and indices.dim():
        return functional.embedding(indices, source)
    axis %= source.dim()
    found = source.index_select(axis, indices.reshape(-1))
    return found.reshape([*source.shape[:axis], *indices.shape, *source.shape[axis + 1 :]])


def _gathered_points(call: Call) -> Result:
    if call.get("batch_dims", 0):
        return NotImplemented
    return call.tensor(0)[tuple(call.tensor(1).unbind(-1))]


def _scattered_points(call: Call) -> Result:
    if call.get("reduction", "none") not in ("none", "add"):
        return NotImplemented
    source, indices, updates = (call.tensor(index) for index in range(3))
    return source.index_put(indices.unbind(-1), updates, accumulate=call.get("reduction", "none") == "add")


def _scattered(call: Call) -> Result:
    source, indices, updates = (call.tensor(index) for index in range(3))
    how = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}.get(call.get("reduction", "none"))
    axis = call.get("axis", 0)
    return source.scatter(axis, indices, updates) if how is None else source.scatter_reduce(axis, indices, updates, how)


def _sliced(call: Call) -> Result:
    source = call.tensor()
    starts, ends = call.values(1, "starts") or [], call.values(2, "ends") or []
    axes, steps = call.values(3, "axes") or range(len(starts)), call.values(4) or [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        found = range(source.shape[axis])[slice(start, end, step)]
        ascending = found if step > 0 else found[::-1]
        kept = slice(ascending.start, ascending.stop, ascending.step)
        source = source[(slice(None),) * (axis % source.dim()) + (kept,)]
        source = source if step > 0 else source.flip(axis)
    return source


def _split(call: Call) -> Result:
    source, axis = call.tensor(), call.get("axis", 0)
    sizes = call.values(1, "split")
    if sizes is None:
        count = call.output_count
        size = math.ceil(source.shape[axis] / count)
        sizes = [min(size, source.shape[axis] - size * index) for index in range(count)]
    return source.split(sizes, axis)


def _concatenated(call: Call) -> Result:
    return torch.cat([call.tensor(index) for index in range(len(call.inputs))], call.get("axis", 0))


def _reshaped(call: Call) -> Result:
    source, wanted = call.tensor(), call.values(1, "shape") or []
    if not call.get("allowzero", 0):
        wanted = [source.shape[index] if size == 0 else size for index, size in enumerate(wanted)]
    return source.reshape(wanted)


def _flattened(call: Call) -> Result:
    source, axis = call.tensor(), call.get("axis", 1)
    return source.reshape(math.prod(source.shape[: axis % source.dim() if axis < 0 else axis]), -1)


def _squeezed(call: Call) -> Result:
    axes = call.values(1, "axes")
    return call.tensor().squeeze() if axes is None else call.tensor().squeeze(tuple(axes))


def _unsqueezed(call: Call) -> Result:
    source, axes = call.tensor(), call.values(1, "axes") or []
    for axis in sorted(axis % (source.dim() + len(axes)) for axis in axes):
        source = source.unsqueeze(axis)
    return source


def _expanded(call: Call) -> Result:
    source = call.tensor()
    return source.expand(torch.broadcast_shapes(source.shape, tuple(call.values(1) or ())))


def _with_border(call: Call) -> Result:
    """Pad: all starts, then all ends, of `axes` or of every dimension."""
    source = call.tensor()
    pads, mode = call.values(1, "pads") or [], call.get("mode", "constant")
    axes = [axis % source.dim() for axis in call.values(3) or range(source.dim())]
    around = dict(zip(axes, zip(pads[: len(axes)], pads[len(axes) :], strict=True), strict=True))
    padded = [axis for axis, pair in around.items() if any(pair)]
    if not padded:
        return source
    sides = [side for axis in reversed(range(min(padded), source.dim())) for side in around.get(axis, (0, 0))]
    if mode == "constant":
        return functional.pad(source, sides)
    form = {"reflect": "reflect", "edge": "replicate", "wrap": "circular"}[mode]
    if len(sides) != 2 * (source.dim() - 2):
        return NotImplemented
    return functional.pad(source, sides, mode=form)


def _triangle(call: Call) -> Result:
    diagonal = (call.values(1) or [0])[0]
    return (torch.triu if call.get("upper", 1) else torch.tril)(call.tensor(), diagonal)


def _largest(call: Call) -> Result:
    count = (call.values(1, "k") or [1])[0]
    return torch.topk(call.tensor(), count, call.get("axis", -1), bool(call.get("largest", 1)))


# -- recurrent layers and attention -----------------------------------------------------------------------------------


def _recurrent(call: Call) -> Result:
    """LSTM, GRU and RNN over (tokens, batch, width); weights (directions, gates x hidden, width).

    The gates come in another order than torch's, which changes no cost. Outputs: (tokens, directions, batch, hidden).
    """
    source, gates = call.tensor(), _GATES[call.op]
    directions, hidden = call.tensor(1).shape[0], call.tensor(2).shape[-1]
    is_plain = call.get("layout", 0) == 0 and not call.is_given(4) and not call.is_given(7)
    function: Any = {"LSTM": torch.lstm, "GRU": torch.gru, "RNN": torch.rnn_tanh}[call.op]
    if not is_plain or call.get("direction", "forward") == "reverse":
        return NotImplemented
    weights = []
    for direction in range(directions):
        weights += [call.tensor(1)[direction], call.tensor(2)[direction]]
        if (biases := call.optional(3)) is not None:
            weights += [biases[direction, : gates * hidden], biases[direction, gates * hidden :]]
    batch, count = source.shape[1], 2 if call.op == "LSTM" else 1
    states = [
        source.new_empty((directions, batch, hidden)) if (given := call.optional(5 + index)) is None else given
        for index in range(count)
    ]
    settings = (call.is_given(3), 1, 0.0, False, directions == 2, False)
    output, *last = function(source, states if count == 2 else states[0], weights, *settings)
    return output.reshape(-1, batch, directions, hidden).transpose(1, 2), *last


def _attended(call: Call) -> Result:
    """Attention over (batch, heads, tokens, width), or (batch, tokens, heads x width) with the counts of heads."""
    if any(call.is_given(index) for index in (4, 5)) or call.get("softcap", 0.0):  # a cache, soft caps
        return NotImplemented
    operands = [call.tensor(index) for index in range(3)]
    is_flat = operands[0].dim() == 3
    if is_flat:
        heads = [call.get("q_num_heads"), call.get("kv_num_heads"), call.get("kv_num_heads")]
        operands = [one.unflatten(-1, (count, -1)).transpose(1, 2) for one, count in zip(operands, heads, strict=True)]
    query, key, value = operands
    result = functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=call.optional(3),
        is_causal=bool(call.get("is_causal", 0)),
        scale=call.get("scale"),
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return result.transpose(1, 2).flatten(2) if is_flat else result


_SAME = ("Identity", "Dropout")  # inference
_UNARY: Mapping[str, Callable[..., Any]] = {
    "Abs": torch.abs, "Acos": torch.acos, "Acosh": torch.acosh, "Asin": torch.asin, "Asinh": torch.asinh,
    "Atan": torch.atan, "Atanh": torch.atanh, "BitwiseNot": torch.bitwise_not, "Ceil": torch.ceil, "Cos": torch.cos,
    "Cosh": torch.cosh, "Erf": torch.erf, "Exp": torch.exp, "Floor": torch.floor, "HardSwish": functional.hardswish,
    "IsInf": torch.isinf, "IsNaN": torch.isnan, "Log": torch.log, "Mish": functional.mish, "Neg": torch.neg,
    "Not": torch.logical_not, "Reciprocal": torch.reciprocal, "Relu": torch.relu, "Round": torch.round,
    "Selu": torch.selu, "Sigmoid": torch.sigmoid, "Sign": torch.sign, "Sin": torch.sin, "Sinh": torch.sinh,
    "Softplus": functional.softplus, "Softsign": functional.softsign, "Sqrt": torch.sqrt, "Swish": functional.silu,
    "Tan": torch.tan, "Tanh": torch.tanh,
}  # fmt: skip
_BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "Pow": operator.pow, "Mod": operator.mod,
    "Equal": torch.eq, "Greater": operator.gt, "GreaterOrEqual": operator.ge, "Less": operator.lt,
    "LessOrEqual": operator.le,
}  # fmt: skip
_LOGICAL = {
    "And": torch.logical_and, "Or": torch.logical_or, "Xor": torch.logical_xor, "BitwiseAnd": torch.bitwise_and,
    "BitwiseOr": torch.bitwise_or, "BitwiseXor": torch.bitwise_xor, "MatMul": torch.matmul,
}  # fmt: skip
_REDUCED: Mapping[str, Callable[..., Any]] = {
    "ReduceMean": torch.mean,
    "ReduceSum": torch.sum,
    "ReduceMax": torch.amax,
    "ReduceMin": torch.amin,
    "ReduceProd": _product_of,
    "ReduceLogSumExp": torch.logsumexp,
    "ReduceL1": lambda source, axes, keeps: torch.linalg.vector_norm(source, 1, axes, keeps),
    "ReduceL2": lambda source, axes, keeps: torch.linalg.vector_norm(source, 2, axes, keeps),
    "ReduceSumSquare": lambda source, axes, keeps: source.square().sum(axes, keeps),
    "ReduceLogSum": lambda source, axes, keeps: source.sum(axes, keeps).log(),
}
COUNTERPARTS: Mapping[str, Counterpart] = {
    **{op: _plain(lambda source: source) for op in _SAME},
    **{op: _plain(function) for op, function in _UNARY.items()},
    **{op: _binary(function) for op, function in _BINARY.items()},
    **{op: _plain(function, 2) for op, function in _LOGICAL.items()},
    **{op: _reduced(function) for op, function in _REDUCED.items()},
    "Sum": _variadic(torch.add),
    "Max": _variadic(torch.maximum),
    "Min": _variadic(torch.minimum),
    "Mean": lambda call: _variadic(torch.add)(call) / len(call.inputs),
    "Div": _divided,
    "Gemm": _matrix_product,
    "Einsum": lambda call: torch.einsum(call.get("equation"), *(call.tensor(i) for i in range(len(call.inputs)))),
    "Softmax": _softmax(torch.softmax),
    "LogSoftmax": _softmax(torch.log_softmax),
    "ArgMax": _arg(torch.argmax),
    "ArgMin": _arg(torch.argmin),
    "Clip": _clamped,
    "Celu": lambda call: torch.celu(call.tensor(), call.get("alpha", 1.0)),
    "Elu": lambda call: functional.elu(call.tensor(), call.get("alpha", 1.0)),
    "Gelu": lambda call: functional.gelu(call.tensor(), approximate=call.get("approximate", "none")),
    "HardSigmoid": lambda call: functional.hardsigmoid(call.tensor()),
    "LeakyRelu": lambda call: functional.leaky_relu(call.tensor(), call.get("alpha", 0.01)),
    "ThresholdedRelu": lambda call: functional.threshold(call.tensor(), call.get("alpha", 1.0), 0.0),
    "PRelu": _sloped,
    "Where": lambda call: torch.where(call.tensor(0), call.operand(1), call.operand(2)),
    "Conv": _convolved,
    "ConvTranspose": _convolved_back,
    "MaxPool": _max_pooled,
    "AveragePool": _mean_pooled,
    "GlobalAveragePool": _pooled_to_one,
    "GlobalMaxPool": _pooled_to_one,
    "Resize": _resized,
    "Upsample": _resized,
    "GridSample": lambda call: functional.grid_sample(call.tensor(0), call.tensor(1), align_corners=False),
    "DepthToSpace": lambda call: functional.pixel_shuffle(call.tensor(), call.get("blocksize")),
    "SpaceToDepth": lambda call: functional.pixel_unshuffle(call.tensor(), call.get("blocksize")),
    "BatchNormalization": _batch_normed,
    "LayerNormalization": _layer_normed,
    "RMSNormalization": _layer_normed,
    "GroupNormalization": _group_normed,
    "InstanceNormalization": _group_normed,
    "LRN": _normed_over_channels,
    "LpNormalization": lambda call: functional.normalize(call.tensor(), call.get("p", 2), call.get("axis", -1)),
    "Gather": _gathered,
    "GatherElements": lambda call: torch.gather(call.tensor(0), call.get("axis", 0), call.tensor(1)),
    "GatherND": _gathered_points,
    "ScatterND": _scattered_points,
    "Scatter": _scattered,
    "ScatterElements": _scattered,
    "NonZero": lambda call: torch.nonzero(call.tensor()).t(),
    "CumSum": lambda call: torch.cumsum(call.tensor(), (call.values(1) or [0])[0]),
    "TopK": _largest,
    "Trilu": _triangle,
    "Slice": _sliced,
    "Split": _split,
    "Concat": _concatenated,
    "Reshape": _reshaped,
    "Flatten": _flattened,
    "Squeeze": _squeezed,
    "Unsqueeze": _unsqueezed,
    "Transpose": lambda call: call.tensor().permute(call.get("perm") or tuple(reversed(range(call.tensor().dim())))),
    "Expand": _expanded,
    "Tile": lambda call: call.tensor().repeat(call.values(1) or ()),
    "Pad": _with_border,
    **dict.fromkeys(_GATES, _recurrent),
    "Attention": _attended,
}
"""Operators of ONNX's own domain -> their counterparts."""
