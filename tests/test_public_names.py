"""The public names of the package."""

from importlib.util import find_spec

import pytest
import torch

import advisor
from advisor.errors import LoadError, UsageError
from tests.model_files import TWO_LAYERS, Write


def test_dir_lists_the_public_functions() -> None:
    assert {"recommend", "explain", "memory", "breakeven", "fits", "observe", "save_report"} <= set(dir(advisor))
    assert all(hasattr(advisor, name) for name in dir(advisor))


def test_a_source_stands_for_a_model(write: Write) -> None:
    source = write(TWO_LAYERS)
    answer = advisor.recommend(source, no_local=True, device="l4")
    assert (answer.workload.name, {quote.device.id for quote in answer.quotes}) == ("net", {"l4"})
    assert [fit.device.id for fit in advisor.memory(source, on="l4").devices] == ["l4"]
    with pytest.raises(UsageError, match=r"example_inputs: the source net\.py has its own"):
        advisor.recommend(source, [1])


def test_errors_name_keywords_and_a_traceback_ends_with_the_hint(write: Write) -> None:
    with pytest.raises(UsageError, match=r"^max_usd limits the whole job, whose size is not known") as refused:
        advisor.recommend(write(TWO_LAYERS), max_usd=1)
    assert "samples N" in refused.value.hint
    assert "--" not in repr(refused.value)
    assert refused.value.__notes__ == [refused.value.hint]
    with pytest.raises(UsageError) as refused:
        advisor.recommend(write(TWO_LAYERS), device="h1000")
    assert refused.value.hint == "`advise devices --all` lists all that can be named"


def test_a_flag_that_is_no_keyword_keeps_its_name_and_the_keyword_is_named() -> None:
    with pytest.raises(LoadError) as refused:
        advisor.recommend(torch.nn.Linear(3, 3))
    assert "--input 3" in refused.value.hint
    assert "example_inputs;" in refused.value.hint


@pytest.mark.skipif(find_spec("transformers") is None, reason="needs transformers")
def test_the_id_of_a_language_model_is_served() -> None:
    answer = advisor.recommend(
        "hf:HuggingFaceTB/SmolLM2-135M", prompt_tokens=64, output_tokens=8, no_local=True, device="l4"
    )
    assert answer.workload.name == "HuggingFaceTB/SmolLM2-135M"
