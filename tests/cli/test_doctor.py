"""`advise doctor`: its exit code says whether the main job can run."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Result

Advise = Callable[..., Result]


def test_where_everything_needed_works_it_exits_with_0(advise: Advise) -> None:
    result = advise("doctor")

    assert result.code == 0
    assert "cannot" not in result.out.splitlines()[-1]


def test_a_broken_price_file_makes_it_exit_with_1_and_name_the_line(advise: Advise, tmp_path: Path) -> None:
    broken = tmp_path / "mine.yaml"
    broken.write_text("provider: aws\ninstances: 7\n")

    result = advise("doctor", "--prices", str(broken), "-o", "json")

    (failed,) = (check for check in json.loads(result.out)["checks"] if check["state"] == "fails")
    assert result.code == 1
    assert failed["name"] == "profiles"
    assert "mine.yaml:2" in failed["found"]
