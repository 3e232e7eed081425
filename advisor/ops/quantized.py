"""Costs of quantised layers, whose packed weights do not appear in the trace and are sized from inputs and outputs."""

from advisor.ops.registry import Call, Cost, aten, formula

_WEIGHT_BYTES = {
    **dict.fromkeys(("quantized.linear", "quantized.linear_relu"), 1),
    **dict.fromkeys(("quantized.linear_dynamic", "quantized.linear_relu_dynamic"), 1),
    **dict.fromkeys(("quantized.linear_dynamic_fp16", "quantized.linear_relu_dynamic_fp16"), 2),
}
"""Operator -> bytes per weight."""


@formula(*_WEIGHT_BYTES, family="quantized")
def _packed_linear(call: Call) -> Cost:
    """Inputs (input (..., in)), outputs (output (..., out)); reads the packed weight and a bias of 4 bytes too."""
    in_features, out_features = call.inputs[0].shape[-1], call.outputs[0].shape[-1]
    packed_bytes = _WEIGHT_BYTES[call.op] * in_features * out_features + 4 * out_features
    return Cost(
        flops=2 * call.outputs[0].numel * in_features,
        read_bytes=call.read_bytes + packed_bytes,
        write_bytes=call.write_bytes,
    )


@formula(*aten("_weight_int8pack_mm _weight_int4pack_mm _weight_int4pack_mm_for_cpu"), family="quantized")
def _packed_weight_product(call: Call) -> Cost:
    """Inputs (input (m, k), packed weight, scales, ...)."""
    return call.streamed(flops=2 * call.outputs[0].numel * call.inputs[0].shape[-1])
