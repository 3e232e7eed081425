"""Costs of pointwise operators: 1 FLOP per output element, whatever the function.

A division or a tanh takes longer than an addition, but the ratio depends on the device, and these operators are
bandwidth-bound. XLA counts transcendental functions separately and fvcore counts no pointwise operator; a single rule
can be checked by hand.
"""

from advisor.ops.registry import Call, Cost, aten, formula, streaming

_ARITHMETIC = """
    add sub rsub mul div true_divide floor_divide remainder fmod addcmul addcdiv lerp neg abs sign sgn signbit square
    maximum minimum fmax fmin clamp clamp_min clamp_max clip floor ceil round trunc fix frac positive nan_to_num
    where masked_fill copysign heaviside gcd lcm ldexp frexp nextafter deg2rad rad2deg hypot complex
    conj_physical _conj_physical isclose allclose cross linalg_cross _amp_update_scale
"""
_COMPARISON = """
    eq ne lt le gt ge logical_and logical_or logical_xor logical_not isnan isinf isfinite isposinf isneginf
    bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift
    __and__ __or__ __xor__ __lshift__ __rshift__ __iand__ __ior__ __ixor__ __ilshift__ __irshift__
"""
_TRANSCENDENTAL = """
    sqrt sin cos atan atan2 sinc asinh acosh atanh erf erfc exp2 logaddexp logaddexp2 xlogy special_xlog1py
    digamma lgamma polygamma mvlgamma igamma igammac i0 angle polar logit
    special_entr special_erfcx special_i0e special_i1 special_i1e special_ndtri special_log_ndtr special_zeta
    special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1 special_airy_ai
    special_modified_bessel_i0 special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1
    special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1 special_spherical_bessel_j0
    special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_chebyshev_polynomial_v
    special_chebyshev_polynomial_w special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u
    special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w
    special_hermite_polynomial_h special_hermite_polynomial_he
    special_laguerre_polynomial_l special_legendre_polynomial_p
"""
_ACTIVATION = """
    relu relu6 leaky_relu elu celu selu gelu silu mish sigmoid log_sigmoid_forward tanh hardtanh hardsigmoid hardswish
    hardshrink softshrink threshold rrelu glu
    threshold_backward leaky_relu_backward elu_backward gelu_backward silu_backward mish_backward sigmoid_backward
    log_sigmoid_backward tanh_backward hardtanh_backward hardsigmoid_backward hardswish_backward hardshrink_backward
    softshrink_backward glu_backward glu_jvp rrelu_with_noise_backward logit_backward
    native_dropout_backward _masked_scale infinitely_differentiable_gelu_backward
"""
_FULL_UNDER_AUTOCAST = """
    acos asin cosh sinh tan erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt pow float_power softplus
    softplus_backward
"""
"""Operators that run in float32 under the autocast of GPUs (torch.amp, "CUDA Ops that can autocast to float32")."""
_LOW_UNDER_AUTOCAST = "prelu _prelu_kernel _prelu_kernel_backward _thnn_fused_gru_cell_backward"

_FOREACH = """
    add sub mul div neg abs sqrt rsqrt reciprocal exp expm1 log log1p log2 log10 pow addcmul addcdiv lerp maximum
    minimum clamp_min clamp_max sign sigmoid tanh tan sin cos cosh sinh acos asin atan erf erfc
    floor ceil round trunc frac lgamma
"""
_FAKE_QUANTIZE = """
    quantize_per_tensor quantize_per_channel quantize_per_tensor_dynamic dequantize
    fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask
    _fake_quantize_per_tensor_affine_cachemask_tensor_qparams fake_quantize_per_tensor_affine_cachemask_backward
    fake_quantize_per_channel_affine_cachemask_backward
    _fake_quantize_learnable_per_tensor_affine _fake_quantize_learnable_per_channel_affine
    _fake_quantize_learnable_per_tensor_affine_backward _fake_quantize_learnable_per_channel_affine_backward
"""

for _names in (_ARITHMETIC, _COMPARISON, _TRANSCENDENTAL, _ACTIVATION):
    streaming(*aten(_names), family="pointwise", fusable=True, flops=1)
streaming(*aten(_FULL_UNDER_AUTOCAST), family="pointwise", autocast="full on GPUs", fusable=True, flops=1)
streaming(*aten(_LOW_UNDER_AUTOCAST), family="pointwise", autocast="low", fusable=True, flops=1)
_FOREACH_OPS = (f"aten._foreach_{name}" for name in _FOREACH.split())
streaming(*_FOREACH_OPS, family="pointwise", fusable=True, flops=1)
streaming(*aten(_FAKE_QUANTIZE), family="quantized", fusable=True, flops=1)
# The cells add two sums of gates and keep the result for backward: 1 FLOP per element of a sum and of the outputs.
streaming(
    *aten("_thnn_fused_lstm_cell _thnn_fused_gru_cell"),
    family="pointwise",
    autocast="low",
    fusable=True,
    flops=lambda call: call.inputs[0].numel + call.output_numel,
)


@formula(*aten("_amp_foreach_non_finite_check_and_unscale"), family="pointwise", fusable=True)
def _unscale(call: Call) -> Cost:
    """Inputs (gradients..., found_inf, inverse_scale): every gradient is checked, multiplied and written back."""
    gradients = call.inputs[:-2]
    moved_bytes = sum(tensor.size_bytes for tensor in gradients)
    return Cost(flops=2 * sum(tensor.numel for tensor in gradients), read_bytes=moved_bytes, write_bytes=moved_bytes)
