"""The same model at several values of a parameter, and the source itself."""

from pathlib import Path
from textwrap import dedent

import pytest

from advisor.errors import LoadError, UsageError
from advisor.question.from_source import question_from_source
from advisor.question.variations import parse_variation, trace_variations
from advisor.records.generation import Generation
from advisor.records.options import Options
from advisor.records.workload import Workload
from advisor.workload import trace_cache
from advisor.workload.spawn import ProfileRequest
from tests.predict.toys import workload as toy

NET = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self, width: int = 8, layers: int = 2):
            super().__init__()
            if width == 12:
                raise ValueError("12 is no width")
            self.layers = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))

        def forward(self, x):
            return self.layers(x)

    def example_inputs(batch=4, width=8):
        return torch.zeros(batch, width)
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("net") / "net.py"
    file.write_text(dedent(NET))
    return str(file)


@pytest.mark.parametrize(
    ("text", "values"),
    [("w=64..512", (64, 128, 256, 512)), ("w=2,12,6", (2, 6, 12)), ("w=1..5", (1, 2, 4, 5)), ("w = 3..4", (3, 4))],
)
def test_values_are_listed_or_doubled(text: str, values: tuple[int, ...]) -> None:
    assert parse_variation(text) == ("w", values)


@pytest.mark.parametrize("text", ["w", "w=", "w=8", "w=8..8", "w=0..8", "w=1..100000", "w=a..b", "2w=1..2"])
def test_what_cannot_be_varied_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--vary"):
        parse_variation(text)


def test_a_width_and_a_depth_are_varied_around_their_defaults(source: str) -> None:
    width, depth = trace_variations(source, Options(), vary=(), run=False)
    assert (width.parameter, depth.parameter) == ("width", "layers")
    assert list(width.workloads) == [2, 4, 8, 16, 32]
    # A layer of width w has w x w weights and w biases; there are two of them.
    assert {value: step.parameter_count for value, step in width.workloads.items()} == {
        value: 2 * value * (value + 1) for value in (2, 4, 8, 16, 32)
    }
    # A quarter of 2 layers is 0.5, at least 1; of 8 there are 72 numbers each.
    assert {value: step.parameter_count for value, step in depth.workloads.items()} == {
        value: 72 * value for value in (1, 2, 4, 8)
    }


def test_a_value_without_a_trace_is_told(source: str) -> None:
    (width,) = trace_variations(source, Options(), vary=["width=6,12"], run=False)
    assert list(width.workloads) == [6]
    (problem,) = width.problems
    assert problem.startswith("width = 12: ")
    assert "12 is no width" in problem


def test_each_value_has_the_lengths_of_the_job(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(
        "from torch import nn\n"
        "def get_model(width=8):\n"
        "    return nn.Sequential(nn.Embedding(9, width), nn.Linear(width, width))\n"
    )
    lengths = tmp_path / "lengths.txt"
    lengths.write_text("100\n100\n900\n")
    options = Options(input=("300:int64",), lengths=str(lengths), batch="1,8")
    source = f"{file}::get_model"
    (width,) = trace_variations(source, options, vary=["width=8,16"], run=False)
    own = question_from_source(source, options)
    for batch in (1, 8):
        assert width.trace_at[8](batch).rows == own.at_batch(batch).rows
    assert width.trace_at[16](1).rows != width.trace_at[16](8).rows


def test_a_parameter_that_the_factory_does_not_take_is_an_error(source: str) -> None:
    with pytest.raises(LoadError, match=r"Net\(.*\) has no parameter height"):
        trace_variations(source, Options(), vary=["height=1..4"], run=False)


def test_only_a_factory_can_be_varied() -> None:
    with pytest.raises(UsageError, match="names no factory"):
        trace_variations("torchvision:resnet18", Options(), vary=["width=1..4"], run=False)
    assert trace_variations("torchvision:resnet18", Options(), vary=(), run=False) == ()


def test_a_file_that_says_nothing_of_widths_is_not_varied(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text("model = 1\n")
    assert trace_variations(str(file), Options(), vary=(), run=False) == ()


def test_a_language_model_in_service_is_traced_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[ProfileRequest] = []

    def read(request: ProfileRequest) -> Workload:
        asked.append(request)
        return toy()

    monkeypatch.setattr(trace_cache, "read", read)
    options = Options(prompt_tokens=8, output_tokens=2, no_local=True)
    question_from_source("hf:config.json", options)
    assert [request.generation for request in asked] == [Generation(prompt_tokens=8, output_tokens=2)]
    with pytest.raises(UsageError, match="needs --output-tokens"):
        question_from_source("hf:config.json", Options(prompt_tokens=8))
