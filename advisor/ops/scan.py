"""Costs of scans along a dimension: 1 FLOP per element."""

from advisor.ops.registry import Call, Cost, aten, formula


@formula(*aten("cumsum cumprod"), family="scan", autocast="full")
def _scan(call: Call) -> Cost:
    return call.streamed(flops=call.inputs[0].numel)


@formula(*aten("cummax cummin _cummax_helper _cummin_helper"), family="scan")
def _extreme_scan(call: Call) -> Cost:
    return call.streamed(flops=call.inputs[0].numel)


@formula(*aten("logcumsumexp _logcumsumexp"), family="scan")
def _log_scan(call: Call) -> Cost:
    """Maximum, subtract, exponential, add."""
    return call.streamed(flops=4 * call.inputs[0].numel)
