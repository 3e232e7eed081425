"""Costs of scans along a dimension: 1 FLOP per element; in logarithms 4 (maximum, subtract, exponential, add)."""

from advisor.ops.registry import aten, streaming

streaming(*aten("cumsum cumprod"), family="scan", autocast="full", flops=1, per=0)
streaming(*aten("cummax cummin _cummax_helper _cummin_helper"), family="scan", flops=1, per=0)
streaming(*aten("logcumsumexp _logcumsumexp"), family="scan", flops=4, per=0)
