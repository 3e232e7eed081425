"""An answer that rests on prices of the user's own names their files, in every command and every format."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.serve.options import EXAMPLE_WORKLOAD
from tests.cli.conftest import Result

ANSWERS = {
    "rank": (("table", "json", "markdown", "html"), ("--top", "3")),
    "explain": (("table", "json"), ()),
    "memory": (("table", "json"), ()),
    "breakeven": (("table", "json"), ()),
}
CASES = [
    *((command, form, (str(EXAMPLE_WORKLOAD), *more)) for command, (forms, more) in ANSWERS.items() for form in forms),
    ("prices list", "table", ()),
    ("prices show", "table", ("g5.xlarge",)),
    ("validate", "table", ("--measurements", "measured.csv")),
    ("validate", "json", ("--measurements", "measured.csv")),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The current folder: the same in all cases, so that its catalog is parsed once."""
    folder = tmp_path_factory.mktemp("overlays")
    (folder / "advisor.yaml").write_text("discounts: [{provider: gcp, percent: 10}]\n")
    (folder / "given.yaml").write_text("discounts: [{provider: azure, percent: 10}]\n")
    shutil.copy(EXAMPLE_WORKLOAD, folder / "step.json")
    (folder / "measured.csv").write_text(
        "model,mode,precision,layout,compile,attention,batch,input,device,step_s,source\n"
        "step.json,inference,fp32,nchw,eager,auto,1,,t4,0.001,a stopwatch\n"
    )
    return folder


@pytest.mark.parametrize(("command", "form", "more"), CASES, ids=[f"{case[0]}-{case[1]}" for case in CASES])
def test_every_answer_names_the_overlays_in_force(
    command: str,
    form: str,
    more: tuple[str, ...],
    advise: Callable[..., Result],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "300")

    result = advise(*command.split(), *more, "-o", form, "--prices", "given.yaml")

    assert (result.code, result.err) == (0, "")
    for file in ("advisor.yaml", "given.yaml"):
        assert file in result.out
