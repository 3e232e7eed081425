"""Finds the matrix products (m, k) x (k, n) that the kernels of an operator call compute."""

import math
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from itertools import compress

from advisor.ops.attention import CACHED_ATTENTION, ENCODER_LAYERS, MULTI_HEAD_ATTENTION
from advisor.ops.conv import GENERAL_CONVOLUTIONS, PLAIN_CONVOLUTIONS, TRANSPOSED_CONVOLUTIONS, weight_of
from advisor.ops.matmul import ADDED_PRODUCTS, LINEAR, chosen_expert_count
from advisor.ops.registry import Call, Number, Tensor, aten, is_one, smaller
from advisor.ops.rnn import layers_of
from advisor.records.workload import Attribute

_PLANE_DIMS = 2
_TILED_GROUP_CHANNELS = frozenset({4, 8, 16, 32})
_MANY_GROUPS, _MANY_CHANNELS = 32, 128
"""Limits of the grouped convolutions whose channels-last gradients cuDNN computes on tensor cores."""
_DIRECT_GROUP_CHANNELS = 64.0
"""Channels per group to which the `direct_ratio` of weight gradients refers."""
_WIDEST_SINGLE_TILE, _TILE_STEP = 128.0, 64.0
"""A group of channels is padded to a power of two up to 128, and to a multiple of 64 above."""
ALIGNED_BYTES = 16.0
"""The bytes that tensor cores' fast kernels load and store at a time."""
_PICTURE_CHANNELS = 4.0
"""The most channels of a picture."""
_WRITTEN_FOR_NCHW, _WRITTEN_FOR_NHWC = frozenset({1.0, 3.0, 5.0}), frozenset({1.0, 3.0, 5.0, 7.0})
"""Sizes of square depthwise kernels with specialized code. In NCHW torch hands 1, 3 and 5 to cuDNN, or to templates of
its own, and runs others in a loop (`check_cudnn_depthwise_workload_with_filter` in ATen's Convolution.cpp,
DepthwiseConv2d.cu). Channels-last it always calls cuDNN (`use_cudnn_depthwise` there), whose sizes no document lists:
12 nets with 7 x 7 take as long as at the rate of 3 x 3, ConvMixer with 9 x 9 four to six times as long."""
_TORCH_DIRECT_RATIO, _CUDNN_DIRECT_RATIO = 0.7, 2.4
"""Slowdown of other sizes. Per 1e12 FLOP in NCHW, MixNet, FastViT and ConvMixer took 0.5 to 0.7 s on an RTX 3090 and
0.3 s on an RTX 4090; channels-last, EdgeNeXt, FocalNet and ConvMixer took 1.9 and 1.1 s. They hold on an RTX 5090
(`scripts/check_rules.py`), of a generation that they were not chosen on."""

_LEAST_FFT, _MOST_FFT = 16.0, 64.0
"""Sizes of the transforms in the profiles: fft2d_r2c_16x16 to fft2d_r2c_64x64."""
_FFT_CHANNELS_PER_ELEMENT = 4.0
"""The fewest input channels x output channels per element of a transform."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One kernel of `groups` matrix products (m, k) x (k, n), which decide how well it fills tiles and SMs."""

    groups: Number = 1.0
    m: Number
    n: Number
    k: Number
    is_depthwise: bool = False
    """A convolution with one input channel per group, which does not run on tensor cores."""
    can_winograd: bool = False
    """A 3 x 3 convolution of stride 1, for which Winograd's algorithm needs fewer multiplications."""
    fft_speedup: float = 1.0
    """FLOP relative to those of the product of the Fourier transforms of a convolution of stride 1."""
    nchw_padded_ratio: float = 1.0
    """FLOP of tensor cores for images in NCHW, with the padding of tiles, relative to those of the product."""
    nhwc_padded_ratio: float = 1.0
    """The same, channels-last."""
    padded_inputs_ratio: float = 1.0
    """Input channels of a group, as cuDNN pads images channels-last for tensor cores, relative to their number."""
    padded_outputs_ratio: float = 1.0
    """The same of its output channels."""
    nchw_direct_ratio: float = 0.0
    """Time of a FLOP if a GPU has only a direct kernel for the shapes in NCHW, relative to the weight gradient of a
    grouped convolution with 64 channels per group; 0 if another kernel supports them."""
    nhwc_direct_ratio: float = 0.0
    """The same, channels-last."""
    share: Number = 1.0
    """Share of the row's FLOP and bytes, relative to the row's other products."""
    is_gradient: bool = False
    """True if a library computes it in the same way as a gradient."""
    family: str = ""
    """Family of its kernel if that is not the row's."""


def products_of(call: Call) -> tuple[Product, ...]:
    """Return the products of one call; none if the operator has no products or its shapes do not show them."""
    find = _BY_OP.get(call.op)
    return find(call) if find else ()


def _grouped_matmul(call: Call) -> tuple[Product, ...]:
    """Return the product of a grouped matmul, which splits rows, columns or depth among its groups.

    (m, k) x (groups, k, n) splits the rows, and only groups that some token chose count. (groups, m, k) x (k, n) splits
    the columns and (m, k) x (k, n) the depth.
    """
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


def _matmul(call: Call) -> tuple[Product, ...]:
    """Return the product of the last two operands, which follow a bias in an addition such as addmm."""
    a, b = call.inputs[1:3] if call.op in ADDED_PRODUCTS else call.inputs[:2]
    return (_of_matrices(a, b),)


def _of_matrices(a: Tensor, b: Tensor) -> Product:
    """Return the product of (..., m, k) x (..., k, n): batched if `b` has a batch, else one product of all rows."""
    k, n = a.shape[-1], b.shape[-1]
    if len(b.shape) > 2:
        return Product(groups=math.prod(a.shape[:-2]), m=a.shape[-2], n=n, k=k)
    return Product(m=math.prod(a.shape[:-1]), n=n, k=k)


def _linear(call: Call) -> tuple[Product, ...]:
    source, result = call.inputs[0], call.outputs[0]
    return (Product(m=math.prod(result.shape[:-1]), n=result.shape[-1], k=source.shape[-1]),)


def _linear_backward(call: Call) -> tuple[Product, ...]:
    """Return the gradients of input and weight, as requested; inputs are (input, grad_output, weight (out, in))."""
    _, grad_output, weight = call.inputs[:3]
    rows, (out, width) = math.prod(grad_output.shape[:-1]), weight.shape
    gradients = (Product(m=rows, n=width, k=out), Product(m=out, n=width, k=rows))
    return tuple(compress(gradients, call.attributes["output_mask"]))


def _distances(call: Call) -> tuple[Product, ...]:
    """Return the product of rows (m, k) and (n, k), each extended by two columns."""
    first, second = call.inputs[:2]
    return (Product(groups=math.prod(first.shape[:-2]), m=first.shape[-2], n=second.shape[-2], k=first.shape[-1] + 2),)


def _encoder_layer(call: Call) -> tuple[Product, ...]:
    """Return four linear layers and attention among all positions (`ops.attention`)."""
    source, qkv, _, out, _, _, _, _, _, up, _, down = call.inputs[:12]
    tokens = math.prod(source.shape[:-1])
    layers = [_of_linear(tokens, weight) for weight in (qkv, out, up, down)]
    return (*layers, _of_attention(source, source, width=source.shape[-1]))


def _multi_head_attention(call: Call) -> tuple[Product, ...]:
    """Return the projections of queries, keys, values and results, and attention (`ops.attention`)."""
    query, key, _, _, _, out = call.inputs[:6]
    queries, keys = math.prod(query.shape[:-1]), math.prod(key.shape[:-1])
    projections = [_of_linear(tokens, out) for tokens in (queries, keys, keys, queries)]
    return (*projections, _of_attention(query, key, width=out.shape[0]))


def _of_linear(tokens: Number, weight: Tensor) -> Product:
    """Return the product of a linear layer with weight (out, in) inside another operator."""
    n, k = weight.shape
    return Product(m=tokens, n=n, k=k, share=2 * tokens * weight.numel, family="matmul")


def _of_attention(query: Tensor, key: Tensor, *, width: Number) -> Product:
    """Return the product of attention among (..., length, width).

    Heads are not counted: a tile is as narrow as a head in either case.
    """
    samples, length, kv_length = math.prod(query.shape[:-2]), query.shape[-2], key.shape[-2]
    return Product(groups=samples, m=length, n=width, k=kv_length, share=4 * samples * length * kv_length * width)


def _convolution(call: Call) -> tuple[Product, ...]:
    """Return the implicit GEMM: a row per output pixel, a column per output channel of a group."""
    if call.attributes.get("transposed"):
        return _transposed_convolution(call)
    source, weight = call.inputs[:2]
    return (_implicit_gemm(source, weight, call.outputs[0], attributes=call.attributes),)


def _transposed_convolution(call: Call) -> tuple[Product, ...]:
    """Return the product of a transposed convolution: a row per output pixel, over one of `stride` squared taps.

    Libraries compute it as the gradient of a convolution's input (cuDNN: cudnnConvolutionBackwardData; oneDNN: the
    deconvolution of its developer guide).
    """
    source, weight = call.inputs[:2]
    forward = _implicit_gemm(source, weight, call.outputs[0], attributes={**call.attributes, "transposed": True})
    pixels = math.prod(call.outputs[0].shape[2:]) * source.shape[0]
    taps = math.prod(weight.shape[2:]) * math.prod(source.shape[2:]) / math.prod(call.outputs[0].shape[2:])
    return (
        replace(
            forward,
            m=pixels,
            n=weight.shape[1],
            k=forward.n * taps,
            padded_inputs_ratio=forward.padded_outputs_ratio,
            padded_outputs_ratio=forward.padded_inputs_ratio,
            is_gradient=True,
        ),
    )


def _implicit_gemm(source: Tensor, weight: Tensor, result: Tensor, *, attributes: Mapping[str, Attribute]) -> Product:
    """Return the implicit GEMM for weight (out, in / groups, *kernel).

    For a transposed convolution it is the product of the forward convolution, from the larger image to the smaller.
    Winograd's algorithm needs adjacent pixels, so it excludes dilated kernels.
    """
    small, large = (source, result) if attributes.get("transposed") else (result, source)
    groups = fixed(large.shape[1]) / fixed(weight.shape[1])
    pixels = small.shape[0] * math.prod(small.shape[2:])
    kernel = tuple(fixed(size) for size in weight.shape[2:])
    is_depthwise = groups > 1 and fixed(weight.shape[1]) == 1
    is_grouped = groups > 1 and not is_depthwise
    columns_ratio = _padded_ratio(fixed(weight.shape[0]) / groups) if is_grouped else 1.0
    keeps_size = groups == 1 and is_dense(attributes) and same_size(source, result)

    def image_ratio_of(channels: Number) -> float:
        if is_depthwise:
            return 1.0
        return _padded_image_ratio(channels, itemsize_bytes=weight.itemsize_bytes, is_grouped=is_grouped)

    return Product(
        groups=groups,
        m=pixels,
        n=weight.shape[0] / groups,
        k=math.prod(weight.shape[1:]),
        is_depthwise=is_depthwise,
        nchw_padded_ratio=columns_ratio,
        nhwc_padded_ratio=columns_ratio * _padded_ratio(weight.shape[1]) if is_grouped else 1.0,
        padded_inputs_ratio=image_ratio_of(weight.shape[1]),
        padded_outputs_ratio=image_ratio_of(weight.shape[0] / groups),
        nchw_direct_ratio=_TORCH_DIRECT_RATIO * (is_depthwise and _is_unusual(kernel, _WRITTEN_FOR_NCHW)),
        nhwc_direct_ratio=_CUDNN_DIRECT_RATIO * (is_depthwise and _is_unusual(kernel, _WRITTEN_FOR_NHWC)),
        can_winograd=keeps_size and kernel == (3.0, 3.0),
        fft_speedup=_fft_speedup(result, weight, kernel) if keeps_size else 1.0,
    )


def _fft_speedup(result: Tensor, weight: Tensor, kernel: tuple[float, ...]) -> float:
    """Return the FLOP of a convolution relative to those of the product of its Fourier transforms, at least 1.

    A plane and the kernel's margin fit into a square whose side is a power of two. Its transform has half as many
    complex columns, and one more, since the values are real (Mathieu et al., Fast training of convolutional networks
    through FFTs, 2013). A product of complex numbers is four multiply-adds. On an H200 cuDNN computes planes of 14 x
    14, 28 x 28 and 56 x 56 like this, but no larger ones, and none whose few channels do not repay the transforms: 64
    to 64 channels at 56 x 56, or 128 to 32, where it does so at 28 x 28 and 14 x 14.
    """
    if len(kernel) != _PLANE_DIMS:
        return 1.0
    height, width = (fixed(size) for size in result.shape[2:])
    size = 2.0 ** math.ceil(math.log2(max(height, width) + max(kernel) - 1))
    channels = fixed(weight.shape[0]) * fixed(weight.shape[1])
    if not _LEAST_FFT <= size <= _MOST_FFT or channels < _FFT_CHANNELS_PER_ELEMENT * size**2:
        return 1.0
    complex_products = size * (size / 2 + 1)
    return max(1.0, math.prod(kernel) * height * width / (4 * complex_products))


def _convolution_backward(call: Call) -> tuple[Product, ...]:
    """Return the gradients of input (depth: out x kernel) and weight (depth: pixels), as requested.

    Inputs are (grad_output, input, weight). The gradient of a transposed convolution's input is a convolution.
    """
    grad_output, source, weight = call.inputs[:3]
    forward = _implicit_gemm(source, weight, grad_output, attributes=call.attributes)
    taps = math.prod(weight.shape[2:])
    pixels = source.shape[0] * math.prod(source.shape[2:])
    of_input = forward
    if not call.attributes.get("transposed"):
        of_input = replace(forward, m=pixels, n=weight.shape[1], k=forward.n * taps)
    of_weight = replace(
        forward,
        m=forward.n,
        n=forward.k,
        k=forward.m,
        nchw_direct_ratio=0.0,
        nhwc_direct_ratio=_weight_direct_ratio(source, weight, forward, attributes=call.attributes),
    )
    return tuple(compress((of_input, of_weight), call.attributes["output_mask"]))


def _padded_ratio(channels: Number) -> float:
    """Return the width of the tiles for a group's channels, relative to the channels.

    RegNets have groups of 24 to 328 channels. On two GPUs, eager and compiled, their time grows with the padding of the
    output channels in NCHW, and with the padding of both sides channels-last.
    """
    width = max(fixed(channels), 1.0)
    if width > _WIDEST_SINGLE_TILE:
        return math.ceil(width / _TILE_STEP) * _TILE_STEP / width
    return math.pow(2.0, math.ceil(math.log2(width))) / width


def _padded_image_ratio(channels: Number, *, itemsize_bytes: float, is_grouped: bool) -> float:
    """Return the channels of a group, as cuDNN pads an image channels-last for tensor cores, relative to their number.

    Their loads take 16 bytes, 8 channels in 16 bits and 4 in TF32, to which cuDNN pads since 7.6.3 (NVIDIA,
    Convolutional Layers User's Guide); it has kernels of its own for pictures. An H100's profile of a RegNet with
    groups of 24 shows copies of images for grouped convolutions; in ten nets on three GPUs groups of 24 and 56 channels
    take as much longer, and powers of two and groups of 112 channels and more do not.
    """
    width = fixed(channels)
    if is_grouped:
        return _padded_ratio(channels) if width < _TILE_STEP else 1.0
    step = ALIGNED_BYTES / itemsize_bytes
    return math.ceil(width / step) * step / width if width > _PICTURE_CHANNELS else 1.0


def _is_unusual(kernel: tuple[float, ...], written_for: Set[float]) -> bool:
    """Return whether a 2-D kernel is not a square of one of the sizes `written_for`."""
    return len(kernel) == _PLANE_DIMS and (kernel[0] != kernel[1] or kernel[0] not in written_for)


def _weight_direct_ratio(
    source: Tensor, weight: Tensor, forward: Product, *, attributes: Mapping[str, Attribute]
) -> float:
    """Return the `nhwc_direct_ratio` of a weight gradient.

    For grouped convolutions cuDNN uses a direct kernel (wgrad2d_grouped_direct_kernel in pytorch/pytorch#34977). The
    exceptions, found in 587 nets trained in NHWC on an RTX 3090, are dense 3 x 3 kernels with 4, 8, 16 or 32 channels
    per group, as many out as in, and at least 32 groups or more than 128 channels. Images of a batch of one, as in
    convolutions with weights per sample, have no layout. Wider groups reuse their loads more: in 82 of these nets the
    throughput grows with the square root of the width.
    """
    if forward.is_depthwise:
        return forward.nhwc_direct_ratio
    if len(weight.shape) != _PLANE_DIMS + 2 or fixed(forward.groups) == 1 or is_one(source.shape[0]):
        return 0.0
    channels, groups, group_channels = fixed(source.shape[1]), fixed(forward.groups), fixed(forward.n)
    has_tiles = channels / groups == group_channels and group_channels in _TILED_GROUP_CHANNELS
    is_usual = all(fixed(size) == 3 for size in weight.shape[2:]) and is_dense(attributes)
    if has_tiles and is_usual and (groups >= _MANY_GROUPS or channels > _MANY_CHANNELS):
        return 0.0
    return math.sqrt(_DIRECT_GROUP_CHANNELS / group_channels)


_RGB_CHANNELS = 3


def _attention(call: Call) -> tuple[Product, ...]:
    """Return the product of fused attention, in which a block of queries (..., length, head_dim) reads all keys."""
    is_backward = call.op.endswith("backward")
    query, key = call.inputs[1 if is_backward else 0 :][:2]
    return (Product(groups=math.prod(query.shape[:-2]), m=query.shape[-2], n=query.shape[-1], k=key.shape[-2]),)


def _chunks(call: Call) -> tuple[Product, ...]:
    """Return the product of the chunks of a scan, whose tokens attend to each other as to a prompt of their own."""
    values, keys = call.inputs[:2]  # (batch, tokens, heads, width)
    size = smaller(float(call.attributes["chunk"]), values.shape[1])
    groups = values.shape[0] * values.shape[1] / size * values.shape[2]
    return (Product(groups=groups, m=size, n=values.shape[-1], k=keys.shape[-1] + size),)


def _recurrent(call: Call) -> tuple[Product, ...]:
    """Return, per layer, one product for the inputs of all time steps and a narrow one per step for the state."""
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
    """Return the time steps of an input (steps, batch, features), (batch, steps, features) or (steps, features).

    A packed input is (tokens, features) with a state (layers, batch, hidden); its steps are the tokens per sample.
    """
    inputs = call.inputs
    shape = inputs[0].shape
    state = 2 if call.op == "rnn_backward" else 1  # after the input and, in backward, the output's gradient
    if len(shape) == 2 and len(inputs) > state and len(inputs[state].shape) == 3:
        return shape[0] / inputs[state].shape[1]
    return shape[1 if call.attributes["batch_first"] and len(shape) == 3 else 0]


def is_dense(attributes: Mapping[str, Attribute]) -> bool:
    """Return whether a convolution's kernel covers adjacent pixels."""
    dilation = attributes.get("dilation")
    return all(step == 1 for step in dilation) if isinstance(dilation, (list, tuple)) else True


def has_window(call: Call) -> bool:
    """Return whether a convolution, or its gradient, reads several pixels of more than three channels for each result.

    For images with three channels cuDNN mostly has kernels outside tensor cores, which take NCHW
    (`implicit_convolve_sgemm`, `precomputed_convolve_sgemm` on an H200).
    """
    channels, *window = map(fixed, weight_of(call.op, call.inputs).shape[1:])
    return channels > _RGB_CHANNELS and math.prod(window) > 1


def same_size(source: Tensor, result: Tensor) -> bool:
    """Return whether two images have the same length in every dimension after samples and channels."""
    return all(fixed(a) == fixed(b) for a, b in zip(source.shape[2:], result.shape[2:], strict=True))


def fixed(length: Number) -> float:
    """Return a length that does not depend on the batch, though it may be given as one number per batch size."""
    return float(length if isinstance(length, (int, float)) else length.flat[0])


_BY_OP: Mapping[str, Callable[[Call], tuple[Product, ...]]] = {
    **dict.fromkeys((*aten("mm bmm matmul _int_mm _scaled_mm"), *ADDED_PRODUCTS), _matmul),
    **dict.fromkeys(aten("_grouped_mm _scaled_grouped_mm"), _grouped_matmul),
    **dict.fromkeys(LINEAR, _linear),
    **dict.fromkeys(aten("linear_backward mkldnn_linear_backward"), _linear_backward),
    "aten._euclidean_dist": _distances,
    **dict.fromkeys((*GENERAL_CONVOLUTIONS, *PLAIN_CONVOLUTIONS), _convolution),
    **dict.fromkeys(TRANSPOSED_CONVOLUTIONS, _transposed_convolution),
    **dict.fromkeys(
        aten("convolution_backward convolution_backward_overrideable _slow_conv2d_backward"), _convolution_backward
    ),
    **dict.fromkeys((*CACHED_ATTENTION, "attention_backward"), _attention),
    **dict.fromkeys(("engine.chunk_scan", "engine.delta_rule"), _chunks),
    **dict.fromkeys(ENCODER_LAYERS, _encoder_layer),
    **dict.fromkeys(MULTI_HEAD_ATTENTION, _multi_head_attention),
    **dict.fromkeys(("rnn", "rnn_backward"), _recurrent),
}
