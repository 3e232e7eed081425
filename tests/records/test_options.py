"""The flags, the keywords of `recommend` and the record of options are one list."""

import inspect
from dataclasses import fields
from typing import Any

import pytest

from advisor import breakeven, explain, memory, recommend, save_report
from advisor.records.options import NOT_IN_PYTHON, Options
from scripts.write_keywords import TARGET, keywords

FUNCTIONS = {"model", "example_inputs", "loss", "optimizer", "train_step"}


def test_recommend_takes_every_flag_by_its_name_with_the_same_default() -> None:
    keywords = inspect.signature(recommend).parameters
    options = {field.name: field.default for field in fields(Options)}

    assert set(keywords) - FUNCTIONS == set(options) - set(NOT_IN_PYTHON)
    for name in set(keywords) - FUNCTIONS:
        assert keywords[name].default == options[name]


@pytest.mark.parametrize("function", [explain, memory, breakeven, save_report])
def test_the_other_functions_take_the_keywords_of_recommend_but_cannot_measure(function: Any) -> None:
    taken = inspect.signature(function).parameters
    assert taken.keys() - {"on", "file"} == inspect.signature(recommend).parameters.keys() - {"measure"}
    with pytest.raises(TypeError, match="unexpected keyword argument 'measure'"):
        function(None, None, "report.html", measure=True) if function is save_report else function(None, measure=True)


def test_the_typed_keywords_are_those_of_the_record() -> None:
    assert TARGET.read_text(encoding="utf-8") == keywords(), "run python scripts/write_keywords.py"
