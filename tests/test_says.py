"""A fact that is not there is missed."""

import pytest

from tests.says import assert_says

TEXT = "aws g6.xlarge (1x L4) takes\n30 min [27-33] at batch 1,024: -20 % for $0.42, not $12.5."


def test_facts_are_found_in_their_order() -> None:
    assert_says(TEXT, "aws g6.xlarge", "1x L4", "30 min [27-33]", "batch 1,024", "-20 %", "$0.42", "$12.5")


@pytest.mark.parametrize(
    "facts",
    [
        ("0 min",),  # of 30 min
        ("024",),  # of 1,024
        ("1",),  # of 1x and of 1,024
        ("20 %",),  # of -20 %
        ("$0.4",),  # of $0.42
        ("12.5",),  # of $12.5
        ("$0.42", "30 min"),  # the wrong way round
        ("$0.42", "$0.42"),  # once, not twice
    ],
)
def test_a_part_of_a_fact_is_none_and_order_counts(facts: tuple[str, ...]) -> None:
    with pytest.raises(AssertionError, match="is not in"):
        assert_says(TEXT, *facts)
