import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import UsageError
from advisor.workload.input_spec import DTYPES, InputSpec, parse_input_spec, parse_input_specs

_specs = st.builds(
    InputSpec,
    name=st.none() | st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True),
    shape=st.lists(st.integers(1, 4096), min_size=1, max_size=4).map(tuple),
    dtype=st.sampled_from(DTYPES),
)


def test_an_image_is_written_without_name_and_dtype() -> None:
    assert parse_input_spec("3x224x224") == InputSpec(name=None, shape=(3, 224, 224), dtype="float32")


def test_token_ids_are_written_with_name_and_dtype() -> None:
    assert parse_input_spec("ids=1024:int64") == InputSpec(name="ids", shape=(1024,), dtype="int64")


def test_a_dtype_alone_is_one_number_a_sample() -> None:
    assert parse_input_spec("step=:int64") == InputSpec(name="step", shape=(), dtype="int64")


@given(_specs)
def test_what_a_spec_prints_is_read_as_the_same_spec(spec: InputSpec) -> None:
    assert parse_input_spec(str(spec)) == spec


@pytest.mark.parametrize("text", ["", "x=", "3x", "0x3", "3,224,224", "3x-1", "a b=3", "x==3", "3.5"])
def test_what_is_no_shape_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="not a shape") as caught:
        parse_input_spec(text)
    assert "3x224x224" in caught.value.hint


def test_a_mistyped_dtype_gets_the_nearest_one() -> None:
    with pytest.raises(UsageError, match="unknown dtype flaot16") as caught:
        parse_input_spec("3:flaot16")
    assert caught.value.hint == "did you mean float16?"


def test_a_name_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match=r"ids=\.\.\. is given twice"):
        parse_input_specs(["ids=8:int64", "mask=8:int64", "ids=9:int64"])
