"""Describes how a kind of device runs an operator call: launches, dispatches, extra bytes and slower FLOP."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from advisor.ops.attention import ENCODER_LAYERS, FAST_PATHS, block_ratio
from advisor.ops.norm import has_running_statistics
from advisor.ops.optimizer import stepped_elements
from advisor.ops.registry import (
    CHANNELS_LAST,
    ITEMSIZE_BYTES,
    MADE_CONTIGUOUS,
    STRIDED,
    WITHOUT_INDICES,
    Call,
    Number,
    aten,
    counted_as,
    log2,
    number_of,
)
from advisor.ops.rnn import layers_of
from advisor.predict.cpu_loops import (
    GRAIN_NUMEL,
    INTERPOLATIONS,
    LOOPS,
    SORTED_CYCLES,
    TRANSPOSED_CYCLES,
    VECTORS_NHWC,
    has_vectors_compiled,
    loop_of,
)
from advisor.predict.issued import (
    BROADCAST_CYCLES,
    LEAST_IMAGE_DIMS,
    TRANSPOSED_ELEMENT_CYCLES,
    issued_of,
    rolled_dimensions,
)
from advisor.predict.kernel_time import STRIDED_COPY_CYCLES
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
    nchw_copied_cycles: Number = 0.0
    """Cycles in which a GPU's cores issue the instructions of these copies."""
    nhwc_copied_bytes: Number = 0.0
    """The same, channels-last."""
    flop_ratio: Number = 1.0
    """Slowdown of a FLOP relative to a matmul or, for other operators, an addition."""
    function_flops: Number = 0.0
    """Work of functions between or inside the matmuls of a CPU, in additions on its vector units."""
    scalar_cycles: Number = 0.0
    """Cycles of a CPU's loop over single elements, shared by all cores."""
    indexed_additions: Number = 0.0
    """Elements that all cores of a CPU add at indices."""
    has_vectors_nhwc: bool = False
    """True if channels-last images take SIMD instead of `scalar_cycles`."""
    has_vectors_compiled: bool = False
    """True if the code that torch.compile generates takes SIMD instead of `scalar_cycles` and `serial_cycles`."""
    issue_cycles: Number = 0.0
    """Cycles in which a GPU's cores issue instructions, shared by all cores."""
    nchw_issue_cycles: Number = 0.0
    """The same if the images are in NCHW."""
    pass_bytes: Number = 0.0
    """Bytes of elementwise kernels that a GPU runs beside the matrix products."""
    pass_cycles: Number = 0.0
    """The cycles in which its cores issue the instructions of these kernels."""
    serial_cycles: Number = 0.0
    """Cycles of code that runs on one core of a CPU."""
    call_cycles: Number = 0.0
    """Cycles of one core for calling a library, whatever their work."""
    block_rows: Number = math.inf
    """Rows that a product takes at a time on a CPU, where MKL packs the other matrix again for each block."""
    repack_count: Number = 0.0
    """How often a library repacks the parameters into its own layout in a call."""
    saves_half_rereads: bool = False
    """True if the second read of `reread_ratio` is saved for channels-last 16-bit images."""


CASTS = "casts"
"""Attribute of recurrent layers under autocast: "kept" if it casts a parameter once in a step, as in training, and
"repeated" if it does so whenever one is used, as in inference."""
_SCORE_ADDITIONS = 3.0
"""Work on a score of attention beside its exponential: the maximum, the difference from it and the sum."""
_SCORE_PASSES = 4.0
"""How often the fast path of an encoder layer reads or writes a score on a CPU."""
_SOFTMAX_ADDITIONS = 7.0
"""A softmax per element: 2 cycles of a core, in rows of 2,048 on a Zen 4."""
_FAST_PATH_OPERATORS = 12.0
"""Operators of an encoder layer's fast path that torch.profiler shows on a CPU."""
_HEAD_WIDTH = 64.0
"""The usual width of a head."""
_KEY_BLOCK = 512.0
"""Keys that torch's flash attention on CPUs takes at a time (ATen's FlashAttentionKernel.cpp)."""
_QUERY_BLOCKS = ((768.0, 256.0), (192.0, 64.0), (0.0, 32.0))
"""The least number of queries for each block of queries (the same file)."""
_CALLS_PER_BLOCK = 6.0
"""Calls of oneDNN's matmul for a block of 16-bit gradients; 289 and 313 were counted for 48 and 12 x 4 blocks."""
_FLOP_RATIO_OF_FUNCTION: Mapping[str, float] = {
    "div": 1.5, "hardswish": 2, "logsumexp": 3, "copysign": 3, "exp2": 4, "rsqrt": 4, "sqrt": 5, "silu": 5,
    "sigmoid": 5, "silu_backward": 7, "gelu": 10, "exp": 10, "log": 13, "log2": 13, "log10": 13, "sin": 17, "cos": 17,
    "erf": 17, "logit": 17, "atanh": 19, "softplus": 20, "logaddexp2": 20, "asin": 22, "acos": 23, "tan": 23,
    "erfc": 24, "gelu_backward": 28, "special_entr": 33, "tanh": 33, "atan": 33, "mish": 50, "mish_backward": 60,
    # On an Emerald Rapids, where softplus and mish have 0.8 to 1 of the Zen 4's ratio. Comparisons: of gt and eq.
    "log_sigmoid_backward": 3, "glu": 5, "softplus_backward": 6, "elu_backward": 6.5,
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge", "binary_cross_entropy_with_logits"), 7), "log1p": 8,
    "glu_backward": 9, "erfinv": 13, "expm1": 13, "hypot": 14, "elu": 15, "celu": 15, "atan2": 16, "cosh": 17,
    "sinh": 17, "log_sigmoid_forward": 18, "fmod": 18, "logaddexp": 20, "remainder": 21, "floor_divide": 33,
    "xlogy": 45, "lgamma": 70, "digamma": 200,
}  # fmt: skip
"""Time per FLOP of torch's vectorized functions on a CPU relative to an addition, both in the nearest cache.
Measured by `scripts/measure_functions.py` in fp32 on a Zen 4, torch 2.13; bf16, computed in fp32, takes as long."""
FUSED_FLOP_RATIO = 0.1
"""Time of an operator whose operands are in registers, relative to an eager addition: only its FLOP, a tenth of the
cycles (`streaming_compute_ratio`)."""
UNBIASED_INPUTS = 2
"""Operands of a convolution without a bias: image and weight."""
_ENCODER_LAYER_CYCLES = 10.0
"""Cycles of a GPU's core for each feature of a token in the elementwise kernels of an encoder layer: 10 in AMP and 11
in fp32 (`scripts/nets/long_attention.py` on an H200, with a hidden layer of twice the width)."""
_LOADS_IN_FLIGHT = 724.0
"""Loads that are in flight at a time, in `LOAD_S`, of the thread block of a channel: 692 to 773 in forward and 702 to
716 in backward of a ResNet-18's widest batch norms on an H100."""
_CHANNEL_BYTES = 131_072.0
"""Bytes of a channel that a core's registers hold: 100 KB are read once on an H100, 200 KB twice."""
_IMAGE_DIMS = 4
"""Dimensions of a tensor that can be channels-last: samples, channels, height and width."""
_ONE_KERNEL = Program()
_Lowering = Callable[[Call, float], Program]
"""Returns the program of a call whose elements have this number of bytes."""


def program_of(call: Call, *, kind: DeviceKind, itemsize_bytes: float) -> Program:
    """Return the program of a call: one kernel, unless the operator is known to need more."""
    lowering = (_ON_GPU if kind == "gpu" else _ON_CPU).get(counted_as(call.op))
    program = lowering(call, itemsize_bytes) if lowering else _ONE_KERNEL
    if kind == "cpu":
        return _cpu_elementwise(program, call) if STRIDED in call.attributes else program
    issued = issued_of(call)
    if issued is None:
        return program
    return replace(program, issue_cycles=issued.cycles, nchw_issue_cycles=issued.nchw_cycles)


def _always(program: Program) -> _Lowering:
    return lambda call, itemsize_bytes: program


def _cpu_add_matmul(call: Call, itemsize_bytes: float) -> Program:
    """Add the copy of the bias into the result, to which the matmul then adds (ATen: addmm_impl_cpu_)."""
    return Program(extra_bytes=2 * call.outputs[0].numel * itemsize_bytes)


def _norm(call: Call, itemsize_bytes: float) -> Program:
    """Return the program of a norm: a pass that sums, then a pass that uses the sums (ATen's kernels).

    The sums are over a channel, a group or, in backward, the elements that share a weight. A layer norm needs no second
    read, because its row stays in registers or the nearest cache.
    """
    is_one_pass = has_running_statistics(call.op, call.attributes) or call.attributes.get("train") is False
    return Program(reread_ratio=0.0 if is_one_pass else 1.0)


def _gpu_batch_norm(call: Call, itemsize_bytes: float) -> Program:
    """Return the program of a batch norm; for 16-bit NHWC images cuDNN's persistent kernel reads them once.

    With the statistics of the batch it has, in NCHW, one thread block per channel, which reads the channel twice,
    unless it fits into the registers of a core.

    Source: ATen's cudnn/BatchNorm.cpp, and the kernels' names and times on an H100.
    """
    program = _norm(call, itemsize_bytes)
    program = replace(program, saves_half_rereads=program.reread_ratio != 0)
    images = call.inputs[0]
    if len(images.shape) < LEAST_IMAGE_DIMS or not program.saves_half_rereads:
        return program
    operand_count = 2.0 if "backward" in call.op else 1.0
    channel_numel = operand_count * images.numel / images.shape[1]
    is_reread = channel_numel * itemsize_bytes > _CHANNEL_BYTES
    return replace(program, sequential_loads=2 * channel_numel * is_reread / _LOADS_IN_FLIGHT)


def _after_copies(lowering: _Lowering) -> _Lowering:
    """Add the copies that make a norm's input and gradient contiguous first (ATen's layer_norm)."""

    def with_copies(call: Call, itemsize_bytes: float) -> Program:
        program = lowering(call, itemsize_bytes)
        if MADE_CONTIGUOUS not in call.attributes:
            return program
        copied_numel = call.attributes[MADE_CONTIGUOUS] * call.inputs[0].numel
        cycles = TRANSPOSED_ELEMENT_CYCLES.get(itemsize_bytes, 0.0) * copied_numel
        return replace(program, nchw_copied_bytes=copied_numel * itemsize_bytes, nchw_copied_cycles=cycles)

    return with_copies


def _cpu_after_copies(lowering: _Lowering) -> _Lowering:
    """Add the same copies on a CPU (ATen's layer_norm_kernel.cpp calls `expect_contiguous`)."""

    def with_copies(call: Call, itemsize_bytes: float) -> Program:
        program = lowering(call, itemsize_bytes)
        if MADE_CONTIGUOUS not in call.attributes:
            return program
        return _transposing(program, call.attributes[MADE_CONTIGUOUS] * call.inputs[0].numel, itemsize_bytes)

    return with_copies


def _cpu_elementwise(program: Program, call: Call) -> Program:
    """Add the cycles of operands that are transposed to each other; a loop over single elements has them already.

    Channels-last images are taken to be in the order that a permutation asks for.
    """
    result = call.outputs[0]
    if call.attributes[STRIDED] != "transposed" or counted_as(call.op) in LOOPS:
        return program
    program = _transposing(program, result.numel, result.itemsize_bytes)
    return replace(program, has_vectors_nhwc=len(result.shape) == _IMAGE_DIMS)


def _transposing(program: Program, numel: Number, itemsize_bytes: float) -> Program:
    """Add a CPU's cycles for the elements that it transposes; Inductor transposes them in registers."""
    cycles = TRANSPOSED_CYCLES.get(itemsize_bytes, 0.0) * numel
    is_shared = np.asarray(numel > GRAIN_NUMEL)
    return replace(
        program,
        scalar_cycles=cycles * is_shared,
        serial_cycles=cycles * ~is_shared,
        has_vectors_nhwc=True,
        has_vectors_compiled=True,
    )


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


_PLAN_CYCLES = 40.0
"""Cycles for each point of a Fourier transform's length, mostly the plan's trigonometric functions: transforms of 32
and of 4,096 points take 3 and 50 us."""


def _cpu_loop(call: Call, itemsize_bytes: float) -> Program:
    loop, op = loop_of(call), counted_as(call.op)
    return Program(
        extra_bytes=-call.outputs[1].size_bytes if WITHOUT_INDICES in call.attributes else 0.0,
        scalar_cycles=loop.shared_cycles,
        serial_cycles=loop.serial_cycles,
        indexed_additions=loop.shared_additions,
        flop_ratio=FUSED_FLOP_RATIO if op in INTERPOLATIONS else 1.0,  # of elements in registers
        has_vectors_nhwc=op in VECTORS_NHWC,
        has_vectors_compiled=has_vectors_compiled(call),
    )


def _cpu_table_gradient(call: Call, itemsize_bytes: float) -> Program:
    """Return the program of an embedding's dense gradient, whose zeros a CPU reads into a cache before it writes them.

    That of a bag sorts the indices first, on one core; its nine kernels were counted with torch.profiler.
    """
    program = Program(extra_bytes=call.write_bytes)
    if call.op == "aten.embedding_dense_backward":
        return program
    indices = call.inputs[1].numel
    return replace(program, launches=9.0, serial_cycles=SORTED_CYCLES * indices * log2(indices))


def _cpu_transform(call: Call, itemsize_bytes: float) -> Program:
    """Return the program of a Fourier transform, for which torch makes a plan at every call."""
    lengths = [call.inputs[0].shape[dim] for dim in call.attributes["dim"]]
    return Program(serial_cycles=_PLAN_CYCLES * sum(lengths))


def _gpu_convolution(call: Call, itemsize_bytes: float) -> Program:
    """Return the program of a convolution, to whose result torch adds a bias in a kernel of its own.

    Its launch is counted with that of the convolution.
    """
    if len(call.inputs) == UNBIASED_INPUTS:
        return _ONE_KERNEL
    numel = call.outputs[0].numel
    return Program(pass_bytes=2 * numel * itemsize_bytes, pass_cycles=BROADCAST_CYCLES * numel)


def _gpu_roll(call: Call, itemsize_bytes: float) -> Program:
    """Return the program of a roll: a kernel for each dimension (ATen's TransformationHelper.h: `roll_common`)."""
    count = rolled_dimensions(call)
    return Program(launches=count, dispatches=count, extra_bytes=2 * (count - 1) * call.write_bytes)


def _gpu_encoder_layer(call: Call, itemsize_bytes: float) -> Program:
    """Return the program of an encoder layer: 4 products, attention, 2 x bias and activation, 2 x addition and norm.

    Beside what the formula counts, elements of the width are moved in three copies (6), two additions (4) and two norms
    (2), those of the hidden layer in an activation.
    """
    source, hidden = call.inputs[0], call.inputs[9].shape[0]
    passed_numel = source.numel / source.shape[-1] * (12 * source.shape[-1] + 2 * hidden)
    return Program(
        launches=9, pass_bytes=passed_numel * itemsize_bytes, pass_cycles=_ENCODER_LAYER_CYCLES * source.numel
    )


def _convolution_backward(call: Call, itemsize_bytes: float) -> Program:
    """Return the program of a convolution's backward: a library call for each gradient, which reads the output's."""
    gradient, source = call.inputs[:2]
    wants_input, wants_weight, _ = call.attributes["output_mask"]
    both = wants_input and wants_weight
    return Program(
        launches=2.0 if both else 1.0, reread_ratio=gradient.numel / (gradient.numel + source.numel) if both else 0
    )


def _gpu_convolution_backward(call: Call, itemsize_bytes: float) -> Program:
    """Add a bias's gradient, which cuDNN does not compute: torch sums the result's gradients in a kernel of its own.

    Source: `convolution_backward` in ATen's Convolution.cpp, and in Inductor's decompositions.
    """
    program = _convolution_backward(call, itemsize_bytes)
    *wants_others, wants_bias = call.attributes["output_mask"]
    if not wants_bias or not any(wants_others):
        return program
    return replace(program, launches=program.launches + 1, pass_bytes=call.inputs[0].numel * itemsize_bytes)


def _cpu_attention(call: Call, itemsize_bytes: float) -> Program:
    """Return the program of attention: fused without dropout, where a score costs an exponential beside its products.

    A causal mask skips whole blocks of keys only. Every block of queries multiplies all keys and values. Gradients in
    16 bits are products by oneDNN, block by block, with the heads shared among the cores.

    With dropout torch takes the math path, which writes the scores to memory.

    Forward, each score: written by the product; read and written by softmax, then by dropout, which also writes and
    keeps a mask of the same width; read by the second product: 7 passes in 6 operators (scale, two products, softmax,
    random mask, multiplication). Backward: written and read around each product's gradient, dropout's and softmax's
    with their saved results: 10 passes in 8 operators.
    """
    is_backward = call.op == "attention_backward"
    query, key = call.inputs[1 if is_backward else 0 :][:2]
    scores = query.numel / query.shape[-1] * key.shape[-2]
    if not call.attributes.get("dropout_ratio"):
        is_causal = call.attributes.get("causal", call.attributes.get("is_causal", False))
        # With n blocks of keys, queries of the i-th block take i of them, so that (n + 1) / 2n of all are computed.
        flop_ratio = 1 + np.minimum(1.0, _KEY_BLOCK / key.shape[-2]) if is_causal else 1.0
        taken = scores * flop_ratio / 2 if is_causal else scores * block_ratio(call)
        length = query.shape[-2]
        block = np.select([length >= least for least, _ in _QUERY_BLOCKS], [size for _, size in _QUERY_BLOCKS])
        blocks = scores / key.shape[-2] / length * np.ceil(length / block) * np.ceil(key.shape[-2] / _KEY_BLOCK)
        is_by_block = is_backward and itemsize_bytes < ITEMSIZE_BYTES["float32"]
        return Program(
            flop_ratio=flop_ratio,
            function_flops=(_FLOP_RATIO_OF_FUNCTION["exp"] + _SCORE_ADDITIONS) * taken,
            scalar_cycles=_CALLS_PER_BLOCK * PRODUCT_CALL_CYCLES * blocks * is_by_block,
            block_rows=block,
        )
    passes, operators = (10.0, 8.0) if is_backward else (7.0, 6.0)
    return Program(launches=operators, dispatches=operators, extra_bytes=passes * scores * itemsize_bytes)


def _cpu_fast_path(call: Call, itemsize_bytes: float) -> Program:
    """Return the program of an encoder layer or of multi-head attention, whose scores a CPU writes to memory.

    A product writes them, a softmax reads and writes them, and another product reads them (ATen's
    transformers/attention.cpp, `native_multi_head_attention_cpu`). Heads of 64 are assumed where the trace does not
    tell their number.
    """
    query, key = call.inputs[0], call.inputs[0 if call.op in ENCODER_LAYERS else 1]
    head_count = call.attributes.get("num_heads", call.attributes.get("num_head"))
    if head_count is None:
        head_count = max(1.0, query.shape[-1] / _HEAD_WIDTH)
    scores = head_count * query.numel / query.shape[-1] * key.shape[-2]
    return Program(
        launches=_FAST_PATH_OPERATORS,
        function_flops=_SOFTMAX_ADDITIONS * scores,
        extra_bytes=_SCORE_PASSES * scores * itemsize_bytes,
    )


def _gpu_rnn(call: Call, itemsize_bytes: float) -> Program:
    """Return the program of a cuDNN RNN: per layer a matmul of all inputs, then two kernels (matmul, gates) per step.

    Each step reads the recurrent weights again; backward runs the steps twice, for the data and the weights.
    Source: Appleyard et al., Optimizing Performance of Recurrent Neural Networks on GPUs, 2016.
    """
    program = Program(launches=_layer_passes(call) * (1 + 2 * recurrent_steps(call)))
    return _revisiting_weights(program, call, itemsize_bytes)


_CELL_OPERATORS: Mapping[str, tuple[float, float]] = {
    "gru": (12.0, 35.0),
    "rnn_tanh": (4.0, 12.0),
    "rnn_relu": (4.0, 12.0),
}
"""Operators of a cell on a CPU, forward (a matmul, its bias, and those of the gates) and backward (kernels and nodes of
autograd). Counted with torch.profiler, torch 2.13."""
_TANH_CYCLES, _SIGMOID_CYCLES, _PASS_CYCLES = 6.7, 2.0, 0.85
_GATE_CYCLES: Mapping[str, tuple[float, ...]] = {
    "gru": (_TANH_CYCLES, *2 * (_SIGMOID_CYCLES,), *8 * (_PASS_CYCLES,)),
    "rnn_tanh": (_TANH_CYCLES, *2 * (_PASS_CYCLES,)),
    "rnn_relu": 3 * (_PASS_CYCLES,),
}
"""Cycles of a core for a unit of the state in each forward operator on the gates: 8,192 take 15.6 us in a tanh, 4.6 us
in a sigmoid and 2 us in a pass (Zen 4 at 3.5 GHz)."""
_LAUNCH_CYCLES = 9_000.0
"""Cycles of such an operator that its launch counts already: 2.5 us on that Zen 4, `Efficiency.launch_s`."""
_STATE_CASTS: Mapping[str, tuple[float, float]] = {"gru": (4.0, 5.0)}
"""The casts of a cell under autocast, forward and backward: a GRU's state stays in fp32, a plain one's does not."""
PRODUCT_CALL_CYCLES = 60_000.0
"""Cycles of one core for a call of oneDNN's matmul, which torch multiplies 16-bit matrices with: 15 to 25 us, by the
steps of RNNs, of linear layers of 128 and of the gradients of attention on a Granite Rapids at 3.9 GHz."""


def _cpu_rnn(call: Call, itemsize_bytes: float) -> Program:
    """Return the program of an RNN: an LSTM is one oneDNN call per layer, others are operators per step (RNN.cpp).

    OneDNN first repacks the weights (ideep's `lstm_forward`), then splits the matmul and the gates of each step over
    all cores. The operators of other cells are called by one dispatch, because the loop over the steps is in C++, and
    of each cell's only the matmul has enough work for all cores. Every step reads the recurrent weights again, and in
    16 bits oneDNN's matmul repacks them.
    """
    passes, steps, mode = _layer_passes(call), recurrent_steps(call), call.attributes["mode"]
    if mode == "lstm":
        program = Program(launches=passes, dispatches=passes, joins=2 * passes * steps, repack_count=1.0)
        return _with_weight_gradients(_revisiting_weights(program, call, itemsize_bytes), call, itemsize_bytes)
    is_backward = call.op == "rnn_backward"
    runs = passes / 2 if is_backward else passes
    operators = _CELL_OPERATORS[mode][is_backward]
    if CASTS in call.attributes:
        operators += _STATE_CASTS.get(mode, (0.0, 0.0))[is_backward]
    program = Program(launches=runs * steps * operators, dispatches=passes, joins=passes * steps)
    if itemsize_bytes < ITEMSIZE_BYTES["float32"]:
        layers = layers_of(call)
        recurrent_numel = runs * layers.gates * layers.hidden_size * layers.recurrent_size
        program = replace(
            program,
            repack_count=1 + (steps - 1) * recurrent_numel / layers.weight_numel,
            call_cycles=PRODUCT_CALL_CYCLES * passes * steps,
        )
    if not is_backward:
        program = _with_gates(program, call)
    program = _with_weight_gradients(_revisiting_weights(program, call, itemsize_bytes), call, itemsize_bytes)
    return _casting_again(program, call, itemsize_bytes) if call.attributes.get(CASTS) == "repeated" else program


def _with_gates(program: Program, call: Call) -> Program:
    """Add what each operator on the gates takes beyond its launch; those of few elements run on one core."""
    steps, layers = recurrent_steps(call), layers_of(call)
    numel = call.outputs[0].numel / call.outputs[0].shape[-1] / steps * layers.hidden_size
    of_cell = sum(np.maximum(cycles * numel - _LAUNCH_CYCLES, 0.0) for cycles in _GATE_CYCLES[call.attributes["mode"]])
    gate_cycles = _layer_passes(call) * steps * of_cell
    is_shared = np.asarray(numel > GRAIN_NUMEL)
    return replace(
        program,
        serial_cycles=program.serial_cycles + gate_cycles * ~is_shared,
        scalar_cycles=program.scalar_cycles + gate_cycles * is_shared,
    )


def _with_weight_gradients(program: Program, call: Call, itemsize_bytes: float) -> Program:
    """Add the sums of weight gradients over the steps of a backward pass on a CPU.

    A GRU or plain cell writes its own gradient of the recurrent weights, and autograd adds it to the sum of the steps
    before: four passes. OneDNN adds each step of an LSTM in 16 bits to both gradients in fp32 (`beta1` in
    brgemm_cell_common_bwd.cpp). In fp32 one product per layer sums all steps (`merge_gemm_iter` in rnn_utils.hpp).
    """
    layers = layers_of(call)
    is_lstm = call.attributes["mode"] == "lstm"
    if call.op != "rnn_backward" or (is_lstm and itemsize_bytes > ITEMSIZE_BYTES["float16"]):
        return program
    width = layers.direction_count * layers.recurrent_size
    inputs = layers.input_size + (layers.layer_count - 1) * width if is_lstm else 0
    numel = layers.gates * layers.hidden_size * (inputs / layers.layer_count + layers.recurrent_size)
    held_bytes = numel * (ITEMSIZE_BYTES["float32"] if is_lstm else 2 * itemsize_bytes)
    cells = layers.layer_count * layers.direction_count * recurrent_steps(call)
    return replace(
        program,
        revisited_bytes=program.revisited_bytes + 2 * cells * held_bytes,
        revisited_set_bytes=program.revisited_set_bytes + held_bytes,
    )


def _casting_again(program: Program, call: Call, itemsize_bytes: float) -> Program:
    """Add what autocast does at every step of a GRU or plain recurrent layer in inference.

    It keeps no 16-bit copies of parameters there, so that each step casts the recurrent weights and their bias. Since
    such a copy needs no gradient, the product with a batch-first input is batched over the steps, each with a copy of
    the weights of its own (`should_fold` in ATen's LinearAlgebra.cpp).
    """
    layers, steps = layers_of(call), recurrent_steps(call)
    cells = layers.layer_count * layers.direction_count * steps
    weight_numel = layers.gates * layers.hidden_size * layers.recurrent_size
    cast_bytes = weight_numel * (ITEMSIZE_BYTES["float32"] + itemsize_bytes)
    samples = call.outputs[0].numel / call.outputs[0].shape[-1] / steps
    is_copied = call.attributes["batch_first"] * (np.asarray(samples) > 1)
    input_numel = layers.direction_count * layers.gates * layers.hidden_size * layers.input_size
    return replace(
        program,
        launches=program.launches + 2 * cells,
        joins=program.joins + cells,
        revisited_bytes=program.revisited_bytes + cells * cast_bytes,
        revisited_set_bytes=program.revisited_set_bytes + cast_bytes,
        scalar_cycles=STRIDED_COPY_CYCLES * is_copied * steps * input_numel,
        extra_bytes=program.extra_bytes + 2 * itemsize_bytes * is_copied * steps * input_numel,
    )


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
    calls, tensors, elements = _optimizer_counts(call)
    launches = np.ceil(tensors / _FOREACH_TENSORS_PER_LAUNCH) + np.floor(elements / _FOREACH_ELEMENTS_PER_LAUNCH)
    return Program(launches=calls * launches, dispatches=calls, extra_bytes=_optimizer_passes_bytes(call))


def _cpu_optimizer(call: Call, itemsize_bytes: float) -> Program:
    """Return the program of a for-loop optimizer: every operator runs once per tensor.

    Torch divides only large tensors among the cores. A trace has no sizes of single tensors, so as many are taken for
    large as there are elements for.
    """
    calls, tensors, elements = _optimizer_counts(call)
    return Program(
        launches=calls * tensors,
        dispatches=calls * tensors,
        joins=calls * np.minimum(tensors, elements / GRAIN_NUMEL),
        extra_bytes=_optimizer_passes_bytes(call),
    )


def _optimizer_counts(call: Call) -> tuple[float, float, Number]:
    """Return the calls per tensor, the tensors, and the elements that are updated."""
    calls, tensors = (number_of(call.attributes, name) for name in ("calls_per_tensor", "tensor_count"))
    return calls, tensors, stepped_elements(call)


def _optimizer_passes_bytes(call: Call) -> Number:
    """Return the bytes that separate operators move beyond the single pass of the formula."""
    loop, once = (
        sum(number_of(call.attributes, f"{prefix}{way}_bytes_per_element") for way in ("read", "write"))
        for prefix in ("loop_", "")
    )
    return stepped_elements(call) * max(0.0, loop - once)


_BATCH_NORMS = aten(
    "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training _batch_norm_with_update "
    "_batch_norm_no_update cudnn_batch_norm miopen_batch_norm "
    "_native_batch_norm_legit_functional _batch_norm_with_update_functional "
    "_batch_norm_impl_index native_batch_norm_backward batch_norm_backward cudnn_batch_norm_backward "
    "miopen_batch_norm_backward"
)
_NORM_GRADIENTS = aten("native_group_norm_backward native_layer_norm_backward _fused_rms_norm_backward")
_INTERPOLATIONS = aten("upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d")
_ON_GPU: Mapping[str, _Lowering] = {
    **dict.fromkeys(_BATCH_NORMS, _gpu_batch_norm),
    "aten.native_group_norm": _after_copies(_gpu_group_norm),
    "aten.native_layer_norm": _after_copies(_always(_ONE_KERNEL)),
    **dict.fromkeys(_NORM_GRADIENTS, _after_copies(_norm)),
    **dict.fromkeys(_INTERPOLATIONS, _gpu_interpolation),
    "attention_backward": _always(Program(launches=3)),  # row sums, gradients, conversion: FlashAttention-2
    "aten.convolution_backward": _gpu_convolution_backward,
    "aten.convolution": _gpu_convolution,
    "aten.roll": _gpu_roll,
    **dict.fromkeys(ENCODER_LAYERS, _gpu_encoder_layer),
    **dict.fromkeys(("rnn", "rnn_backward"), _gpu_rnn),
    "optimizer": _gpu_optimizer,
}
_ON_CPU: Mapping[str, _Lowering] = {
    **dict.fromkeys(FAST_PATHS, _cpu_fast_path),
    **dict.fromkeys((*_BATCH_NORMS, "aten.native_group_norm", "aten.native_group_norm_backward"), _norm),
    "aten.native_layer_norm": _cpu_after_copies(_always(_ONE_KERNEL)),
    "aten.native_layer_norm_backward": _cpu_after_copies(_norm),
    "aten.convolution_backward": _convolution_backward,
    **{f"aten.{name}": _always(Program(flop_ratio=ratio)) for name, ratio in _FLOP_RATIO_OF_FUNCTION.items()},
    **dict.fromkeys(LOOPS, _cpu_loop),
    # The sums of embedding bags stay in registers (FBGEMM's `GenerateEmbeddingSpMDM`). torch.profiler shows fourteen
    # small kernels around them: offsets, sizes and means.
    **dict.fromkeys(
        aten("_embedding_bag _embedding_bag_forward_only"),
        _always(Program(launches=15, joins=1.0, flop_ratio=FUSED_FLOP_RATIO)),
    ),
    **dict.fromkeys(
        aten("embedding_dense_backward _embedding_bag_dense_backward _embedding_bag_backward"), _cpu_table_gradient
    ),
    **dict.fromkeys(aten("_fft_c2c _fft_r2c _fft_c2r"), _cpu_transform),
    "aten.addmm": _cpu_add_matmul,
    **dict.fromkeys(("attention", "attention_backward"), _cpu_attention),
    **dict.fromkeys(("rnn", "rnn_backward"), _cpu_rnn),
    "optimizer": _cpu_optimizer,
}
