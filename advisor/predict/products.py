"""A call of a matrix family in, the matrix products that its kernels compute out."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from advisor.ops.registry import Call, Number, Tensor
from advisor.ops.rnn import GATE_COUNTS
from advisor.records.workload import Attribute

_TILED_GROUP_CHANNELS = frozenset({4, 8, 16, 32})
_MANY_GROUPS, _MANY_CHANNELS = 32, 128
"""For which grouped convolutions cuDNN's tensor cores find all gradients channels-last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One kernel of `groups` matrix products (m, k) x (k, n): what decides how well it fills tiles and multiprocessors.

    `is_depthwise`: a convolution with one input channel per group, which runs outside matrix units.
    `can_winograd`: a 3 x 3 convolution of stride 1, which has an algorithm with fewer multiplications.
    `is_direct_channels_last`: the gradient of grouped weights that has no kernel for tensor cores with images in NHWC.
    """

    groups: Number = 1.0
    m: Number
    n: Number
    k: Number
    is_depthwise: bool = False
    can_winograd: bool = False
    is_direct_channels_last: bool = False


def products_of(call: Call) -> tuple[Product, ...]:
    """The products of one call; none where the operator is no matrix product or its shapes say nothing."""
    find = _BY_OP.get(call.op)
    return find(call) if find else ()


def _matmul(call: Call) -> tuple[Product, ...]:
    a, b = call.inputs[:2]
    return (_of_matrices(a, b),)


def _add_matmul(call: Call) -> tuple[Product, ...]:
    _, a, b = call.inputs[:3]
    return (_of_matrices(a, b),)


def _of_matrices(a: Tensor, b: Tensor) -> Product:
    """(..., m, k) x (..., k, n): batched where `b` has a batch, else one product of all rows."""
    k, n = a.shape[-1], b.shape[-1]
    if len(b.shape) > 2:
        return Product(groups=math.prod(a.shape[:-2]), m=a.shape[-2], n=n, k=k)
    return Product(m=math.prod(a.shape[:-1]), n=n, k=k)


def _linear(call: Call) -> tuple[Product, ...]:
    source, result = call.inputs[0], call.outputs[0]
    return (Product(m=math.prod(result.shape[:-1]), n=result.shape[-1], k=source.shape[-1]),)


def _convolution(call: Call) -> tuple[Product, ...]:
    """Implicit GEMM: a row per output pixel, a column per output channel of a group."""
    source, weight = call.inputs[:2]
    return (_implicit_gemm(source, weight, call.outputs[0], attributes=call.attributes),)


def _implicit_gemm(source: Tensor, weight: Tensor, result: Tensor, *, attributes: Mapping[str, Attribute]) -> Product:
    """Weight (out, in / groups, *kernel); transposed, the product runs from the larger image to the smaller.

    Winograd's tiles are of pixels side by side: a dilated kernel has none.
    """
    small, large = (source, result) if attributes.get("transposed") else (result, source)
    groups = _fixed(large.shape[1]) / _fixed(weight.shape[1])
    pixels = small.shape[0] * math.prod(small.shape[2:])
    kernel = tuple(_fixed(size) for size in weight.shape[2:])
    return Product(
        groups=groups,
        m=pixels,
        n=weight.shape[0] / groups,
        k=math.prod(weight.shape[1:]),
        is_depthwise=groups > 1 and _fixed(weight.shape[1]) == 1,
        can_winograd=kernel == (3.0, 3.0) and groups == 1 and _is_dense(attributes) and _same_size(source, result),
    )


def _convolution_backward(call: Call) -> tuple[Product, ...]:
    """Inputs (grad_output, input, weight): the input's gradient sums over out x kernel, the weight's over pixels."""
    grad_output, source, weight = call.inputs[:3]
    forward = _implicit_gemm(source, weight, grad_output, attributes=call.attributes)
    wants_input, wants_weight, _ = call.attributes["output_mask"]
    taps = math.prod(weight.shape[2:])
    products = []
    if wants_input:
        products.append(
            Product(
                groups=forward.groups,
                m=source.shape[0] * math.prod(source.shape[2:]),
                n=weight.shape[1],
                k=forward.n * taps,
                is_depthwise=forward.is_depthwise,
                can_winograd=forward.can_winograd,
            )
        )
    if wants_weight:
        products.append(
            Product(
                groups=forward.groups,
                m=forward.n,
                n=forward.k,
                k=forward.m,
                is_depthwise=forward.is_depthwise,
                can_winograd=forward.can_winograd,
                is_direct_channels_last=_is_direct_channels_last(source, weight, forward, attributes=call.attributes),
            )
        )
    return tuple(products)


def _is_direct_channels_last(
    source: Tensor, weight: Tensor, forward: Product, *, attributes: Mapping[str, Attribute]
) -> bool:
    """Whether cuDNN finds the gradient of grouped weights by its direct kernel alone where channels come last
    (wgrad2d_grouped_direct_kernel in pytorch/pytorch#34977).

    Of 587 nets trained in NHWC on an RTX 3090 those escape it whose groups are of 4, 8, 16 or 32 channels, as many out
    as in, under dense kernels of 3 x 3, if there are 32 groups or more than 128 channels. Images of a batch of one, as
    convolutions with weights by sample have them, are in no layout.
    """
    if len(weight.shape) != 4 or forward.is_depthwise or _fixed(forward.groups) == 1 or _is_one(source.shape[0]):
        return False
    channels, groups = _fixed(source.shape[1]), _fixed(forward.groups)
    has_tiles = channels / groups == _fixed(forward.n) and _fixed(forward.n) in _TILED_GROUP_CHANNELS
    is_usual = all(_fixed(size) == 3 for size in weight.shape[2:]) and _is_dense(attributes)
    return not (has_tiles and is_usual and (groups >= _MANY_GROUPS or channels > _MANY_CHANNELS))


def _is_one(length: Number) -> bool:
    return isinstance(length, (int, float)) and length == 1


def _attention(call: Call) -> tuple[Product, ...]:
    """Fused: a block of queries passes over all keys; (..., length, head_dim)."""
    is_backward = call.op.endswith("backward")
    query, key = call.inputs[1 if is_backward else 0 :][:2]
    return (Product(groups=math.prod(query.shape[:-2]), m=query.shape[-2], n=query.shape[-1], k=key.shape[-2]),)


def _recurrent(call: Call) -> tuple[Product, ...]:
    """Of every layer one product for the inputs of all time steps, and at each step a narrow one for the state."""
    attributes = call.attributes
    gates_numel = GATE_COUNTS[attributes["mode"]] * attributes["hidden_size"]
    result = call.inputs[0] if call.op.endswith("backward") else call.outputs[0]
    tokens = math.prod(result.shape[:-1])
    return (
        Product(m=tokens, n=gates_numel, k=attributes["input_size"]),
        Product(
            m=tokens / recurrent_steps(call),
            n=gates_numel,
            k=attributes.get("proj_size", 0) or attributes["hidden_size"],
        ),
    )


def recurrent_steps(call: Call) -> Number:
    """Time steps of the input (steps, batch, features), (batch, steps, features) or, unbatched, (steps, features).

    A packed input is (tokens, features) beside a state (layers, batch, hidden): its steps are tokens per sample.
    """
    inputs = call.inputs
    shape = inputs[0].shape
    state = 2 if call.op == "rnn_backward" else 1  # behind the input, and in backward behind the output's gradient
    if len(shape) == 2 and len(inputs) > state and len(inputs[state].shape) == 3:
        return shape[0] / inputs[state].shape[1]
    return shape[1 if call.attributes["batch_first"] and len(shape) == 3 else 0]


def _is_dense(attributes: Mapping[str, Attribute]) -> bool:
    dilation = attributes.get("dilation")
    return all(step == 1 for step in dilation) if isinstance(dilation, (list, tuple)) else True


def _same_size(source: Tensor, result: Tensor) -> bool:
    return all(_fixed(a) == _fixed(b) for a, b in zip(source.shape[2:], result.shape[2:], strict=True))


def _fixed(length: Number) -> float:
    """A length that does not grow with the batch, though it may come as one number per batch size."""
    return float(length if isinstance(length, (int, float)) else length.flat[0])


_BY_OP: Mapping[str, Callable[[Call], tuple[Product, ...]]] = {
    "aten.mm": _matmul,
    "aten.bmm": _matmul,
    "aten.matmul": _matmul,
    "aten.addmm": _add_matmul,
    "aten.baddbmm": _add_matmul,
    "aten._addmm_activation": _add_matmul,
    "aten.linear": _linear,
    "aten.convolution": _convolution,
    "aten.conv2d": _convolution,
    "aten.convolution_backward": _convolution_backward,
    "attention": _attention,
    "attention_backward": _attention,
    "rnn": _recurrent,
    "rnn_backward": _recurrent,
}
