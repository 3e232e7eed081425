"""Code as people write it is traced; the answer says by which way, and what was assumed."""

import inspect

import pytest
import torch
from torch import nn

from tests.says import assert_says
from tests.workload.tracing import (
    Calls,
    flops_by_op,
    mlp,
    op_counts,
    rows_of,
    sequences,
    tokens,
    traced,
    vectors,
)

REAL_STEP = "traced by a real step on this CPU, because the code needs values that fake tensors do not have"


def train(step, *, model=None, make_inputs=vectors, **options):
    """Trace `step(model, batch, optimizer)` as a training step."""

    def train_step(inner, batch):
        step(inner, batch, torch.optim.SGD(inner.parameters(), lr=0.1))

    return traced(model or mlp(), make_inputs, mode="training", train_step=train_step, **options)


def optimize(loss, optimizer):
    loss.backward()
    optimizer.step()


def assert_whole_step(workload):
    assert op_counts(workload)["aten.addmm"] == 2
    assert op_counts(workload)["aten.mm"] == 3
    assert op_counts(workload)["optimizer"] == 1
    assert workload.batch_is_affine


# -- values ------------------------------------------------------------------------------------------------------------


def logs_the_loss(model, batch, optimizer):
    loss = model(batch).mean()
    optimize(loss, optimizer)
    return loss.item() * len(batch)


def counts_what_is_right(model, batch, optimizer):
    output = model(batch)
    optimize(output.mean(), optimizer)
    return (output.argmax(1) == 0).sum().item()


def lists_its_predictions(model, batch, optimizer):
    output = model(batch)
    optimize(output.mean(), optimizer)
    return output.argmax(1).tolist()


@pytest.mark.parametrize("step", [logs_the_loss, counts_what_is_right, lists_its_predictions])
def test_a_value_that_nothing_depends_on_is_a_symbol(step):
    workload = train(step)
    assert workload.method == "symbolic"
    assert_whole_step(workload)
    assert not any(REAL_STEP in note for note in workload.assumptions)


def branches_on_the_loss(model, batch, optimizer):
    loss = model(batch).mean()
    if loss.item() < 1e9:
        optimize(loss, optimizer)


def stops_at_nan(model, batch, optimizer):
    loss = model(batch).mean()
    if torch.isnan(loss):
        raise ValueError("the loss is not a number")
    optimize(loss, optimizer)


def prints_the_loss(model, batch, optimizer):
    loss = model(batch).mean()
    optimize(loss, optimizer)
    return f"{loss.item():.3f}"


def takes_it_to_numpy(model, batch, optimizer):
    output = model(batch)
    optimize(output.mean(), optimizer)
    return output.detach().cpu().numpy()


def scales_its_gradients(model, batch, optimizer):
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(model(batch).mean()).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()


@pytest.mark.parametrize(
    ("step", "needing"),
    [
        (branches_on_the_loss, "if loss.item() < 1e9:"),
        (prints_the_loss, 'return f"{loss.item():.3f}"'),
        (takes_it_to_numpy, "return output.detach().cpu().numpy()"),
        (scales_its_gradients, "scaler.step(optimizer)"),
    ],
)
def test_a_value_that_something_depends_on_takes_a_real_step(step, needing):
    workload = train(step)
    assert workload.method == "cpu_step"
    assert_whole_step(workload)
    (note,) = (note for note in workload.assumptions if REAL_STEP in note)
    lines, first = inspect.getsourcelines(step)
    number = first + [line.strip() for line in lines].index(needing)
    assert_says(note, f"test_trace_ordinary_code.py:{number} in {step.__name__}: {needing}", "only the path")


def test_a_loss_is_taken_to_be_a_number():
    workload = train(stops_at_nan)
    assert workload.method == "fake"
    assert_whole_step(workload)


def test_a_real_step_is_of_few_samples():
    sizes = []

    def make_inputs(batch):
        sizes.append(batch)
        return vectors(batch)

    workload = train(prints_the_loss, make_inputs=make_inputs, batch=1024)
    assert workload.method == "cpu_step"
    assert workload.traced_batches == (4, 8, 12)
    assert sizes[-3:] == [4, 8, 12]
    # The answer is for the file's own batch: 2 x 1024 x (8 x 16 + 16 x 4).
    assert workload.batch == 1024
    assert flops_by_op(workload, batch=1024)["aten.addmm"] == 393216


def test_a_real_step_and_a_fake_one_count_alike():
    def step(model, batch, optimizer):
        optimize(model(batch).pow(2).mean(), optimizer)

    def real_step(model, batch, optimizer):
        step(model, batch, optimizer)
        assert batch.sum() > -1e9

    fake, real = train(step), train(real_step)
    assert (fake.method, real.method) == ("fake", "cpu_step")
    counted = op_counts(real)
    for extra in ("aten.sum", "aten.gt", "aten._local_scalar_dense"):  # the assertion's own
        counted[extra] -= counted[extra] - op_counts(fake)[extra]
    assert +counted == op_counts(fake)


# -- steps -------------------------------------------------------------------------------------------------------------


def test_a_scaler_for_cuda_is_off_without_one():
    def step(model, batch, optimizer):
        scaler = torch.amp.GradScaler("cuda", enabled=False)
        with torch.autocast("cuda", enabled=False):
            loss = model(batch).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    workload = train(step)
    assert workload.method == "fake"
    assert_whole_step(workload)


def test_clipping_reads_every_gradient():
    def step(model, batch, optimizer):
        model(batch).mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    workload = train(step)
    assert workload.method == "fake"
    assert_whole_step(workload)
    counts = op_counts(workload, phase="optimizer")
    # One operator for the norms of all 4 gradients, one for the norm of these, and one to scale all gradients.
    assert [counts[f"aten.{op}"] for op in ("_foreach_norm", "linalg_vector_norm", "_foreach_mul_")] == [1, 1, 1]
    assert not counts["aten.mul_"]


def test_a_scheduler_costs_nothing():
    def step(model, batch, optimizer):
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
        optimize(model(batch).mean(), optimizer)
        scheduler.step()

    workload = train(step)
    assert workload.method == "fake"
    assert_whole_step(workload)


def test_two_networks_against_each_other_are_both_trained():
    critic = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    critic_optimizer = torch.optim.Adam(critic.parameters())

    def train_step(generator, noise):
        optimizer = torch.optim.Adam(generator.parameters())
        critic_optimizer.zero_grad()
        (critic(generator(noise).detach()).mean() - critic(noise).mean()).backward()
        critic_optimizer.step()
        optimizer.zero_grad()
        (-critic(generator(noise)).mean()).backward()
        optimizer.step()

    workload = traced(nn.Linear(8, 8), vectors, mode="training", train_step=train_step)
    assert workload.method == "fake"
    assert sorted(row.attributes["element_count"] for row in rows_of(workload, "optimizer")) == [72, 161]
    assert op_counts(workload)["aten.addmm"] == 2 + 2 * 3  # the generator twice, the critic's two layers three times


def test_a_sequence_of_one_sample_at_a_time_is_traced():
    def step(model, batch, optimizer):
        for sample in batch:
            model(sample[None]).mean().backward()
        optimizer.step()

    workload = train(step)
    assert not workload.batch_is_affine  # the program itself grows
    assert op_counts(workload)["aten.addmm"] == 4 * 2


# -- layers and losses -------------------------------------------------------------------------------------------------


def test_sequences_of_different_lengths_are_packed():
    def run(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return nn.utils.rnn.pad_packed_sequence(self.layer(packed)[0], batch_first=True)[0]

    def make_inputs(batch):
        return torch.randn(batch, 6, 8), torch.arange(batch) % 6 + 1

    workload = traced(Calls(run, layer=nn.LSTM(8, 5, batch_first=True)), make_inputs, mode="training")
    assert workload.method == "cpu_step"
    assert not workload.batch_is_affine
    # Lengths 1, 2, 3 and 4: 10 tokens of 24, each 2 x 4 x 5 x (8 + 5).
    assert flops_by_op(workload, batch=4)["rnn"] == 10 * 520
    assert any(REAL_STEP in note for note in workload.assumptions)
    (note,) = (note for note in workload.assumptions if "a + b x batch" in note)
    assert_says(note, "batch 4", "4, 8, 12")


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_boolean_mask_is_taken_to_be_half_true(mode):
    workload = traced(Calls(lambda self, x: self.inner(x[x[:, 0] > 0]), inner=nn.Linear(8, 4)), vectors, mode=mode)
    assert workload.method == "symbolic"
    assert workload.batch_is_affine
    # Half of 20 samples: 2 x 10 x 8 x 4.
    assert flops_by_op(workload, batch=20)["aten.addmm"] == 640
    assert any("50 % true" in note and "assumed to be 2" in note for note in workload.assumptions)


def test_nonzero_is_taken_to_find_half():
    def run(self, x):
        return self.inner(x[(x[:, 0] > 0).nonzero().squeeze(1)])

    workload = traced(Calls(run, inner=nn.Linear(8, 4)), vectors)
    assert workload.method == "symbolic"
    assert flops_by_op(workload, batch=20)["aten.addmm"] == 640


def padded_encoder(self, ids):
    return self.layers(self.table(ids), src_key_padding_mask=ids == 0)


def test_an_encoder_layer_of_another_width_is_refused():
    model = nn.Sequential(nn.Linear(8, 8), nn.TransformerEncoderLayer(12, 2, 16, batch_first=True))
    with pytest.raises(RuntimeError, match="embed_dim 12 didn't match last dim of query 8"):
        traced(model, lambda batch: torch.zeros(batch, 5, 8))


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_padding_masks_are_traced(mode):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = Calls(padded_encoder, table=nn.Embedding(50, 8), layers=nn.TransformerEncoder(layer, 2))
    workload = traced(model, tokens, mode=mode)
    assert workload.batch_is_affine
    counts = op_counts(workload)
    assert (counts["attention"], counts["encoder_layer"]) == ((2, 0) if mode == "training" else (0, 2))


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("top_k", [1, 2])
def test_the_routed_tokens_of_a_mixture_of_experts_are_counted(mode, top_k):
    def run(self, x):
        flat = x.reshape(-1, 8)
        weights, chosen = self.gate(flat).softmax(-1).topk(top_k)
        result = torch.zeros_like(flat)
        for index, expert in enumerate(self.experts):
            token, place = torch.where(chosen == index)
            result.index_add_(0, token, expert(flat[token]) * weights[token, place, None])
        return result

    experts = nn.ModuleList(nn.Linear(8, 8, bias=False) for _ in range(4))
    workload = traced(Calls(run, gate=nn.Linear(8, 4, bias=False), experts=experts), sequences, mode=mode)
    assert workload.method == "symbolic"
    assert workload.batch_is_affine
    # 10 samples x 6 tokens x top_k routed, whatever the expert, each 2 x 8 x 8; the gate sees each token: 2 x 8 x 4.
    forward = [row for row in rows_of(workload, "aten.mm") if row.phase == "forward"]
    assert len(forward) >= 2
    assert flops_in(forward, batch=10) == 60 * top_k * 128 + 60 * 64
    assert any("equally frequent" in note for note in workload.assumptions)


def flops_in(rows, *, batch):
    from advisor.ops.evaluate import row_cost

    return sum(row.count * row_cost(row, batch=batch).flops for row in rows)


def test_a_mixture_of_experts_of_transformers_is_traced():
    transformers = pytest.importorskip("transformers")
    config = transformers.MixtralConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        num_local_experts=4, num_experts_per_tok=2, vocab_size=50, use_cache=False,
    )  # fmt: skip
    with torch.device("meta"):
        model = transformers.MixtralForCausalLM(config)
    workload = traced(model, lambda batch: {"input_ids": torch.zeros(batch, 6, dtype=torch.int64)})
    assert workload.method in ("fake", "symbolic")
    assert workload.batch_is_affine
    assert not workload.unknown_ops
    assert op_counts(workload)["attention"] == 2
    # Experts: 10 x 6 tokens x 2 experts x 3 matrices of 16 x 24, 2 layers.
    flops = flops_by_op(workload, batch=10)
    routed = sum(count for op, count in flops.items() if op in ("aten._grouped_mm", "aten.bmm"))
    assert routed == pytest.approx(60 * 2 * 2 * 3 * 16 * 24 * 2, rel=0.01)


def test_a_length_from_the_data_takes_a_real_step():
    model = Calls(lambda self, x, n: self.inner(x[:, : int(n.max())]), inner=nn.Linear(8, 4))
    workload = traced(model, lambda batch: (torch.randn(batch, 6, 8), torch.full((batch,), 3)))
    assert workload.method == "cpu_step"
    # 3 of 6 steps.
    assert flops_in([row for row in workload.rows if row.family == "matmul"], batch=10) == 2 * 30 * 8 * 4


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_take_a_real_step():
    def run(self, x):
        nested = torch.nested.nested_tensor([sample[: 2 + index % 3] for index, sample in enumerate(x)])
        return self.inner(nested).to_padded_tensor(0.0)

    model = Calls(run, inner=nn.Linear(8, 4))
    workload = traced(model, lambda batch: torch.randn(batch, 6, 8), batch=3, batch_is_fixed=True)
    assert workload.method == "cpu_step"
    # 2 + 3 + 4 steps of 3 samples.
    assert flops_in([row for row in workload.rows if row.family == "matmul"], batch=3) == 2 * 9 * 8 * 4
