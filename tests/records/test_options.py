"""The flags, the keywords of `recommend` and the record of options are one list."""

import inspect
from dataclasses import fields

from advisor import recommend
from advisor.records.options import Options

FUNCTIONS = {"model", "example_inputs", "loss", "optimizer", "train_step"}
NEEDLESS_IN_PYTHON = {"input", "timeout"}
"""The example inputs are at hand, and the model runs in the caller's own process."""


def test_recommend_takes_every_flag_by_its_name_with_the_same_default() -> None:
    keywords = inspect.signature(recommend).parameters
    options = {field.name: field.default for field in fields(Options)}

    assert set(keywords) - FUNCTIONS == set(options) - NEEDLESS_IN_PYTHON
    for name in set(keywords) - FUNCTIONS:
        assert keywords[name].default == options[name]
