"""Describes how a kind of device runs an operator call: launches, dispatches, extra bytes and slower FLOP."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from advisor.ops.registry import CHANNELS_LAST, MADE_CONTIGUOUS, Call, Number, aten, formula_of
from advisor.ops.rnn import layers_of
from advisor.predict.products import recurrent_steps
from advisor.records.device import DeviceKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The cost of one call beyond the FLOP and bytes of its formula."""

    launches: Number = 1.0
    dispatches: Number = 1.0
    joins: Number | None = None
    """How often all cores of a CPU start and finish together; None if they do at every launch."""
    extra_bytes: Number = 0.0
    revisited_bytes: Number = 0.0
    """Bytes of repeated reads from a working set of `revisited_set_bytes`."""
    revisited_set_bytes: Number = 0.0
    reread_ratio: Number = 0.0
    """Share of its input that it reads twice."""
    sequential_loads: Number = 0.0
    """Loads that each thread makes in sequence in NCHW."""
    nchw_copied_bytes: Number = 0.0
    """Bytes of operands that it copies to another layout if the images are in NCHW."""
    nhwc_copied_bytes: Number = 0.0
    """The same, channels-last."""
    flop_ratio: Number = 1.0
    """Slowdown of a FLOP relative to a matmul or, for other operators, an addition."""
    is_scalar: bool = False
    """True if NCHW images are processed without SIMD, one element at a time."""
    scalar_cycles: Number = 0.0
    """Cycles of a CPU's loop over single elements, shared by all cores."""
    serial_cycles: Number = 0.0
    """Cycles of code that runs on one core of a CPU."""
    repacks: bool = False
    """True if a library repacks the parameters into its own layout at every call."""
    saves_half_rereads: bool = False
    """True if the second read of `reread_ratio` is saved for channels-last 16-bit images."""


_QUERY_WORK_KEYS = 55.0
"""Number of keys whose products with a query take as long as its softmax: 37 to 79 by head and dtype."""
_FLOP_RATIO_OF_FUNCTION: Mapping[str, float] = {
    "div": 1.5, "hardswish": 2, "rsqrt": 4, "sqrt": 5, "silu": 5, "sigmoid": 5, "silu_backward": 7, "gelu": 10,
    "exp": 10, "log": 13, "sin": 17, "cos": 17, "erf": 17, "softplus": 20, "gelu_backward": 28, "tanh": 33, "mish": 50,
    "mish_backward": 60,
}  # fmt: skip
"""Time per element of torch's vectorized functions on a CPU relative to an addition, both in the nearest cache.
Measured by `scripts/measure_functions.py` in fp32 on a Zen 4, torch 2.13; bf16, computed in fp32, takes as long."""
FUSED_FLOP_RATIO = 0.1
"""Time of an operator whose operands are in registers, relative to an eager addition: only its FLOP, a tenth of the
cycles (`streaming_compute_ratio`)."""
_IMAGE_DIMS = 4
"""Dimensions of a tensor that can be channels-last: samples, channels, height and width."""
_ONE_KERNEL = Program()
_Lowering = Callable[[Call, float], Program]
"""Returns the program of a call whose elements have this number of bytes."""


def program_of(call: Call, *, kind: DeviceKind, itemsize_bytes: float) -> Program:
    """Return the program of a call: one kernel, unless the operator is known to need more."""
    lowering = (_ON_GPU if kind == "gpu" else _ON_CPU).get(call.op)
    return lowering(call, itemsize_bytes) if lowering else _ONE_KERNEL


def _always(program: Program) -> _Lowering:
    return lambda call, itemsize_bytes: program


def _cpu_add_matmul(call: Call, itemsize_bytes: float) -> Program:
    """Add the copy of the bias into the result, to which the matmul then adds (ATen: addmm_impl_cpu_)."""
    return Program(extra_bytes=2 * call.outputs[0].numel * itemsize_bytes)


def has_running_statistics(op: str, attributes: Mapping[str, Any]) -> bool:
    """Return whether a batch norm uses running statistics, which makes it a single pointwise pass."""
    return op.endswith(("_no_training", "_no_update")) or attributes.get("training") is False


def _norm(call: Call, itemsize_bytes: float) -> Program:
    """Return the program of a norm: a pass that sums, then a pass that uses the sums (ATen's kernels).

    The sums are over a channel, a group or, in backward, the elements that share a weight. A layer norm needs no second
    read, because its row stays in registers or the nearest cache.
    """
    is_one_pass = has_running_statistics(call.op, call.attributes) or call.attributes.get("train") is False
    return Program(reread_ratio=0.0 if is_one_pass else 1.0)


def _gpu_batch_norm(call: Call, itemsize_bytes: float) -> Program:
    """Return the program of a batch norm; for 16-bit NHWC images cuDNN's persistent kernel reads them once.

    Source: ATen's cudnn/BatchNorm.cpp.
    """
    program = _norm(call, itemsize_bytes)
    return replace(program, saves_half_rereads=program.reread_ratio != 0)


def _after_copies(lowering: _Lowering) -> _Lowering:
    """Add the copies that make a norm's input and gradient contiguous first (ATen's layer_norm)."""

    def with_copies(call: Call, itemsize_bytes: float) -> Program:
        program = lowering(call, itemsize_bytes)
        if MADE_CONTIGUOUS not in call.attributes:
            return program
        copied_numel = call.attributes[MADE_CONTIGUOUS] * call.inputs[0].numel
        return replace(program, nchw_copied_bytes=copied_numel * itemsize_bytes)

    return with_copies


def _gpu_group_norm(call: Call, itemsize_bytes: float) -> Program:
    """Return the program of a group norm, which copies channels-last images to NCHW and back.

    A group is contiguous only in NCHW (ATen's native_group_norm). Gradients get no such copies: with them,
    channels-last training steps were predicted 30 to 60 % too slow.
    """
    numel = sum(tensor.numel for tensor in (*call.inputs, *call.outputs) if len(tensor.shape) == _IMAGE_DIMS)
    return replace(_norm(call, itemsize_bytes), nhwc_copied_bytes=numel * itemsize_bytes)


def _gpu_interpolation(call: Call, itemsize_bytes: float) -> Program:
    """Return the program of an interpolation, which has low occupancy on small NCHW images.

    In NCHW each output pixel has one thread, which loops over all samples and channels (ATen's
    cuda/UpSampleBilinear2d.cu). Channels-last, every element has a thread.
    """
    if CHANNELS_LAST in call.attributes:
        return _ONE_KERNEL
    samples, channels = call.outputs[0].shape[:2]
    return Program(sequential_loads=samples * channels)


_INPUT_CYCLES: Mapping[str, float] = {
    **dict.fromkeys(aten("var std var_mean std_mean"), 20.0),  # Welford's update, with a division
    **dict.fromkeys(aten("topk"), 5.0),
    **dict.fromkeys(aten("upsample_nearest1d_backward upsample_nearest2d_backward upsample_nearest3d_backward"), 12.0),
    **dict.fromkeys(aten("upsample_linear1d_backward upsample_bilinear2d_backward"), 27.0),
    "aten.upsample_trilinear3d_backward": 54.0,  # twice the taps
    "aten.upsample_bicubic2d_backward": 85.0,
}
"""Cycles of a core for each element of the first input, which torch's CPU kernels take one at a time. From the steps of
`scripts/nets/operators.py` on a Granite Rapids, torch 2.13, but for the loss and other operators of the case."""
_OUTPUT_CYCLES: Mapping[str, float] = {
    **dict.fromkeys(aten("upsample_nearest1d upsample_nearest2d upsample_nearest3d"), 10.0),
    **dict.fromkeys(aten("upsample_linear1d upsample_bilinear2d"), 10.0),
    "aten.upsample_trilinear3d": 20.0,  # twice the taps
    "aten.upsample_bicubic2d": 27.0,
    "aten.where": 15.0,
}
"""The same for each element of the output."""
_COMPARISON_CYCLES = 27.0
"""The same for each comparison of a sort, which its formula counts; 11 if there is a single row."""
_DRAW_CYCLES = 20.0
"""Cycles for a number of the CPU's generator, which is one for all threads (ATen's CPUGeneratorImpl)."""


def _scalar_loop(call: Call, itemsize_bytes: float) -> Program:
    """Return the program of a kernel that takes one element at a time."""
    if call.op in _INPUT_CYCLES:
        return Program(scalar_cycles=_INPUT_CYCLES[call.op] * call.inputs[0].numel)
    return Program(scalar_cycles=_OUTPUT_CYCLES[call.op] * call.outputs[0].numel)


def _cpu_sort(call: Call, itemsize_bytes: float) -> Program:
    counted = formula_of(call.op)
    return Program(scalar_cycles=_COMPARISON_CYCLES * counted.cost(call).flops if counted else 0.0)


def _cpu_draw(call: Call, itemsize_bytes: float) -> Program:
    return Program(serial_cycles=_DRAW_CYCLES * call.outputs[0].numel)


def _convolution_backward(call: Call, itemsize_bytes: float) -> Program:
    """Return the program of a convolution's backward: a library call for each gradient, which reads the output's."""
    gradient, source = call.inputs[:2]
    wants_input, wants_weight, _ = call.attributes["output_mask"]
    both = wants_input and wants_weight
    return Program(
        launches=2.0 if both else 1.0, reread_ratio=gradient.numel / (gradient.numel + source.numel) if both else 0
    )


def _cpu_attention(call: Call, itemsize_bytes: float) -> Program:
    """Return the program of attention: fused without dropout, where a query costs its matmuls and its softmax.

    With dropout torch takes the math path, which writes the scores to memory.

    Forward, each score: written by the product; read and written by softmax, then by dropout, which also writes and
    keeps a mask of the same width; read by the second product: 7 passes in 6 operators (scale, two products, softmax,
    random mask, multiplication). Backward: written and read around each product's gradient, dropout's and softmax's
    with their saved results: 10 passes in 8 operators.
    """
    is_backward = call.op == "attention_backward"
    query, key = call.inputs[1 if is_backward else 0 :][:2]
    if not call.attributes.get("dropout_ratio"):
        return Program(flop_ratio=1 + _QUERY_WORK_KEYS / key.shape[-2])
    scores = query.numel / query.shape[-1] * key.shape[-2]
    passes, operators = (10.0, 8.0) if is_backward else (7.0, 6.0)
    return Program(launches=operators, dispatches=operators, extra_bytes=passes * scores * itemsize_bytes)


def _gpu_rnn(call: Call, itemsize_bytes: float) -> Program:
    """Return the program of a cuDNN RNN: per layer a matmul of all inputs, then two kernels (matmul, gates) per step.

    Each step reads the recurrent weights again; backward runs the steps twice, for the data and the weights.
    Source: Appleyard et al., Optimizing Performance of Recurrent Neural Networks on GPUs, 2016.
    """
    program = Program(launches=_layer_passes(call) * (1 + 2 * recurrent_steps(call)))
    return _revisiting_weights(program, call, itemsize_bytes)


def _cpu_rnn(call: Call, itemsize_bytes: float) -> Program:
    """Return the program of an RNN: an LSTM is one oneDNN call per layer, others are operators per step (RNN.cpp).

    OneDNN first repacks the weights (ideep's `lstm_forward`), then splits the matmul and the gates of each step over
    all cores. A GRU cell takes 12 operators and a plain cell 4: a matmul, its bias and the pointwise operators of the
    gates. One dispatch calls them all, because the loop over the steps is in C++, and of each cell's only the matmul
    has enough work for all cores. Every step reads the recurrent weights again.
    """
    passes, steps, mode = _layer_passes(call), recurrent_steps(call), call.attributes["mode"]
    if mode == "lstm":
        program = Program(launches=passes, dispatches=passes, joins=2 * passes * steps, repacks=True)
    else:
        operators = passes * steps * (12.0 if mode == "gru" else 4.0)
        program = Program(launches=operators, dispatches=passes, joins=passes * steps)
    return _revisiting_weights(program, call, itemsize_bytes)


def _revisiting_weights(program: Program, call: Call, itemsize_bytes: float) -> Program:
    """Add the reads of a layer's recurrent weights at every step after the first."""
    layers = layers_of(call)
    weight_bytes = layers.gates * layers.hidden_size * layers.recurrent_size * itemsize_bytes
    revisited_bytes = _layer_passes(call) * (recurrent_steps(call) - 1) * weight_bytes
    return replace(program, revisited_bytes=revisited_bytes, revisited_set_bytes=weight_bytes)


def _layer_passes(call: Call) -> Number:
    """Return how often a layer runs in one direction; backward runs each twice, for the data and the weights."""
    layers = layers_of(call)
    return (2.0 if call.op == "rnn_backward" else 1.0) * layers.layer_count * layers.direction_count


_FOREACH_TENSORS_PER_LAUNCH = 36
"""Tensors in one launch over lists of four (`depth_to_max_tensors` in ATen's MultiTensorApply.cuh)."""
_FOREACH_ELEMENTS_PER_LAUNCH = 320 * 65_536
"""320 blocks with a chunk of 65,536 elements each (the same file)."""


def _gpu_optimizer(call: Call, itemsize_bytes: float) -> Program:
    """Return the program of a foreach optimizer: each operator runs over all tensors, in launches of limited size."""
    calls, tensors, elements = (_numeric(call, key) for key in ("calls_per_tensor", "tensor_count", "element_count"))
    launches = math.ceil(tensors / _FOREACH_TENSORS_PER_LAUNCH) + math.floor(elements / _FOREACH_ELEMENTS_PER_LAUNCH)
    return Program(launches=calls * launches, dispatches=calls, extra_bytes=_optimizer_passes_bytes(call))


def _cpu_optimizer(call: Call, itemsize_bytes: float) -> Program:
    """Return the program of a for-loop optimizer: every operator runs once per tensor."""
    calls = _numeric(call, "calls_per_tensor") * _numeric(call, "tensor_count")
    return Program(launches=calls, dispatches=calls, extra_bytes=_optimizer_passes_bytes(call))


def _optimizer_passes_bytes(call: Call) -> float:
    """Return the bytes that separate operators move beyond the single pass of the formula."""
    loop = _numeric(call, "loop_read_bytes_per_element") + _numeric(call, "loop_write_bytes_per_element")
    once = _numeric(call, "read_bytes_per_element") + _numeric(call, "write_bytes_per_element")
    return _numeric(call, "element_count") * max(0.0, loop - once)


def _numeric(call: Call, key: str) -> float:
    value = call.attributes[key]
    if not isinstance(value, (int, float)):
        raise TypeError(f"{call.op}: attribute {key} is {value!r}, not a number")
    return float(value)


_BATCH_NORMS = aten(
    "native_batch_norm _native_batch_norm_legit _batch_norm_with_update cudnn_batch_norm miopen_batch_norm "
    "_batch_norm_impl_index native_batch_norm_backward batch_norm_backward cudnn_batch_norm_backward "
    "miopen_batch_norm_backward"
)
_NORM_GRADIENTS = aten("native_group_norm_backward native_layer_norm_backward")
_INTERPOLATIONS = aten("upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d")
_ON_GPU: Mapping[str, _Lowering] = {
    **dict.fromkeys(_BATCH_NORMS, _gpu_batch_norm),
    "aten.native_group_norm": _after_copies(_gpu_group_norm),
    "aten.native_layer_norm": _after_copies(_always(_ONE_KERNEL)),
    **dict.fromkeys(_NORM_GRADIENTS, _after_copies(_norm)),
    **dict.fromkeys(_INTERPOLATIONS, _gpu_interpolation),
    "attention_backward": _always(Program(launches=3)),  # row sums, gradients, conversion: FlashAttention-2
    "aten.convolution_backward": _convolution_backward,
    # 4 products, attention, 2 x bias and activation, 2 x addition and norm
    "encoder_layer": _always(Program(launches=9)),
    **dict.fromkeys(("rnn", "rnn_backward"), _gpu_rnn),
    "optimizer": _gpu_optimizer,
}
_ON_CPU: Mapping[str, _Lowering] = {
    **dict.fromkeys((*_BATCH_NORMS, "aten.native_group_norm", *_NORM_GRADIENTS), _norm),
    "aten.convolution_backward": _convolution_backward,
    **{f"aten.{name}": _always(Program(flop_ratio=ratio)) for name, ratio in _FLOP_RATIO_OF_FUNCTION.items()},
    # An element of a window takes 10 and 5 cycles (`scripts/measure_functions.py`): torch uses SIMD only for
    # channels-last images.
    **dict.fromkeys(aten("max_pool2d max_pool2d_with_indices"), _always(Program(is_scalar=True))),
    "aten.avg_pool2d": _always(Program(is_scalar=True, flop_ratio=0.5)),
    # The sums of embedding bags stay in registers (FBGEMM's `GenerateEmbeddingSpMDM`).
    **dict.fromkeys(aten("_embedding_bag _embedding_bag_forward_only"), _always(Program(flop_ratio=FUSED_FLOP_RATIO))),
    **dict.fromkeys((*_INPUT_CYCLES, *_OUTPUT_CYCLES), _scalar_loop),
    **dict.fromkeys(aten("sort argsort"), _cpu_sort),
    **dict.fromkeys(aten("bernoulli bernoulli_ native_dropout"), _cpu_draw),
    "aten.addmm": _cpu_add_matmul,
    **dict.fromkeys(("attention", "attention_backward"), _cpu_attention),
    **dict.fromkeys(("rnn", "rnn_backward"), _cpu_rnn),
    "optimizer": _cpu_optimizer,
}
