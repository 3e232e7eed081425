import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch

from advisor.answers.ranking import rank
from advisor.errors import TraceError, UsageError
from advisor.ops.evaluate import row_cost
from advisor.ops.optimizer import PAGED
from advisor.question.from_model import question_from_model
from advisor.question.from_source import profile_source, question_from_source
from advisor.question.lengths import Lengths, check_lengths, read_lengths, settled
from advisor.records.options import Options
from advisor.records.workload import Workload
from advisor.workload.input_spec import with_length
from tests.predict.toys import workload as toy

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.qkv, self.out = nn.Embedding(99, 32), nn.Linear(32, 96), nn.Linear(32, 5)

    def forward(self, ids, scale=None):
        q, k, v = self.qkv(self.embed(ids)).chunk(3, -1)
        scores = q @ k.transpose(-1, -2)
        return self.out((scores.softmax(-1) @ v).mean(1))

model = Net()
"""
"""Attention whose scores are written to memory, so that FLOP and memory grow with the square of the length."""


@pytest.fixture
def net(tmp_path: Path) -> str:
    path = tmp_path / "net.py"
    path.write_text(NET)
    return str(path)


@pytest.fixture
def of_file(tmp_path: Path) -> Callable[..., str]:
    def write(*lengths: int) -> str:
        path = tmp_path / "lengths.txt"
        path.write_text("\n".join(map(str, lengths)))
        return str(path)

    return write


def profiled(source: str, **options: object) -> Workload:
    return profile_source(source, Options(**{"input": ("ids=300:int64",), **options})).workload  # type: ignore[arg-type]


def flops(workload: Workload, *, batch: int) -> float:
    return sum(row.count * row_cost(row, batch=batch).flops for row in workload.rows)


def at(source: str, length: int) -> Workload:
    return profiled(source, input=(f"ids={length}:int64",))


def test_sequences_of_one_length_cost_what_a_trace_at_that_length_costs(net: str, of_file: Callable[..., str]) -> None:
    for packing in (False, True):
        found = profiled(net, lengths=of_file(200, 200, 200), packing=packing)
        assert [(row.op, row.inputs, row.outputs, row.count) for row in found.rows] == [
            (row.op, row.inputs, row.outputs, row.count) for row in at(net, 200).rows
        ]


def test_a_padded_batch_costs_what_its_longest_sequence_costs_on_average(net: str, of_file: Callable[..., str]) -> None:
    """All 27 batches of three sequences from three, each as likely."""
    sizes = (40, 100, 400)
    by_length = {length: flops(at(net, length), batch=3) for length in sizes}
    expected = sum(by_length[max(batch)] for batch in product(sizes, repeat=3)) / 27
    assert flops(profiled(net, lengths=of_file(*sizes), batch="3"), batch=3) == pytest.approx(expected, rel=0.01)


def test_packed_sequences_cost_their_own_lengths_whatever_the_batch(net: str, of_file: Callable[..., str]) -> None:
    sizes = (40, 100, 400)
    expected = sum(flops(at(net, length), batch=8) for length in sizes) / 3
    for batch in ("8", "64"):
        found = profiled(net, lengths=of_file(*sizes), batch=batch, packing=True)
        assert flops(found, batch=8) == pytest.approx(expected, rel=0.01)


def test_the_memory_is_that_of_the_longest_sequence(net: str, of_file: Callable[..., str]) -> None:
    found = profiled(net, lengths=of_file(*[50] * 99, 401), batch="1")
    assert found.memory == at(net, 401).memory
    assert flops(found, batch=1) < flops(at(net, 100), batch=1)


def test_the_ranking_pads_larger_batches_to_longer_sequences(net: str, of_file: Callable[..., str]) -> None:
    options = Options(
        input=("ids=300:int64",),
        lengths=of_file(*[50] * 15, 800),
        batch="1,64",
        device=("l4",),
        no_local=True,
        tokens=10**6,
    )
    question = question_from_source(net, options)
    assert question.trace_at is not None
    one, many = question.trace_at(1), question.trace_at(64)
    # Of 64 samples 1 - (15/16)^64 = 98 % have one of 800 tokens among them; of one, 1/16.
    assert flops(many, batch=1) > 0.95 * flops(at(net, 800), batch=1) > 5 * flops(one, batch=1)
    answer = rank(question)
    assert answer.best is not None
    assert answer.job.samples == math.ceil(10**6 / ((15 * 50 + 800) / 16))
    assert {point.batch for sweep in answer.batch_sweeps for point in sweep.points} == {1, 64}


def test_a_model_at_hand_is_fine_tuned_with_the_lengths_of_each_batch(of_file: Callable[..., str]) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    with torch.device("meta"):
        model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=8, n_head=1, n_positions=64))
    options = Options(
        finetune="full", optim="paged-adamw-8bit", lengths=of_file(*[8] * 15, 60), batch="1,64", no_local=True
    )
    question = question_from_model(model, None, options)
    one, many = question.at_batch(1), question.at_batch(64)
    assert flops(many, batch=1) > 3 * flops(one, batch=1)
    for step in (one, many):
        assert all(PAGED in row.attributes for row in step.rows if row.op == "optimizer")


def test_the_longest_of_a_batch_has_the_chances_of_all_batches() -> None:
    lengths = Lengths(counts={2: 1, 5: 2, 9: 1}, kind="")
    found = lengths.longest_of(3)
    drawn = Counter(max(batch) for batch in product((2, 5, 5, 9), repeat=3))
    assert found == pytest.approx({length: count / 64 for length, count in drawn.items()})


@pytest.mark.parametrize(("mean", "p95"), [(180, 512), (1000, 1000), (50, 190)])
def test_a_log_normal_has_the_mean_and_the_percentile_that_are_given(mean: int, p95: int) -> None:
    found = read_lengths(f"{mean},{p95}")
    assert found.mean == pytest.approx(mean, rel=0.01)
    assert found.quantile(0.95) == pytest.approx(p95, rel=0.01)


def test_a_file_has_one_length_per_line_or_a_column(tmp_path: Path) -> None:
    plain, table = tmp_path / "plain.txt", tmp_path / "table.csv"
    plain.write_text("length\n7\n3\n\n7\n")
    table.write_text("id,tokens\n1,7\n2,3\n3,7\n")
    for text in (str(plain), f"{table}:tokens"):
        assert dict(read_lengths(text).counts) == {3: 1, 7: 2}
    for text in (str(table), f"{table}:words", str(tmp_path / "none"), "180,1000", "180,90", f"{table}:id,x"):
        with pytest.raises(UsageError):
            read_lengths(text)
    plain.write_text("7\n3.5\n")
    with pytest.raises(UsageError, match=":2:"):
        read_lengths(str(plain))


def test_samples_packed_into_full_sequences_have_the_mean_of_their_cut_lengths(of_file: Callable[..., str]) -> None:
    options = Options(finetune="lora", packing=True, sequence=500, lengths=of_file(100, 300, 900))
    _, found = settled(toy(), options)
    assert (found.mean_tokens, found.lengths) == (300.0, None)


def test_the_tokens_of_a_job_are_those_that_the_model_takes(of_file: Callable[..., str]) -> None:
    """BERT takes 512 at most: of 100, 300 and 2,000 tokens it computes 912, 304 each on average."""
    options = Options(lengths=of_file(100, 300, 2000), tokens=3_040_000, no_local=True)

    found = question_from_source("hf:google-bert/bert-base-uncased", options)

    assert (found.options.samples, found.options.tokens) == (10_000, None)


@pytest.mark.parametrize(
    ("source", "given"),
    [
        ("net.py", {}),
        ("timm:resnet18", {}),
        ("workload.json", {}),
        ("hf:gpt2", {"prompt_tokens": 8, "output_tokens": 8}),
        ("hf:gpt2", {"measure": True}),
        ("hf:gpt2", {"mean_tokens": 8.0}),
    ],
)
def test_sources_without_a_known_sequence_are_refused(source: str, given: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="--lengths"):
        check_lengths(source, replace(Options(lengths="180,512"), **given), run=False)  # type: ignore[arg-type]
    check_lengths("hf:gpt2", Options(lengths="180,512"), run=False)


def test_the_sequence_is_the_first_dimension_of_the_first_input_and_of_those_as_long() -> None:
    given = ("ids=512:int64", "mask=512x512", "x=3x512")
    assert with_length(given, 99) == ("ids=99:int64", "mask=99x512", "x=3x512")


def test_jagged_tensors_are_refused_in_favour_of_lengths(tmp_path: Path) -> None:
    path = tmp_path / "jagged.py"
    path.write_text(
        "import torch\nfrom torch import nn\n"
        "model = nn.Linear(8, 4)\n"
        "def example_inputs(batch=4):\n"
        "    rows = [torch.zeros(3 + at % 3, 8) for at in range(batch)]\n"
        "    return torch.nested.nested_tensor(rows, layout=torch.jagged)\n"
    )
    with pytest.raises(TraceError) as caught:
        profiled(str(path), input=())
    assert "--lengths" in caught.value.hint


def test_a_net_that_is_not_linear_in_the_length_is_refused(tmp_path: Path, of_file: Callable[..., str]) -> None:
    path = tmp_path / "square.py"
    path.write_text(
        "import torch\nfrom torch import nn\n"
        "class Net(nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x.new_zeros(x.shape[0], x.shape[1] ** 2).exp()\n"
        "model = Net()\n"
    )
    with pytest.raises(TraceError, match="linear"):
        profiled(str(path), input=("300",), lengths=of_file(100, 400))
