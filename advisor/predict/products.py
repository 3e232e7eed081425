"""A call of a matrix family in, the matrix products that its kernels compute out."""

import math
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace

from advisor.ops.matmul import chosen_expert_count
from advisor.ops.registry import Call, Number, Tensor, aten
from advisor.ops.rnn import layers_of
from advisor.records.workload import Attribute

_PLANE_DIMS = 2
_TILED_GROUP_CHANNELS = frozenset({4, 8, 16, 32})
_MANY_GROUPS, _MANY_CHANNELS = 32, 128
"""For which grouped convolutions cuDNN's tensor cores find all gradients channels-last."""
_DIRECT_GROUP_CHANNELS = 64.0
"""The width of the groups whose gradient the ratios of direct kernels are of."""
_WIDEST_SINGLE_TILE, _TILE_STEP = 128.0, 64.0
"""Groups of channels fill tiles that are powers of two as far as 128, then many of 64."""
_WRITTEN_FOR_NCHW, _WRITTEN_FOR_NHWC = frozenset({1.0, 3.0, 5.0}), frozenset({1.0, 3.0, 5.0, 7.0})
"""The sizes of square depthwise kernels that torch's code (ATen: DepthwiseConv2d.cu), and cuDNN's, is written for."""
_TORCH_DIRECT_RATIO, _CUDNN_DIRECT_RATIO = 0.7, 2.4
"""What other sizes take. For 1e12 FLOP in NCHW MixNet, FastViT and ConvMixer took 0.5 to 0.7 s on an RTX 3090 and 0.3 s
on an RTX 4090; channels-last EdgeNeXt, FocalNet and ConvMixer took 1.9 and 1.1 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnGpu:
    """How a GPU's kernels for images in one order take the shapes of a convolution.

    `padded_ratio`: how many times its FLOP tensor cores compute to fill their tiles. `direct_ratio`: where there is but
    a direct kernel for such shapes, how long a FLOP takes it, in those of gradients of grouped weights, 64 channels a
    group; 0: there is another.
    """

    padded_ratio: float = 1.0
    direct_ratio: float = 0.0


AS_IT_IS = OnGpu()


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One kernel of `groups` matrix products (m, k) x (k, n): what decides how well it fills tiles and multiprocessors.

    `is_depthwise`: a convolution with one input channel per group, which runs outside matrix units.
    `can_winograd`: a 3 x 3 convolution of stride 1, which has an algorithm with fewer multiplications.
    `nchw`, `nhwc`: with images in that order. `share`: of its row's FLOP and bytes, relative to the row's other
    products. `family`: that of its kernel where it is not the row's; `is_gradient`: a library computes it as it does a
    gradient.
    """

    groups: Number = 1.0
    m: Number
    n: Number
    k: Number
    is_depthwise: bool = False
    can_winograd: bool = False
    nchw: OnGpu = AS_IT_IS
    nhwc: OnGpu = AS_IT_IS
    share: Number = 1.0
    is_gradient: bool = False
    family: str = ""


def has_products(op: str) -> bool:
    """Whether the shapes of such calls tell of their products."""
    return op in _BY_OP


def products_of(call: Call) -> tuple[Product, ...]:
    """The products of one call; none where the operator is no matrix product or its shapes say nothing."""
    find = _BY_OP.get(call.op)
    return find(call) if find else ()


def _matmul(call: Call) -> tuple[Product, ...]:
    a, b = call.inputs[:2]
    return (_of_matrices(a, b),)


def _grouped_matmul(call: Call) -> tuple[Product, ...]:
    """Rows (m, k) with (groups, k, n): every group has its part of the rows, those that some token chose alone. Else
    the groups share the columns of (groups, m, k) x (k, n), or the depth of (m, k) x (k, n)."""
    a, b = call.inputs[:2]
    if len(a.shape) == len(b.shape) == _PLANE_DIMS:
        groups = call.outputs[0].shape[0]
        return (Product(groups=groups, m=a.shape[0], n=b.shape[1], k=a.shape[1] / groups),)
    if len(b.shape) == _PLANE_DIMS:
        return (Product(groups=a.shape[0], m=a.shape[1], n=b.shape[1] / a.shape[0], k=a.shape[2]),)
    if len(a.shape) > _PLANE_DIMS:
        return (_of_matrices(a, b),)
    groups = chosen_expert_count(call)
    return (Product(groups=groups, m=a.shape[0] / groups, n=b.shape[2], k=b.shape[1]),)


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


def _linear_backward(call: Call) -> tuple[Product, ...]:
    """Inputs (input, grad_output, weight (out, in)): gradients of the input and of the weight."""
    _, grad_output, weight = call.inputs[:3]
    wants_input, wants_weight, _ = call.attributes["output_mask"]
    rows, (out, width) = math.prod(grad_output.shape[:-1]), weight.shape
    gradients = [(wants_input, Product(m=rows, n=width, k=out)), (wants_weight, Product(m=out, n=width, k=rows))]
    return tuple(product for is_wanted, product in gradients if is_wanted)


def _distances(call: Call) -> tuple[Product, ...]:
    """Rows (m, k) and (n, k), each with two columns more."""
    first, second = call.inputs[:2]
    return (Product(groups=math.prod(first.shape[:-2]), m=first.shape[-2], n=second.shape[-2], k=first.shape[-1] + 2),)


def _encoder_layer(call: Call) -> tuple[Product, ...]:
    """Four linear layers and attention among all positions (`ops.attention`)."""
    source, qkv, _, out, _, _, _, _, _, up, _, down = call.inputs[:12]
    tokens = math.prod(source.shape[:-1])
    layers = [_of_linear(tokens, weight) for weight in (qkv, out, up, down)]
    return (*layers, _of_attention(source, source, width=source.shape[-1]))


def _multi_head_attention(call: Call) -> tuple[Product, ...]:
    """The projections of queries, keys, values and results, and attention (`ops.attention`)."""
    query, key, _, _, _, out = call.inputs[:6]
    queries, keys = math.prod(query.shape[:-1]), math.prod(key.shape[:-1])
    projections = [_of_linear(tokens, out) for tokens in (queries, keys, keys, queries)]
    return (*projections, _of_attention(query, key, width=out.shape[0]))


def _of_linear(tokens: Number, weight: Tensor) -> Product:
    """A linear layer with weight (out, in) inside another operator."""
    n, k = weight.shape
    return Product(m=tokens, n=n, k=k, share=2 * tokens * weight.numel, family="matmul")


def _of_attention(query: Tensor, key: Tensor, *, width: Number) -> Product:
    """Among (..., length, width), whose heads are not known here: a tile is as narrow as they are in either case."""
    samples, length, kv_length = math.prod(query.shape[:-2]), query.shape[-2], key.shape[-2]
    return Product(groups=samples, m=length, n=width, k=kv_length, share=4 * samples * length * kv_length * width)


def _convolution(call: Call) -> tuple[Product, ...]:
    """Implicit GEMM: a row per output pixel, a column per output channel of a group."""
    if call.attributes.get("transposed"):
        return _transposed_convolution(call)
    source, weight = call.inputs[:2]
    return (_implicit_gemm(source, weight, call.outputs[0], attributes=call.attributes),)


def _transposed_convolution(call: Call) -> tuple[Product, ...]:
    """The gradient of a convolution's input, as libraries compute it (cuDNN: cudnnConvolutionBackwardData; oneDNN: the
    deconvolution of its developer guide): a row per pixel of the result, which gathers one of `stride` squared taps."""
    source, weight = call.inputs[:2]
    forward = _implicit_gemm(source, weight, call.outputs[0], attributes={**call.attributes, "transposed": True})
    pixels = math.prod(call.outputs[0].shape[2:]) * source.shape[0]
    taps = math.prod(weight.shape[2:]) * math.prod(source.shape[2:]) / math.prod(call.outputs[0].shape[2:])
    return (replace(forward, m=pixels, n=weight.shape[1], k=forward.n * taps, is_gradient=True),)


def _implicit_gemm(source: Tensor, weight: Tensor, result: Tensor, *, attributes: Mapping[str, Attribute]) -> Product:
    """Weight (out, in / groups, *kernel); transposed, the product runs from the larger image to the smaller.

    Winograd's tiles are of pixels side by side: a dilated kernel has none.
    """
    small, large = (source, result) if attributes.get("transposed") else (result, source)
    groups = _fixed(large.shape[1]) / _fixed(weight.shape[1])
    pixels = small.shape[0] * math.prod(small.shape[2:])
    kernel = tuple(_fixed(size) for size in weight.shape[2:])
    is_depthwise = groups > 1 and _fixed(weight.shape[1]) == 1
    nchw, nhwc = AS_IT_IS, AS_IT_IS
    if is_depthwise:
        nchw = OnGpu(direct_ratio=_TORCH_DIRECT_RATIO * _is_unusual(kernel, _WRITTEN_FOR_NCHW))
        nhwc = OnGpu(direct_ratio=_CUDNN_DIRECT_RATIO * _is_unusual(kernel, _WRITTEN_FOR_NHWC))
    elif groups > 1:
        columns_ratio, depth_ratio = _padded_ratio(_fixed(weight.shape[0]) / groups), _padded_ratio(weight.shape[1])
        nchw, nhwc = OnGpu(padded_ratio=columns_ratio), OnGpu(padded_ratio=columns_ratio * depth_ratio)
    return Product(
        groups=groups,
        m=pixels,
        n=weight.shape[0] / groups,
        k=math.prod(weight.shape[1:]),
        is_depthwise=is_depthwise,
        nchw=nchw,
        nhwc=nhwc,
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
                nchw=forward.nchw,
                nhwc=forward.nhwc,
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
                nchw=replace(forward.nchw, direct_ratio=0.0),
                nhwc=replace(
                    forward.nhwc,
                    direct_ratio=_weight_direct_ratio(source, weight, forward, attributes=call.attributes),
                ),
            )
        )
    return tuple(products)


def _padded_ratio(channels: Number) -> float:
    """How much wider the tile is that holds a group's channels. RegNets have groups of 24 to 328, which take as much
    longer in NCHW as their results are padded, and channels-last as both sides are: two GPUs, eager and compiled."""
    width = max(_fixed(channels), 1.0)
    if width > _WIDEST_SINGLE_TILE:
        return math.ceil(width / _TILE_STEP) * _TILE_STEP / width
    return math.pow(2.0, math.ceil(math.log2(width))) / width


def _is_unusual(kernel: tuple[float, ...], written_for: Set[float]) -> bool:
    """Of two dimensions, and not a square of those sizes."""
    return len(kernel) == _PLANE_DIMS and (kernel[0] != kernel[1] or kernel[0] not in written_for)


def _weight_direct_ratio(
    source: Tensor, weight: Tensor, forward: Product, *, attributes: Mapping[str, Attribute]
) -> float:
    """That of the gradient of weights where channels come last: of grouped ones it is cuDNN's direct kernel, too
    (wgrad2d_grouped_direct_kernel in pytorch/pytorch#34977).

    Of 587 nets trained in NHWC on an RTX 3090 those escape it whose groups are of 4, 8, 16 or 32 channels, as many out
    as in, under dense kernels of 3 x 3, if there are 32 groups or more than 128 channels. Images of a batch of one, as
    convolutions with weights by sample have them, are in no layout. Wider groups use what they load more often, and of
    82 of these nets they run faster with the root of the width.
    """
    if forward.is_depthwise:
        return forward.nhwc.direct_ratio
    if len(weight.shape) != _PLANE_DIMS + 2 or _fixed(forward.groups) == 1 or _is_one(source.shape[0]):
        return 0.0
    channels, groups, group_channels = _fixed(source.shape[1]), _fixed(forward.groups), _fixed(forward.n)
    has_tiles = channels / groups == group_channels and group_channels in _TILED_GROUP_CHANNELS
    is_usual = all(_fixed(size) == 3 for size in weight.shape[2:]) and _is_dense(attributes)
    if has_tiles and is_usual and (groups >= _MANY_GROUPS or channels > _MANY_CHANNELS):
        return 0.0
    return math.sqrt(_DIRECT_GROUP_CHANNELS / group_channels)


def _is_one(length: Number) -> bool:
    return isinstance(length, (int, float)) and length == 1


def _attention(call: Call) -> tuple[Product, ...]:
    """Fused: a block of queries passes over all keys; (..., length, head_dim)."""
    is_backward = call.op.endswith("backward")
    query, key = call.inputs[1 if is_backward else 0 :][:2]
    return (Product(groups=math.prod(query.shape[:-2]), m=query.shape[-2], n=query.shape[-1], k=key.shape[-2]),)


def _recurrent(call: Call) -> tuple[Product, ...]:
    """Of every layer one product for the inputs of all time steps, and at each step a narrow one for the state."""
    layers = layers_of(call)
    result = call.inputs[0] if call.op.endswith("backward") else call.outputs[0]
    tokens, gates_numel = math.prod(result.shape[:-1]), layers.gates * layers.hidden_size
    samples, state = tokens / recurrent_steps(call), layers.recurrent_size
    later = layers.layer_count - 1
    products = [(1, tokens, layers.input_size), (layers.layer_count, samples, state)]
    if later:
        products.insert(1, (later, tokens, layers.direction_count * state))
    return tuple(Product(m=m, n=gates_numel, k=k, share=count * k) for count, m, k in products)


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


_CONVOLUTIONS = (
    "convolution", "_convolution", "convolution_overrideable", "conv1d", "conv2d", "conv3d", "cudnn_convolution",
    "mkldnn_convolution", "_slow_conv2d_forward", "slow_conv3d_forward", "slow_conv3d", "thnn_conv2d",
    "_conv_depthwise2d", "conv_depthwise3d",
)  # fmt: skip
_TRANSPOSED_CONVOLUTIONS = (
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "slow_conv_transpose2d", "slow_conv_transpose3d",
    "cudnn_convolution_transpose",
)  # fmt: skip
_BY_OP: Mapping[str, Callable[[Call], tuple[Product, ...]]] = {
    **dict.fromkeys(aten("mm bmm matmul _int_mm _scaled_mm"), _matmul),
    **dict.fromkeys(aten("addmm baddbmm addbmm _addmm_activation"), _add_matmul),
    **dict.fromkeys(aten("_grouped_mm _scaled_grouped_mm"), _grouped_matmul),
    **dict.fromkeys(aten("linear mkldnn_linear"), _linear),
    **dict.fromkeys(("mkldnn._linear_pointwise", "mkl._mkl_linear"), _linear),
    **dict.fromkeys(aten("linear_backward mkldnn_linear_backward"), _linear_backward),
    "aten._euclidean_dist": _distances,
    **dict.fromkeys((f"aten.{name}" for name in _CONVOLUTIONS), _convolution),
    "mkldnn._convolution_pointwise": _convolution,
    **dict.fromkeys((f"aten.{name}" for name in _TRANSPOSED_CONVOLUTIONS), _transposed_convolution),
    **dict.fromkeys(aten("convolution_backward convolution_backward_overrideable"), _convolution_backward),
    "aten._slow_conv2d_backward": _convolution_backward,
    "attention": _attention,
    "attention_backward": _attention,
    "encoder_layer": _encoder_layer,
    "aten._transformer_encoder_layer_fwd": _encoder_layer,
    "native_multi_head_attention": _multi_head_attention,
    "aten._native_multi_head_attention": _multi_head_attention,
    "rnn": _recurrent,
    "rnn_backward": _recurrent,
}
