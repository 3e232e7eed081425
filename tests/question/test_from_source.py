"""Options that do not suit a source are refused before it is traced."""

from dataclasses import replace
from pathlib import Path

import pytest

from advisor.catalog.overlay import load_catalog
from advisor.errors import UsageError
from advisor.predict.batches import batch_candidates
from advisor.question.from_source import profile_source, question_of
from advisor.records.options import Options
from advisor.records.sample_words import ASSUMED_BATCH
from tests.predict.toys import workload

MLP = str(Path(__file__).parents[2] / "examples" / "mlp.py")


@pytest.mark.parametrize("batch", ["0", "-1", "many"])
def test_a_profile_refuses_a_batch_as_the_ranking_does(batch: str) -> None:
    with pytest.raises(UsageError) as of_ranking:
        batch_candidates(batch, mode="inference", source_batch=1)
    with pytest.raises(UsageError) as of_profile:
        profile_source(MLP, Options(batch=batch))
    assert of_profile.value.message == of_ranking.value.message


def test_a_batch_that_is_given_is_not_said_to_be_assumed() -> None:
    traced = replace(workload(), assumptions=(ASSUMED_BATCH, "another note"))
    found = [
        question_of(traced, Options(batch=batch), catalog=load_catalog()).workload.assumptions for batch in ("", "8")
    ]
    assert found == [(ASSUMED_BATCH, "another note"), ("another note",)]


def test_a_profile_takes_one_batch() -> None:
    with pytest.raises(UsageError, match="a profile takes one batch size"):
        profile_source(MLP, Options(batch="8,16"))
