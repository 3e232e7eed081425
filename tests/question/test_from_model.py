from typing import Any

import pytest
import torch
from torch import nn

from advisor.errors import UsageError
from advisor.question.from_model import question_from_model
from advisor.records.options import Options


@pytest.mark.parametrize("given", [{"loss": 5}, {"optimizer": "adam"}, {"train_step": lambda: None}])
@pytest.mark.parametrize("mode", ["training", "inference"])
def test_what_is_given_for_the_training_step_is_never_ignored(given: dict[str, Any], mode: Any) -> None:
    (name,) = given
    with pytest.raises(UsageError, match=f"^{name}: "):
        question_from_model(nn.Linear(8, 4), torch.zeros(2, 8), Options(mode=mode), read_machine=None, **given)
