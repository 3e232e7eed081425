"""Options that do not suit a source are refused before it is traced."""

from pathlib import Path

import pytest

from advisor.errors import UsageError
from advisor.predict.batches import batch_candidates
from advisor.question.from_source import profile_source
from advisor.records.options import Options

MLP = str(Path(__file__).parents[2] / "examples" / "mlp.py")


@pytest.mark.parametrize("batch", ["0", "-1", "many"])
def test_a_profile_refuses_a_batch_as_the_ranking_does(batch: str) -> None:
    with pytest.raises(UsageError) as of_ranking:
        batch_candidates(batch, mode="inference", source_batch=1)
    with pytest.raises(UsageError) as of_profile:
        profile_source(MLP, Options(batch=batch))
    assert of_profile.value.message == of_ranking.value.message


def test_a_profile_takes_one_batch() -> None:
    with pytest.raises(UsageError, match="a profile takes one batch size"):
        profile_source(MLP, Options(batch="8,16"))
