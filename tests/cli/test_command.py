"""SOURCE, `--run` and the arguments of a script."""

from collections.abc import Callable

from tests.cli.conftest import Pipeline, Result

Advise = Callable[..., Result]


def test_what_follows_the_dashes_belongs_to_the_script(advise: Advise, pipeline: Pipeline) -> None:
    assert advise("train.py", "--run", "--batch", "8", "--", "--batch", "16", "data").code == 0
    call = pipeline.asked[0]
    assert (call["run"], call["script_args"], call["options"].batch) == (True, ("--batch", "16", "data"), "8")


def test_arguments_without_a_script_to_run_are_refused(advise: Advise, pipeline: Pipeline) -> None:
    result = advise("train.py", "--", "--lr", "0.1")
    assert result.code == 2
    assert result.err == (
        "error: '--lr' follows the source 'train.py', but only one source is allowed\n"
        "hint: to run a script, add --run and put its arguments after --\n"
    )
    assert pipeline.asked == []


def test_a_source_that_starts_with_a_dash_stands_after_two(advise: Advise, pipeline: Pipeline) -> None:
    advise("--", "-odd.py")
    assert pipeline.asked[0]["source"] == "-odd.py"
