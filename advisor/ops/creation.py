"""Costs of creating tensors: a fill writes each element once, `empty` costs nothing."""

from advisor.ops.registry import Call, Cost, aten, formula, streaming

_FILLS = """
    zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full zero fill _foreach_zero
    arange range linspace logspace eye scalar_tensor triu_indices tril_indices one_hot
    hann_window hamming_window bartlett_window blackman_window kaiser_window fft_fftfreq fft_rfftfreq
"""
_EMPTY = """
    empty empty_like empty_strided empty_permuted empty_quantized new_empty new_empty_strided
    _efficientzerotensor _empty_affine_quantized _empty_per_channel_affine_quantized
"""


@formula(*aten(_FILLS), family="creation", fusable=True)
def _fill(call: Call) -> Cost:
    """An input, as in `zeros_like`, gives only its shape and is not read."""
    return Cost(flops=0.0, read_bytes=0.0, write_bytes=call.write_bytes)


@formula(*aten(_EMPTY), family="creation")
def _empty(call: Call) -> Cost:
    return Cost(flops=0.0, read_bytes=0.0, write_bytes=0.0)


streaming(*aten("diag_embed diag vander"), family="creation", fusable=True, flops=0, per="outputs")
