from collections import UserDict
from typing import Any

import pytest
import torch
from torch import nn

from advisor.errors import LoadError
from advisor.workload.input_spec import parse_input_specs
from advisor.workload.inputs import (
    DEFAULT_BATCH,
    arguments_of,
    describe_inputs,
    plan_from_example,
    plan_from_specs,
    resized,
    suggest_inputs,
    tensors_not_given,
)
from tests.says import assert_says


class TwoInputs(nn.Module):
    def forward(self, ids: torch.Tensor, mask: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return ids * mask * scale


class TakesADict(nn.Module):
    def forward(self, sample: dict[str, torch.Tensor]) -> torch.Tensor:
        return sample["image"]


def test_a_function_of_the_batch_is_called_with_it_and_its_default_is_the_files_batch() -> None:
    def example_inputs(batch: int = 16) -> torch.Tensor:
        return torch.zeros(batch, 3)

    plan = plan_from_example(example_inputs, model=nn.Linear(3, 1))
    (x,), keywords = plan.make(5)
    assert (plan.batch, plan.notes, tuple(x.shape), keywords) == (16, (), (5, 3), {})


def test_a_function_without_a_default_batch_gets_one_and_a_note() -> None:
    plan = plan_from_example(lambda batch: torch.zeros(batch, 3), model=nn.Linear(3, 1))
    (note,) = plan.notes
    assert plan.batch == DEFAULT_BATCH
    assert_says(note, "batch", str(DEFAULT_BATCH), "--batch")


def test_a_function_without_arguments_counts_as_the_value_it_gives() -> None:
    plan = plan_from_example(lambda: torch.zeros(6, 3), model=nn.Linear(3, 1))
    assert (plan.batch, tuple(plan.make(2)[0][0].shape)) == (6, (2, 3))


def test_the_leading_dimension_of_a_value_is_the_batch() -> None:
    plan = plan_from_example((torch.zeros(4, 7), torch.ones(4, 7)), model=TwoInputs())
    args, _ = plan.make(9)
    assert plan.batch == 4
    assert [tuple(tensor.shape) for tensor in args] == [(9, 7), (9, 7)]


def test_integers_stay_in_their_range_at_other_batch_sizes() -> None:
    ids = torch.tensor([[3, 9], [5, 1]])
    assert resized(ids, 2, 5).tolist() == [[3, 9], [5, 1], [3, 9], [5, 1], [3, 9]]
    assert resized(ids, 2, 1).tolist() == [[3, 9]]


def test_what_has_another_leading_dimension_stays_as_it_is_and_is_noted() -> None:
    plan = plan_from_example((torch.zeros(4, 7), torch.ones(7, 7)), model=TwoInputs())
    args, _ = plan.make(8)
    assert [tuple(tensor.shape) for tensor in args] == [(8, 7), (7, 7)]
    (note,) = plan.notes
    assert_says(note, "shape (7, 7)", "batch")


def test_nested_lists_tuples_and_dicts_are_resized_and_other_values_kept() -> None:
    value = {"boxes": [torch.zeros(2, 4), torch.zeros(2, 1)], "size": (torch.zeros(2), 3), "flag": None}
    made = resized(value, 2, 3)
    assert [len(tensor) for tensor in (*made["boxes"], made["size"][0])] == [3, 3, 3]
    assert (made["size"][1], made["flag"]) == (3, None)


@pytest.mark.parametrize("mapping", [dict, UserDict])
def test_a_mapping_of_parameter_names_holds_keyword_arguments(mapping: Any) -> None:
    example = mapping(ids=torch.zeros(2, 3), mask=torch.ones(2, 3))
    args, keywords = arguments_of(example, model=TwoInputs())
    assert (args, list(keywords)) == ((), ["ids", "mask"])


def test_a_mapping_of_other_names_is_the_one_argument() -> None:
    args, keywords = arguments_of({"image": torch.zeros(2, 3)}, model=TakesADict())
    assert (list(args[0]), keywords) == (["image"], {})


def test_a_list_is_the_one_argument() -> None:
    images = [torch.zeros(3, 8, 8), torch.zeros(3, 9, 9)]
    assert arguments_of(images, model=nn.Identity()) == ((images,), {})


def test_inputs_without_any_batch_dimension_are_refused() -> None:
    with pytest.raises(LoadError, match="batch dimension"):
        plan_from_example(torch.tensor(3.0), model=nn.Identity())


def test_a_function_that_gives_nothing_is_refused() -> None:
    plan = plan_from_example(lambda batch: None, model=nn.Identity())
    with pytest.raises(LoadError, match="returned None"):
        plan.make(2)


def test_a_function_that_gives_no_samples_is_refused() -> None:
    plan = plan_from_example(lambda batch: (torch.zeros(0, 3), torch.zeros(0)), model=TwoInputs())
    with pytest.raises(LoadError, match=r"example_inputs\(2\) has no samples"):
        plan.make(2)
    # Features may be empty.
    plan_from_example(lambda batch: torch.zeros(batch, 0), model=nn.Identity()).make(2)


def test_specs_become_tensors_of_their_shape_by_position_and_name() -> None:
    plan = plan_from_specs(parse_input_specs(["3x8", "attention_mask=8:int64", "keep=:bool", "half=2:float16"]))
    args, keywords = plan.make(5)
    assert [(tuple(x.shape), x.dtype) for x in args] == [((5, 3, 8), torch.float32)]
    assert {name: (tuple(x.shape), x.dtype) for name, x in keywords.items()} == {
        "attention_mask": ((5, 8), torch.int64),
        "keep": ((5,), torch.bool),
        "half": ((5, 2), torch.float16),
    }
    assert keywords["attention_mask"].all()  # a mask of zeros would mask everything
    (note,) = plan.notes
    assert_says(note, "batch", str(DEFAULT_BATCH), "--batch")


@pytest.mark.parametrize(
    ("model", "suggestion"),
    [
        (nn.Sequential(nn.Conv2d(1, 8, 3), nn.Linear(8, 2)), "--input 1x224x224"),
        (nn.Conv1d(2, 8, 3), "--input 2x16000"),
        (nn.Linear(100, 2), "--input 100"),
        (nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 2)), "--input 128:int64"),
        (TwoInputs(), "--input ids=3x224x224 --input mask=3x224x224"),
    ],
)
def test_the_suggested_input_fits_the_first_layer_and_the_forwards_arguments(model: nn.Module, suggestion: str) -> None:
    assert suggest_inputs(model) == suggestion


def test_a_hint_names_the_tensors_that_a_model_was_not_given() -> None:
    class Model(nn.Module):
        def forward(self, ids: torch.Tensor, mask: torch.Tensor | None = None, cache: bool = False) -> torch.Tensor:
            return ids

    assert "also takes mask" in tensors_not_given(Model(), {"ids"})
    assert tensors_not_given(Model(), {"ids", "mask"}) == ""


def test_inputs_are_described_by_shape_and_dtype() -> None:
    inputs = ((torch.zeros(2, 3),), {"ids": torch.zeros(2, dtype=torch.int64), "cut": True})
    assert describe_inputs(inputs) == "(2, 3) float32, ids=(2,) int64, cut=bool"
