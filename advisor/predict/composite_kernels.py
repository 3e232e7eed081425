"""A row in, the program that a kind of device runs for one of its calls out: launches, dispatches, extra bytes."""

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
    """What one call costs beside the FLOP and bytes of its formula.

    `reread_ratio` of what it reads it reads twice, unless it `keeps_halves_channels_last` and these come so. In NCHW
    each of its threads makes `loads_in_turn`, one after the other. Operands of `nchw_copied_bytes` and, channels-last,
    of `nhwc_copied_bytes` it copies into another order. Each of its FLOP takes `flop_ratio` times as long as one of a
    product or, where it is none, as one of an addition; where it `is_scalar`, images in NCHW come element by element.
    `revisited_bytes` it reads from places that it has read before, of `revisited_set_bytes` in all. All cores of a CPU
    start and end together `joins` times more than once a launch; of its parameters a library puts those into its own
    order at every call where it `repacks`.
    """

    launches: Number = 1.0
    dispatches: Number = 1.0
    joins: Number = 0.0
    extra_bytes: Number = 0.0
    revisited_bytes: Number = 0.0
    revisited_set_bytes: Number = 0.0
    reread_ratio: Number = 0.0
    loads_in_turn: Number = 0.0
    nchw_copied_bytes: Number = 0.0
    nhwc_copied_bytes: Number = 0.0
    flop_ratio: Number = 1.0
    is_scalar: bool = False
    repacks: bool = False
    keeps_halves_channels_last: bool = False


_QUERY_WORK_KEYS = 55.0
"""A query's softmax takes as long as its products with so many keys, 37 to 79 by head and dtype."""
_FLOP_RATIO_OF_FUNCTION: Mapping[str, float] = {
    "div": 1.5, "hardswish": 2, "rsqrt": 4, "sqrt": 5, "silu": 5, "sigmoid": 5, "silu_backward": 7, "gelu": 10,
    "exp": 10, "log": 13, "sin": 17, "cos": 17, "erf": 17, "softplus": 20, "gelu_backward": 28, "tanh": 33, "mish": 50,
    "mish_backward": 60,
}  # fmt: skip
"""What an element of torch's vectorised functions takes on a CPU beside one of an addition, both in its nearest cache.
All as `scripts/measure_functions.py` found them in fp32 on a Zen 4, torch 2.13; in bf16, computed in fp32, as long."""
FUSED_FLOP_RATIO = 0.1
"""Of what has its operands in registers: beside a function, an operator costs its FLOP, a tenth of the cycles of an
eager addition (`streaming_compute_ratio`)."""
_MAX_POOL = Program(is_scalar=True)
_AVG_POOL = Program(is_scalar=True, flop_ratio=0.5)
"""An element of a window takes 10 and 5 cycles (the same script): torch has vectors for channels-last images alone."""
_IMAGE_DIMS = 4
"""Samples, channels, height and width: what may be channels-last."""
_ONE_KERNEL = Program()
_TWO_PASSES = Program(reread_ratio=1.0)
_Lowering = Callable[[Row, float, FloatArray], Program]


@refusing_rows
def program_of(row: Row, *, kind: DeviceKind, itemsize_bytes: float, batches: FloatArray) -> Program:
    """The program of one call of the row: one kernel, unless its operator is a composite or known to need more."""
    lowering = (_ON_GPU if kind == "gpu" else _ON_CPU).get(counted_as(row.op))
    return lowering(row, itemsize_bytes, batches) if lowering else _ONE_KERNEL


def _kernels(launches: float) -> _Lowering:
    def lowering(row: Row, itemsize_bytes: float, batches: FloatArray) -> Program:
        return Program(launches=launches)

    return lowering


def _always(program: Program) -> _Lowering:
    return lambda row, itemsize_bytes, batches: program


def _cpu_add_matmul(row: Row, itemsize_bytes: float, batches: FloatArray) -> Program:
    """The bias is first copied into the whole result, which the product then adds to (ATen: addmm_impl_cpu_)."""
    return Program(extra_bytes=2 * call_at(row, batch=batches).outputs[0].numel * itemsize_bytes)


def has_running_statistics(row: Row) -> bool:
    """Whether a batch norm scales and shifts by what it has averaged before: a pointwise pass, and one alone."""
    return row.op.endswith(("_no_training", "_no_update")) or row.attributes.get("training") is False


def _norm(row: Row, itemsize_bytes: float, batches: FloatArray) -> Program:
    """Sums over a channel, a group or, in backward, what a weight scales; then a pass that needs them (ATen's kernels).

    A layer norm's row stays in registers or the nearest cache meanwhile.
    """
    is_one_pass = has_running_statistics(row) or row.attributes.get("train") is False
    return _ONE_KERNEL if is_one_pass else _TWO_PASSES


def _gpu_batch_norm(row: Row, itemsize_bytes: float, batches: FloatArray) -> Program:
    """Of halves in NHWC cuDNN's persistent kernel keeps what it sums (ATen's cudnn/BatchNorm.cpp)."""
    program = _norm(row, itemsize_bytes, batches)
    return replace(program, keeps_halves_channels_last=program.reread_ratio != 0)


def _after_copies(lowering: _Lowering) -> _Lowering:
    """What is normalised, and its gradient, are first copied into the order of their dimensions (ATen's layer_norm)."""

    def with_copies(row: Row, itemsize_bytes: float, batches: FloatArray) -> Program:
        program = lowering(row, itemsize_bytes, batches)
        copied_count = row.attributes.get(MADE_CONTIGUOUS)
        if copied_count is None:
            return program
        numel = call_at(row, batch=batches).inputs[0].numel
        return replace(program, nchw_copied_bytes=copied_count * numel * itemsize_bytes)

    return with_copies


def _gpu_group_norm(row: Row, itemsize_bytes: float, batches: FloatArray) -> Program:
    """A group lies together in NCHW alone, so that images come and go by a copy (ATen's native_group_norm).

    Gradients have none here: with theirs, steps of training channels-last came out 30 to 60 % too slow.
    """
    call = call_at(row, batch=batches)
    numel = sum(tensor.numel for tensor in (*call.inputs, *call.outputs) if len(tensor.shape) == _IMAGE_DIMS)
    return replace(_norm(row, itemsize_bytes, batches), nhwc_copied_bytes=numel * itemsize_bytes)


def _gpu_interpolation(row: Row, itemsize_bytes: float, batches: FloatArray) -> Program:
    """A thread for each pixel of the result goes through all samples and channels (ATen's cuda/UpSampleBilinear2d.cu);
    those of small images leave most of the GPU idle. Channels-last every element has a thread."""
    if CHANNELS_LAST in row.attributes:
        return _ONE_KERNEL
    samples, channels = call_at(row, batch=batches).outputs[0].shape[:2]
    return Program(loads_in_turn=samples * channels)


def _convolution_backward(launches: float) -> _Lowering:
    """The gradients of the data and of the weight both read that of the result."""

    def lowering(row: Row, itemsize_bytes: float, batches: FloatArray) -> Program:
        call = call_at(row, batch=batches)
        gradient, source = call.inputs[:2]
        wants_input, wants_weight, _ = call.attributes["output_mask"]
        both = wants_input and wants_weight
        return Program(launches=launches, reread_ratio=gradient.numel / (gradient.numel + source.numel) if both else 0)

    return lowering


def _cpu_attention(row: Row, itemsize_bytes: float, batches: FloatArray) -> Program:
    """Fused without dropout, as on CUDA: each query has its products with the keys, and its softmax's own work.

    With dropout torch takes the math path, whose scores travel through memory.

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
    """CuDNN: one product with the inputs of all time steps per layer, then two kernels (product, gates) per step.

    The recurrent weights are read anew at every step; backward runs the steps twice, for the data and the weights.
    Source: Appleyard et al., Optimizing Performance of Recurrent Neural Networks on GPUs, 2016.
    """
    passes, steps, layers = _rnn_passes(row), recurrent_steps(call_at(row, batch=batches)), _rnn_layers(row)
    return _revisiting_weights(
        Program(launches=passes * layers * (1 + 2 * steps)), row, steps=steps, itemsize_bytes=itemsize_bytes
    )


def _cpu_rnn(row: Row, itemsize_bytes: float, batches: FloatArray) -> Program:
    """An LSTM runs in oneDNN, one operator per layer; GRU and plain layers as operators per step (ATen's RNN.cpp).

    OneDNN first puts the weights into its own order (ideep's `lstm_forward`), then divides the product and the gates of
    each step among all cores. Those operators are a product, its bias and the gates' pointwise operators: 12 for a
    GRU's cell, 4 for a plain one. All read the recurrent weights anew at every step.
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
    """The recurrent weights of a layer are read anew at every step but its first."""
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
    """Foreach: every operator passes over all tensors, in launches of so many tensors and elements."""
    calls, tensors, elements = (_numeric(row, key) for key in ("calls_per_tensor", "tensor_count", "element_count"))
    launches = math.ceil(tensors / _FOREACH_TENSORS_PER_LAUNCH) + math.floor(elements / _FOREACH_ELEMENTS_PER_LAUNCH)
    return Program(launches=calls * launches, dispatches=calls, extra_bytes=_optimizer_passes_bytes(row))


def _cpu_optimizer(row: Row, itemsize_bytes: float, batches: FloatArray) -> Program:
    """A loop over the tensors, every operator on each."""
    calls = _numeric(row, "calls_per_tensor") * _numeric(row, "tensor_count")
    return Program(launches=calls, dispatches=calls, extra_bytes=_optimizer_passes_bytes(row))


def _optimizer_passes_bytes(row: Row) -> float:
    """What the operators' own passes over memory move beyond the single one of the formula."""
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
"""Their sums stay in registers (FBGEMM's `GenerateEmbeddingSpMDM`)."""
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
