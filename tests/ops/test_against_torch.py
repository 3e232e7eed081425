"""torch's own counter is the oracle for the operators it knows."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from observe import rows_on_fake_tensors
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from advisor.ops.evaluate import row_cost

lengths = st.integers(min_value=1, max_value=9)


def our_flops(run, *, family):
    return sum(row_cost(row, batch=1).flops for row in rows_on_fake_tensors(run) if row.family == family)


def torch_flops(run):
    with torch.device("cpu"), FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


@settings(max_examples=20)
@given(lengths, lengths, lengths, lengths)
def test_products_agree_forward_and_backward(batch, m, k, n):
    def run():
        a, b = torch.rand(batch, m, k, requires_grad=True), torch.rand(batch, k, n, requires_grad=True)
        torch.einsum("bij,bjk->bik", a, b).sum().backward()
        torch.nn.Linear(k, n)(a).sum().backward()

    assert our_flops(run, family="matmul") == torch_flops(run)


convolutions = st.fixed_dictionaries(
    {
        "dims": st.integers(min_value=1, max_value=3),
        "kernel": st.integers(min_value=1, max_value=3),
        "stride": st.integers(min_value=1, max_value=2),
        "transposed": st.booleans(),
        "widths": st.tuples(lengths, lengths),
    }
)


def convolved(*, dims, kernel, stride, transposed, widths, groups):
    layer_class = getattr(torch.nn, f"Conv{'Transpose' if transposed else ''}{dims}d")
    channels = [groups * width for width in widths]
    layer = layer_class(*channels, kernel, stride=stride, groups=groups, bias=False)
    return layer(torch.rand(2, channels[0], *[5] * dims, requires_grad=True))


@settings(max_examples=20)
@given(convolutions, st.integers(min_value=1, max_value=3))
def test_convolutions_agree_forward(shape, groups):
    def run():
        convolved(**shape, groups=groups)

    assert our_flops(run, family="conv") == torch_flops(run)


@settings(max_examples=20)
@given(convolutions)
def test_convolutions_agree_backward(shape):
    # Without groups: torch counts the gradient of a grouped weight as if every output channel saw every input channel.
    def run():
        convolved(**shape, groups=1).sum().backward()

    assert our_flops(run, family="conv") == torch_flops(run)


@settings(max_examples=20)
@given(heads=lengths, q_len=lengths, kv_len=lengths, width=lengths)
def test_attention_agrees_forward_and_backward(heads, q_len, kv_len, width):
    # The counter itself does not know the CPU's operator and counts it as 0, its formulas do.
    query, key = (2, heads, q_len, width), (2, heads, kv_len, width)

    def run():
        q = torch.rand(query, requires_grad=True)
        k, v = (torch.rand(key, requires_grad=True) for _ in range(2))
        functional.scaled_dot_product_attention(q, k, v).sum().backward()

    expected = sdpa_flop_count(query, key, key) + sdpa_backward_flop_count(query, query, key, key)
    assert our_flops(run, family="attention") == expected
