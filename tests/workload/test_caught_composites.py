import pytest
import torch
from torch import nn
from torch.nn import functional

from advisor.ops.registry import WITHOUT_INDICES, autocast_of
from tests.workload.tracing import Calls, attention_block, flops_by_op, op_counts, rows_of, sequences, tokens, traced


def needs_values(x):
    """Fake tensors cannot answer this: a real step is traced."""
    return bool(x.sum() > -1e9)


def gpt2(**options):
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_embd=24, n_head=2, n_positions=32, vocab_size=60, **options)
    return transformers.GPT2LMHeadModel(config)


def next_token_loss(output, batch):
    return output.logits.float().mean()


def test_gpt2_in_training_has_12_attentions_forward_and_12_backward():
    workload = traced(gpt2(), lambda batch: {"input_ids": torch.zeros(batch, 16, dtype=torch.int64)},
                      mode="training", loss=next_token_loss)  # fmt: skip
    assert workload.method == "fake"
    assert op_counts(workload, phase="forward")["attention"] == 12
    assert op_counts(workload, phase="backward")["attention_backward"] == 12
    assert op_counts(workload)["aten.bmm"] == 0
    [forward] = rows_of(workload, "attention")
    assert forward.attributes == {"causal": True, "dropout_ratio": 0.1}  # GPT2Config: attn_pdrop = 0.1
    assert forward.module == "transformer.h.*.attn"


def test_the_attention_that_torch_would_fall_back_on_is_one_row_too():
    mask = torch.zeros(6, 6)
    for options in ({}, {"dropout_p": 0.2}, {"attn_mask": mask}, {"is_causal": True}, {"scale": 0.1}):
        counts = op_counts(traced(attention_block(**options), sequences, mode="training"))
        assert (counts["attention"], counts["attention_backward"]) == (1, 1)
        assert not counts.keys() & {"aten.bmm", "aten._softmax", "aten._scaled_dot_product_attention_math"}


@pytest.mark.parametrize("method", ["fake", "cpu_step"])
def test_eager_attention_falls_apart_into_two_products_and_a_softmax(method):
    def attend(self, x):
        assert method == "fake" or needs_values(x)
        heads = x.unflatten(-1, (2, 4)).transpose(1, 2)
        return functional.scaled_dot_product_attention(heads, heads, heads)

    workload = traced(Calls(attend), sequences, attention="eager")
    assert workload.method == method
    counts = op_counts(workload)
    softmaxes = counts["aten._softmax"] + counts["aten._safe_softmax"]
    assert (counts["attention"], counts["aten.bmm"], softmaxes) == (0, 2, 1)
    # Per sample and product: 2 heads x 2 x 6 x 6 x 4 = 576, as many as the fused kernel's half.
    assert flops_by_op(workload, batch=3)["aten.bmm"] == 3 * 2 * 576


@pytest.mark.parametrize("samples", [(), (2,), (2, 3)])
def test_fused_kernels_take_samples_heads_length_and_width_alone(samples):
    def attend(self, x):
        heads = x[(slice(None), *(None for _ in samples))].expand(-1, *samples, -1, -1)
        return functional.scaled_dot_product_attention(heads, heads, heads)

    counts = op_counts(traced(Calls(attend), sequences))
    is_fused = len(samples) == 1
    assert (counts["attention"], counts["aten.bmm"]) == ((1, 0) if is_fused else (0, 2))


@pytest.mark.parametrize(
    ("arrange", "is_fused"),
    [
        (lambda heads: (heads, heads, heads, torch.zeros(2, 6, 6)), True),
        (lambda heads: (heads, heads, heads, torch.zeros(6, 6, 2).permute(2, 0, 1)), False),  # biases of a T5
        (lambda heads: (heads.mT.contiguous().mT, heads, heads), False),
        (lambda heads: (heads[..., ::4], heads[..., ::4], heads[..., ::4]), True),  # rows of one element
    ],
)
def test_fused_kernels_take_rows_whose_elements_are_side_by_side(arrange, is_fused):
    def attend(self, x):
        return functional.scaled_dot_product_attention(*arrange(x.unflatten(-1, (2, 4)).transpose(1, 2)))

    counts = op_counts(traced(Calls(attend), sequences))
    assert (counts["attention"], counts["aten.bmm"]) == ((1, 0) if is_fused else (0, 2))


@pytest.mark.parametrize(
    ("keys", "grouped", "is_fused"),
    [
        (lambda heads: heads, False, True),
        (lambda heads: heads[:, :1], False, False),  # as in timm's MultiQueryAttention2d
        (lambda heads: heads[:, :1].expand_as(heads), False, True),
        (lambda heads: heads[:, :1], True, True),
        (lambda heads: heads[:1], False, False),
    ],
)
def test_fused_kernels_do_not_broadcast_keys_to_heads_or_samples(keys, grouped, is_fused):
    def attend(self, x):
        heads = x.unflatten(-1, (2, 4)).transpose(1, 2)
        return functional.scaled_dot_product_attention(heads, keys(heads), keys(heads), enable_gqa=grouped)

    counts = op_counts(traced(Calls(attend), sequences))
    assert (counts["attention"], counts["aten.bmm"]) == ((1, 0) if is_fused else (0, 2))


@pytest.mark.parametrize(
    ("arrange", "options", "why"),
    [
        (lambda heads: (heads, heads, heads), {"attention": "eager"}, "asked"),
        (lambda heads: (heads.flatten(0, 1),) * 3, {}, "dims"),
        (lambda heads: (heads.mT.contiguous().mT, heads, heads), {}, "rows"),
        (lambda heads: (heads, heads[:, :1], heads[:, :1]), {}, "shared"),
    ],
)
def test_the_softmax_of_unfused_attention_says_why_no_kernel_took_it_and_the_models_own_does_not(arrange, options, why):
    def attend(self, x):
        heads = x.unflatten(-1, (2, 4)).transpose(1, 2)
        return functional.scaled_dot_product_attention(*arrange(heads)).softmax(dim=-1)

    inner, outer = (row for row in traced(Calls(attend), sequences, **options).rows if row.family == "softmax")
    assert (inner.attributes.get("unfused"), outer.attributes.get("unfused")) == (why, None)


@pytest.mark.parametrize(("half_attention", "policy", "is_low"), [(True, "low", True), (False, "full", False)])
def test_what_attention_falls_apart_into_runs_in_half_or_in_fp32(half_attention, policy, is_low):
    """Autocast casts its operands and calls the rest without itself; a softmax of the model's own it runs in fp32."""

    def attend(self, x):
        q = self.linear(x)
        return functional.scaled_dot_product_attention(q, q, q).softmax(dim=-1)

    workload = traced(Calls(attend, linear=nn.Linear(8, 8)), sequences, half_attention=half_attention)
    [inner, outer] = [row for row in workload.rows if row.family == "softmax"]
    assert [autocast_of(row.op, row.attributes, on_cpu=False) for row in (inner, outer)] == [policy, "full"]
    assert [row.outputs[0].low for row in (inner, outer)] == [is_low, False]
    assert {autocast_of(row.op, row.attributes, on_cpu=False) for row in rows_of(workload, "aten.bmm")} == {policy}


def test_eager_attention_reaches_what_torchs_own_layers_call():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    for mode in ("inference", "training"):
        counts = op_counts(traced(layer, sequences, mode=mode, attention="eager"))
        assert not counts.keys() & {"attention", "encoder_layer"}
        assert counts["aten._softmax"] + counts["aten._safe_softmax"] == 1


def test_attention_flops_are_those_of_its_two_products():
    # Per sample: 2 heads x (2 x 6 x 6 x 4 for the scores + 2 x 6 x 6 x 4 for the values) = 1152; backward 2.5 as many.
    flops = flops_by_op(traced(attention_block(dropout_p=0.1), sequences, mode="training"), batch=3)
    assert (flops["attention"], flops["attention_backward"]) == (3 * 1152, 3 * 2880)


def test_causal_attention_counts_the_pairs_that_may_attend():
    # Per sample: 2 heads x 21 pairs of 36 x 2 x (4 + 4) = 672.
    assert flops_by_op(traced(attention_block(is_causal=True), sequences), batch=5)["attention"] == 5 * 672


def test_a_mask_is_an_operand_of_its_attention():
    [row] = rows_of(traced(attention_block(attn_mask=torch.zeros(6, 6)), sequences), "attention")
    assert [operand.shape for operand in row.inputs][3] == (6, 6)


def test_grouped_queries_share_their_keys():
    def run(self, x):
        q = self.q(x).view(*x.shape[:2], 4, 2).transpose(1, 2)
        k = self.k(x).view(*x.shape[:2], 2, 2).transpose(1, 2)
        return functional.scaled_dot_product_attention(q, k, k, enable_gqa=True)

    workload = traced(Calls(run, q=nn.Linear(8, 8), k=nn.Linear(8, 4)), sequences, mode="training")
    [row] = rows_of(workload, "attention")
    assert [operand.shape[1] for operand in row.inputs] == [4, 2, 2]
    # 4 heads x 36 pairs x 2 x (2 + 2) per sample.
    assert flops_by_op(workload, batch=2)["attention"] == 2 * 1152


def test_attention_called_by_its_own_name_is_caught():
    scaled_dot_product_attention = torch._C._nn.scaled_dot_product_attention
    model = Calls(lambda self, x: scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], dropout_p=0.5))
    assert op_counts(traced(model, sequences)) == {"attention": 1}


@pytest.mark.parametrize("shapes", [((6, 8), (6, 4), (6, 4)), ((6, 8), (6, 8), (5, 8))])
def test_a_shape_that_torch_refuses_is_refused(shapes):
    def run(self, x):
        q, k, v = (torch.zeros(len(x), 2, *shape) for shape in shapes)
        return functional.scaled_dot_product_attention(q, k, v)

    with pytest.raises(RuntimeError):
        traced(Calls(run), sequences)


def test_a_wrong_number_of_key_heads_is_refused():
    def run(self, x):
        q, k = torch.zeros(len(x), 4, 6, 8), torch.zeros(len(x), 2, 6, 8)
        return functional.scaled_dot_product_attention(q, k, k)

    with pytest.raises(RuntimeError):
        traced(Calls(run), sequences)


def test_attention_of_a_real_step_is_one_row():
    def run(self, x):
        assert needs_values(x)
        return self.inner(x)

    workload = traced(Calls(run, inner=attention_block(is_causal=True)), sequences, mode="training")
    assert workload.method == "cpu_step"
    counts = op_counts(workload)
    assert (counts["attention"], counts["attention_backward"]) == (1, 1)
    assert "aten._scaled_dot_product_flash_attention_for_cpu" not in counts


def test_gradients_through_a_real_composite_are_those_of_torch():
    torch.manual_seed(0)
    inner = attention_block(is_causal=True)
    x = torch.randn(2, 6, 8)
    inner(x).pow(2).sum().backward()
    expected = inner.qkv.weight.grad.clone()
    seen = []

    def train_step(model, batch):
        model.zero_grad()
        model(x).pow(2).sum().backward()
        assert needs_values(model.qkv.weight)
        seen.append(model.qkv.weight.grad.clone())

    inner.zero_grad()
    assert traced(inner, lambda batch: x, mode="training", train_step=train_step).method == "cpu_step"
    torch.testing.assert_close(seen[-1], expected)


def test_queries_are_freed_once_their_gradients_are_known():
    deep = nn.Sequential(*(_Residual() for _ in range(8)))
    workload = traced(deep, sequences, mode="training", optimizer=torch.optim.SGD)
    last = workload.memory[-1]
    assert last.phase in ("backward", "optimizer")
    held_per_sample = sum(kind[1] for kind in (last.activations.low, last.activations.full))
    layer_bytes = 6 * (8 + 24) * 4  # of one sample: the layer's input and its queries, keys and values
    assert held_per_sample < 8 * layer_bytes / 2


class _Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = attention_block()

    def forward(self, x):
        return x + self.inner(x).transpose(1, 2).flatten(2)


# -- torch's own layers ------------------------------------------------------------------------------------------------


def encoder(**options):
    return nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options), 3, enable_nested_tensor=False
    )


def test_encoder_layers_in_training_have_an_attention_each():
    counts = op_counts(traced(encoder(dropout=0.1), sequences, mode="training"))
    assert (counts["attention"], counts["attention_backward"]) == (3, 3)
    assert "encoder_layer" not in counts


def test_encoder_layers_in_inference_take_their_fused_path():
    workload = traced(encoder(), sequences)
    assert op_counts(workload) == {"encoder_layer": 3}
    # Per sample of 6 tokens 8 wide: 2 x 6 x (3 x 64 + 64 + 2 x 128) = 6144 in weights, 4 x 36 x 8 = 1152 in attention.
    assert flops_by_op(workload, batch=2)["encoder_layer"] == 3 * 2 * (6144 + 1152)


def test_self_attention_in_inference_takes_its_fused_path():
    model = Calls(lambda self, x: self.layer(x, x, x)[0], layer=nn.MultiheadAttention(8, 2, batch_first=True))
    assert op_counts(traced(model, sequences)) == {"aten._native_multi_head_attention": 1}


def test_self_attention_in_training_is_one_row_unless_its_weights_are_asked_for():
    layer = nn.MultiheadAttention(8, 2, batch_first=True, dropout=0.1)
    fused = Calls(lambda self, x: self.layer(x, x, x, need_weights=False)[0], layer=layer)
    assert op_counts(traced(fused, sequences, mode="training"))["attention"] == 1
    with_weights = Calls(lambda self, x: self.layer(x, x, x)[0], layer=layer)
    counts = op_counts(traced(with_weights, sequences, mode="training"))
    assert counts["attention"] == 0
    assert counts["aten._softmax"] == 1  # no fused kernel gives the weights


def test_the_fused_paths_are_put_back():
    before = (
        nn.TransformerEncoderLayer.forward,
        nn.MultiheadAttention.forward,
        functional.scaled_dot_product_attention,
    )
    traced(encoder(), sequences)
    with pytest.raises(RuntimeError):
        traced(nn.Linear(3, 4), sequences)
    assert before == (
        nn.TransformerEncoderLayer.forward,
        nn.MultiheadAttention.forward,
        functional.scaled_dot_product_attention,
    )


# -- recurrent layers --------------------------------------------------------------------------------------------------

LAYERS = [
    # module, weights that multiply each token: gates x hidden x (input + hidden) per layer and direction
    (nn.LSTM(8, 5, batch_first=True), 4 * 5 * (8 + 5)),
    (nn.GRU(8, 5, batch_first=True), 3 * 5 * (8 + 5)),
    (nn.RNN(8, 5, batch_first=True), 5 * (8 + 5)),
    (nn.RNN(8, 5, nonlinearity="relu"), 5 * (8 + 5)),
    (nn.GRU(8, 5, bidirectional=True, batch_first=True), 2 * 3 * 5 * (8 + 5)),
    (nn.LSTM(8, 5, num_layers=3, batch_first=True), 4 * 5 * ((8 + 5) + (5 + 5) + (5 + 5))),
    (nn.LSTM(8, 5, num_layers=2, bidirectional=True, batch_first=True), 2 * 4 * 5 * ((8 + 5) + (10 + 5))),
    # The projection to 3 is what recurs: 4 x 5 x (8 + 3) and 5 x 3.
    (nn.LSTM(8, 5, proj_size=3, batch_first=True), 4 * 5 * (8 + 3) + 5 * 3),
]


@pytest.mark.parametrize(("layer", "weight_count"), LAYERS, ids=lambda value: str(value))
def test_a_recurrent_layer_is_one_row(layer, weight_count):
    model = Calls(lambda self, x: self.layer(x)[0], layer=layer)
    workload = traced(model, sequences, mode="training")
    counts = op_counts(workload)
    assert workload.method == "fake"
    assert (counts["rnn"], counts["rnn_backward"]) == (1, 1)
    flops = flops_by_op(workload, batch=7)
    assert flops["rnn"] == 2 * 7 * 6 * weight_count
    assert flops["rnn_backward"] == 2 * flops["rnn"]


def test_the_states_of_a_recurrent_layer_have_torchs_shapes():
    layer = nn.LSTM(8, 5, num_layers=2, bidirectional=True, proj_size=3)
    shapes = []

    def run(self, x):
        output, (hidden, cell) = self.layer(x)
        shapes.append([tuple(tensor.shape) for tensor in (output, hidden, cell)])
        return output

    traced(Calls(run, layer=layer), sequences)
    # The last traced batch is 12; time comes first: 12 steps of 6 sequences, 2 directions x 3, 4 layers and directions.
    assert shapes[-1] == [(12, 6, 6), (4, 6, 3), (4, 6, 5)]


def test_packed_sequences_count_their_own_tokens():
    def run(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return nn.utils.rnn.pad_packed_sequence(self.layer(packed)[0], batch_first=True)[0]

    for layer, gates in ((nn.LSTM(8, 5, batch_first=True), 4), (nn.GRU(8, 5, batch_first=True), 3)):
        workload = traced(
            Calls(run, layer=layer),
            lambda batch: (torch.randn(batch, 6, 8), torch.full((batch,), 3)),
            mode="training",
        )
        assert op_counts(workload)["rnn"] == 1
        # 3 tokens of 6 in each of 10 sequences.
        assert flops_by_op(workload, batch=10)["rnn"] == 2 * 30 * gates * 5 * (8 + 5)


def test_cells_called_by_hand_are_what_they_are():
    model = Calls(lambda self, x: self.cell(x[:, 0])[0], cell=nn.LSTMCell(8, 5))
    assert "rnn" not in op_counts(traced(model, sequences))


def test_an_embedding_before_a_recurrent_layer_keeps_its_gradient():
    model = Calls(lambda self, ids: self.layer(self.table(ids))[0], table=nn.Embedding(50, 8), layer=nn.GRU(8, 5))
    assert op_counts(traced(model, tokens, mode="training"), phase="backward")["aten.embedding_dense_backward"] == 1


@pytest.mark.parametrize("method", ["fake", "cpu_step"])
def test_cpus_have_a_max_pool_without_indices_in_1d_if_no_gradient_needs_them(method):
    def pooled(self, x):
        assert method == "fake" or needs_values(x)
        trained, in_2d = functional.max_pool1d(self.first(x), 2), functional.max_pool2d(x[:, None], 2)
        return trained.sum() + in_2d.sum() + torch.max_pool1d(input=x, kernel_size=[2]).sum()

    model = Calls(pooled, first=nn.Linear(8, 8))
    for mode, without_indices in (("inference", [True, False, True]), ("training", [False, False, True])):
        workload = traced(model, sequences, mode=mode)
        assert workload.method == method
        pools = rows_of(workload, "aten.max_pool2d_with_indices")
        assert [WITHOUT_INDICES in pool.attributes for pool in pools] == without_indices
