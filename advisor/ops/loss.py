"""Costs of losses; pointwise losses take 3 FLOP per element (difference, function, sum), their gradients 2."""

from advisor.ops.registry import Call, Cost, Number, aten, formula, streaming

_POINTWISE_LOSSES = """
    mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits soft_margin_loss
    kl_div multilabel_margin_loss_forward multi_margin_loss poisson_nll_loss cosine_embedding_loss hinge_embedding_loss
"""
_POINTWISE_LOSS_BACKWARDS = """
    mse_loss_backward smooth_l1_loss_backward huber_loss_backward binary_cross_entropy_backward
    soft_margin_loss_backward multilabel_margin_loss_backward multi_margin_loss_backward
"""

streaming(*aten(_POINTWISE_LOSSES), family="loss", autocast="full", fusable=True, flops=3, per=0)
streaming(*aten(_POINTWISE_LOSS_BACKWARDS), family="loss", autocast="full", fusable=True, flops=2)


@formula(*aten("nll_loss nll_loss_forward nll_loss2d nll_loss2d_forward"), family="loss", autocast="full", fusable=True)
def _nll_loss(call: Call) -> Cost:
    """Inputs (log-probabilities (n, classes, ...), target[, weight]): one element is picked and added per target."""
    log_probabilities, target, *weight = call.inputs
    picked_bytes = target.numel * log_probabilities.itemsize_bytes
    return call.reading(target, *weight, read_bytes=picked_bytes, flops=target.numel)


@formula(*aten("nll_loss_backward nll_loss2d_backward"), family="loss", autocast="full", fusable=True)
def _nll_loss_backward(call: Call) -> Cost:
    """Inputs (grad_output, log-probabilities, target, ...): the whole gradient is written, zero but at the targets."""
    grad_output, _, target, *others = call.inputs
    return call.reading(grad_output, target, *others, flops=target.numel)


_CTC_FLOPS_PER_STATE = 10
"""alpha_t(s) is a log-sum-exp of three terms plus the emission: 2 maxima, 3 subtractions, 3 exponentials, 2 additions
(Graves et al. 2006, equation 6, in log space; the logarithm and the emission's addition are left out of the ten)."""


def _ctc_flops(call: Call) -> Number:
    """Inputs (log-probabilities (time, batch, classes), targets, ...); outputs (loss, alpha (batch, time, states)).

    Backward's last input is alpha. Its beta costs as much as alpha, and is followed by the gradient.
    """
    if call.op == "aten._ctc_loss_backward":
        return _CTC_FLOPS_PER_STATE * call.inputs[-1].numel + 2 * call.outputs[0].numel
    return _CTC_FLOPS_PER_STATE * call.outputs[1].numel


streaming(*aten("_ctc_loss _ctc_loss_backward"), family="loss", autocast="full", flops=_ctc_flops)
