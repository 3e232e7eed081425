"""Describes how a kind of device runs one call of a row: launches, dispatches, extra bytes and slower FLOP."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from advisor.ops.evaluate import call_at
from advisor.ops.registry import CHANNELS_LAST, MADE_CONTIGUOUS, Number, counted_as
from advisor.predict.products import recurrent_steps
from advisor.predict.row_errors import refusing_rows
from advisor.records.device import DeviceKind
from advisor.records.prediction import FloatArray
from advisor.records.workload import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The cost of one call beyond the FLOP and bytes of its formula."""

    launches: Number = 1.0
    dispatches: Number = 1.0
    joins: Number = 0.0
    """How often all cores of a CPU start and finish together, in addition to once per launch."""
    extra_bytes: Number = 0.0
    revisited_bytes: Number = 0.0
    """Bytes of repeated reads from a working set of `revisited_set_bytes`."""
    revisited_set_bytes: Number = 0.0
    reread_ratio: Number = 0.0
    """Share of its input that it reads twice."""
    loads_in_turn: Number = 0.0
    """Loads that each thread makes in sequence in NCHW."""
    nchw_copied_bytes: Number = 0.0
    """Bytes of operands that it copies to another layout if the images are in NCHW."""
    nhwc_copied_bytes: Number = 0.0
    """The same, channels-last."""
    flop_ratio: Number = 1.0
    """Slowdown of a FLOP relative to a matmul or, for other operators, an addition."""
    is_scalar: bool = False
    """True if NCHW images are processed without SIMD, one element at a time."""
    repacks: bool = False
    """True if a library repacks the parameters into its own layout at every call."""
    keeps_halves_channels_last: bool = False
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
_MAX_POOL = Program(is_scalar=True)
_AVG_POOL = Program(is_scalar=True, flop_ratio=0.5)
"""An element of a window takes 10 and 5 cycles (the same script): torch uses SIMD only for channels-last images."""
_IMAGE_DIMS = 4
"""Dimensions of a tensor that can be channels-last: samples, channels, height and width."""
_ONE_KERNEL = Program()
_TWO_PASSES = Program(reread_ratio=1.0)
_Lowering = Callable[[Row, float, FloatArray], Program]


@refusing_rows
def program_of(row: Row, *, kind: DeviceKind, itemsize_bytes: float, batches: FloatArray) -> Program:
    """Return the program of one call of the row: one kernel, unless the operator is known to need more."""
    lowering = (_ON_GPU if kind == "gpu" else _ON_CPU).get(counted_as(row.op))
    return lowering(row, itemsize_bytes, batches) if lowering else _ONE_KERNEL


def _kernels(launches: float) -> _Lowering:
    def lowering(row: Row, itemsize_bytes: float, batches: FloatArray) -> Program:
        return Program(launches=launches)

    return lowering


def _always(program: Program) -> _Lowering:
    return lambda row, itemsize_bytes, batches: program


def _cpu_add_matmul(row: Row, itemsize_bytes: float, batches: FloatArray) -> Program:
    """Add the copy of the bias into the result, to which the matmul then adds (ATen: addmm_impl_cpu_)."""
    return Program(extra_bytes=2 * call_at(row, batch=batches).outputs[0].numel * itemsize_bytes)


def has_running_statistics(row: Row) -> bool:
    """Return whether a batch norm uses running statistics, which makes it a single pointwise pass."""
    return row.op.endswith(("_no_training", "_no_update")) or row.attributes.get("training") is False


def _norm(row: Row, itemsize_bytes: float, batches: FloatArray) -> Program:
    """Return the program of a norm: a pass that sums, then a pass that uses the sums (ATen's kernels).

    The sums are over a channel, a group or, in backward, the elements that share a weight. A layer norm needs no second
    read, because its row stays in registers or the nearest cache.
    """
    is_one_pass = has_running_statistics(row) or row.attributes.get("train") is False
    return _ONE_KERNEL if is_one_pass else _TWO_PASSES


def _gpu_batch_norm(row: Row, itemsize_bytes: float, batches: FloatArray) -> Program:
    """Return the program of a batch norm; for 16-bit NHWC images cuDNN's persistent kernel reads them once.

    Source: ATen's cudnn/BatchNorm.cpp.
    """
    program = _norm(row, itemsize_bytes, batches)
    return replace(program, keeps_halves_channels_last=program.reread_ratio != 0)


def _after_copies(lowering: _Lowering) -> _Lowering:
    """Add the copies that make a norm's input and gradient contiguous first (ATen's layer_norm)."""

    def with_copies(row: Row, itemsize_bytes: float, batches: FloatArray) -> Program:
        program = lowering(row, itemsize_bytes, batches)
        copied_count = row.attributes.get(MADE_CONTIGUOUS)
        if copied_count is None:
            return program
        numel = call_at(row, batch=batches).inputs[0].numel
        return replace(program, nchw_copied_bytes=copied_count * numel * itemsize_bytes)

    return with_copies


def _gpu_group_norm(row: Row, itemsize_bytes: float, batches: FloatArray) -> Program:
    """Return the program of a group norm, which copies channels-last images to NCHW and back.

    A group is contiguous only in NCHW (ATen's native_group_norm). Gradients get no such copies: with them,
    channels-last training steps were predicted 30 to 60 % too slow.
    """
    call = call_at(row, batch=batches)
    numel = sum(tensor.numel for tensor in (*call.inputs, *call.outputs) if len(tensor.shape) == _IMAGE_DIMS)
    return replace(_norm(row, itemsize_bytes, batches), nhwc_copied_bytes=numel * itemsize_bytes)


def _gpu_interpolation(row: Row, itemsize_bytes: float, batches: FloatArray) -> Program:
    """Return the program of an interpolation, which has low occupancy on small NCHW images.

    In NCHW each output pixel has one thread, which loops over all samples and channels (ATen's
    cuda/UpSampleBilinear2d.cu). Channels-last, every element has a thread.
    """
    if CHANNELS_LAST in row.attributes:
        return _ONE_KERNEL
    samples, channels = call_at(row, batch=batches).outputs[0].shape[:2]
    return Program(loads_in_turn=samples * channels)


def _convolution_backward(launches: float) -> _Lowering:
    """Return the program of a convolution's backward: both gradients read the gradient of the output."""

    def lowering(row: Row, itemsize_bytes: float, batches: FloatArray) -> Program:
        call = call_at(row, batch=batches)
        gradient, source = call.inputs[:2]
        wants_input, wants_weight, _ = call.attributes["output_mask"]
        both = wants_input and wants_weight
        return Program(launches=launches, reread_ratio=gradient.numel / (gradient.numel + source.numel) if both else 0)

    return lowering


def _cpu_attention(row: Row, itemsize_bytes: float, batches: FloatArray) -> Program:
    """Return the program of attention: fused without dropout, where a query costs its matmuls and its softmax.

    With dropout torch takes the math path, which writes the scores to memory.

    Forward, each score: written by the product; read and written by softmax, then by dropout, which also writes and
    keeps a mask of the same width; read by the second product: 7 passes in 6 operators (scale, two products, softmax,
    random mask, multiplication). Backward: written and read around each product's gradient, dropout's and softmax's
    with their saved results: 10 passes in 8 operators.
    """
    is_backward = row.op == "attention_backward"
    query, key = call_at(row, batch=batches).inputs[1 if is_backward else 0 :][:2]
    if not row.attributes.get("dropout_ratio"):
        return Program(flop_ratio=1 + _QUERY_WORK_KEYS / key.shape[-2])
    scores = query.numel / query.shape[-1] * key.shape[-2]
    passes, operators = (10.0, 8.0) if is_backward else (7.0, 6.0)
    return Program(launches=operators, dispatches=operators, extra_bytes=passes * scores * itemsize_bytes)


def _gpu_rnn(row: Row, itemsize_bytes: float, batches: FloatArray) -> Program:
    """Return the program of a cuDNN RNN: per layer a matmul of all inputs, then two kernels (matmul, gates) per step.

    Each step reads the recurrent weights again; backward runs the steps twice, for the data and the weights.
    Source: Appleyard et al., Optimizing Performance of Recurrent Neural Networks on GPUs, 2016.
    """
    passes, steps, layers = _rnn_passes(row), recurrent_steps(call_at(row, batch=batches)), _rnn_layers(row)
    return _revisiting_weights(
        Program(launches=passes * layers * (1 + 2 * steps)), row, steps=steps, itemsize_bytes=itemsize_bytes
    )


def _cpu_rnn(row: Row, itemsize_bytes: float, batches: FloatArray) -> Program:
    """Return the program of an RNN: an LSTM is one oneDNN call per layer, others are operators per step (RNN.cpp).

    OneDNN first repacks the weights (ideep's `lstm_forward`), then splits the matmul and the gates of each step over
    all cores. A GRU cell takes 12 operators and a plain cell 4: a matmul, its bias and the pointwise operators of the
    gates. Every step reads the recurrent weights again.
    """
    passes, steps, layers = _rnn_passes(row), recurrent_steps(call_at(row, batch=batches)), _rnn_layers(row)
    if row.attributes["mode"] == "lstm":
        program = Program(
            launches=passes * layers,
            dispatches=passes * layers,
            joins=passes * layers * (2 * steps - 1),
            repacks=True,
        )
    else:
        operators = passes * layers * steps * (12.0 if row.attributes["mode"] == "gru" else 4.0)
        program = Program(launches=operators, dispatches=operators)
    return _revisiting_weights(program, row, steps=steps, itemsize_bytes=itemsize_bytes)


def _revisiting_weights(program: Program, row: Row, *, steps: Number, itemsize_bytes: float) -> Program:
    """Add the reads of a layer's recurrent weights at every step after the first."""
    weight_bytes = _recurrent_weight_count(row) * itemsize_bytes
    return replace(
        program,
        revisited_bytes=_rnn_passes(row) * _rnn_layers(row) * (steps - 1) * weight_bytes,
        revisited_set_bytes=weight_bytes,
    )


def _rnn_passes(row: Row) -> float:
    return 2.0 if row.op == "rnn_backward" else 1.0


def _rnn_layers(row: Row) -> float:
    return _numeric(row, "num_layers") * (2.0 if row.attributes["bidirectional"] else 1.0)


def _recurrent_weight_count(row: Row) -> float:
    gates = {"lstm": 4.0, "gru": 3.0}.get(str(row.attributes["mode"]), 1.0)
    hidden = _numeric(row, "hidden_size")
    return gates * hidden * (_numeric(row, "proj_size") or hidden)


_FOREACH_TENSORS_PER_LAUNCH = 36
"""Tensors in one launch over lists of four (`depth_to_max_tensors` in ATen's MultiTensorApply.cuh)."""
_FOREACH_ELEMENTS_PER_LAUNCH = 320 * 65_536
"""320 blocks with a chunk of 65,536 elements each (the same file)."""


def _gpu_optimizer(row: Row, itemsize_bytes: float, batches: FloatArray) -> Program:
    """Return the program of a foreach optimizer: each operator runs over all tensors, in launches of limited size."""
    calls, tensors, elements = (_numeric(row, key) for key in ("calls_per_tensor", "tensor_count", "element_count"))
    launches = math.ceil(tensors / _FOREACH_TENSORS_PER_LAUNCH) + math.floor(elements / _FOREACH_ELEMENTS_PER_LAUNCH)
    return Program(launches=calls * launches, dispatches=calls, extra_bytes=_optimizer_passes_bytes(row))


def _cpu_optimizer(row: Row, itemsize_bytes: float, batches: FloatArray) -> Program:
    """Return the program of a for-loop optimizer: every operator runs once per tensor."""
    calls = _numeric(row, "calls_per_tensor") * _numeric(row, "tensor_count")
    return Program(launches=calls, dispatches=calls, extra_bytes=_optimizer_passes_bytes(row))


def _optimizer_passes_bytes(row: Row) -> float:
    """Return the bytes that separate operators move beyond the single pass of the formula."""
    loop = _numeric(row, "loop_read_bytes_per_element") + _numeric(row, "loop_write_bytes_per_element")
    once = _numeric(row, "read_bytes_per_element") + _numeric(row, "write_bytes_per_element")
    return _numeric(row, "element_count") * max(0.0, loop - once)


def _numeric(row: Row, key: str) -> float:
    value = row.attributes[key]
    if not isinstance(value, (int, float)):
        raise TypeError(f"{row.op}: attribute {key} is {value!r}, not a number")
    return float(value)


_BATCH_NORMS = (
    "aten.native_batch_norm", "aten._native_batch_norm_legit", "aten._batch_norm_with_update",
    "aten.cudnn_batch_norm", "aten.miopen_batch_norm", "aten._batch_norm_impl_index",
    "aten.native_batch_norm_backward", "aten.batch_norm_backward", "aten.cudnn_batch_norm_backward",
    "aten.miopen_batch_norm_backward",
)  # fmt: skip
_BAGS = ("aten._embedding_bag", "aten._embedding_bag_forward_only")
"""Embedding bags, whose sums stay in registers (FBGEMM's `GenerateEmbeddingSpMDM`)."""
_GROUP_NORM = "aten.native_group_norm"
_LAYER_NORM = "aten.native_layer_norm"
_OTHER_NORMS = ("aten.native_group_norm_backward", "aten.native_layer_norm_backward")
_INTERPOLATIONS = (
    "aten.upsample_linear1d", "aten.upsample_bilinear2d", "aten.upsample_trilinear3d", "aten.upsample_bicubic2d",
)  # fmt: skip
_ON_GPU: Mapping[str, _Lowering] = {
    **dict.fromkeys(_BATCH_NORMS, _gpu_batch_norm),
    _GROUP_NORM: _after_copies(_gpu_group_norm),
    _LAYER_NORM: _after_copies(_always(_ONE_KERNEL)),
    **dict.fromkeys(_OTHER_NORMS, _after_copies(_norm)),
    **dict.fromkeys(_INTERPOLATIONS, _gpu_interpolation),
    "attention_backward": _kernels(3),  # row sums, gradients, conversion: FlashAttention-2
    "aten.convolution_backward": _convolution_backward(2),  # cuDNN
    "encoder_layer": _kernels(9),  # 4 products, attention, 2 x bias and activation, 2 x addition and norm
    "rnn": _gpu_rnn,
    "rnn_backward": _gpu_rnn,
    "optimizer": _gpu_optimizer,
}
_ON_CPU: Mapping[str, _Lowering] = {
    **dict.fromkeys((*_BATCH_NORMS, _GROUP_NORM, *_OTHER_NORMS), _norm),
    "aten.convolution_backward": _convolution_backward(1),
    **{f"aten.{name}": _always(Program(flop_ratio=ratio)) for name, ratio in _FLOP_RATIO_OF_FUNCTION.items()},
    **dict.fromkeys(("aten.max_pool2d", "aten.max_pool2d_with_indices"), _always(_MAX_POOL)),
    "aten.avg_pool2d": _always(_AVG_POOL),
    **dict.fromkeys(_BAGS, _always(Program(flop_ratio=FUSED_FLOP_RATIO))),
    "aten.addmm": _cpu_add_matmul,
    "attention": _cpu_attention,
    "attention_backward": _cpu_attention,
    "rnn": _cpu_rnn,
    "rnn_backward": _cpu_rnn,
    "optimizer": _cpu_optimizer,
}
