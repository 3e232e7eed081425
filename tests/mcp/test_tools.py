"""The answers of the tools without the protocol around them, the page about them and the skill."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.catalog.strict_yaml import parse_documents
from advisor.cli.commands import load_command
from advisor.errors import ProfileError, UsageError
from advisor.mcp.tools import TOOLS, Settings, ToolRunner, described
from advisor.serve.options import EXAMPLE_WORKLOAD
from tests.cli.conftest import Result, advise  # noqa: F401, a fixture

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/mcp.md").read_text()
SKILL = ROOT / "skills/device-advisor/SKILL.md"
OWN = "provider: aws\ndate: 2026-11-01\ninstances:\n  g6.xlarge:\n    usd_per_hour:\n      us-east-1: {on_demand: %s}\n"
QUESTION = {"options": {"instance": ["g6.xlarge"], "region": ["us-east-1"]}}


def price_told(runner: ToolRunner) -> float:
    _, file = runner.call("prices", QUESTION)
    (price,) = json.loads(file.read_text())["prices"]
    return float(price["usd_per_hour"])


def test_prices_are_read_again_when_their_file_changes(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(OWN % 0.61)
    runner = ToolRunner(Settings(answers=tmp_path, prices=(own,)))
    assert price_told(runner) == 0.61
    own.write_text(OWN % 0.575)
    assert price_told(runner) == 0.575
    own.write_text("provider: 7\n")
    for _ in range(2):  # also when it has been seen
        with pytest.raises(ProfileError, match=r"own\.yaml:1"):
            runner.call("prices", QUESTION)


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    runner = ToolRunner(Settings(answers=tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="nowhere"):
        runner.call("prices", QUESTION)


def test_the_figures_of_an_inline_workload_are_those_of_its_file(tmp_path: Path) -> None:
    runner = ToolRunner(Settings(answers=tmp_path))
    inline = {"workload": json.loads(EXAMPLE_WORKLOAD.read_text()), "on": ["l4"]}
    by_file = {"source": str(EXAMPLE_WORKLOAD), "on": ["l4"]}
    for tool in ("explain", "memory"):
        assert runner.call(tool, inline) == runner.call(tool, by_file)


WITHOUT_MCP = """
import sys
class Hidden:
    def find_spec(self, name, *_):
        if name == "mcp":
            raise ModuleNotFoundError("No module named 'mcp'", name="mcp")
sys.meta_path.insert(0, Hidden())
from advisor.cli.main import run
sys.exit(run(["mcp"]))
"""


def test_without_the_package_the_command_says_what_to_install() -> None:
    command, env = [sys.executable, "-c", WITHOUT_MCP], {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=env, input="", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: mcp is not installed\nhint: the MCP server needs it: pip install mcp\n"


@pytest.mark.parametrize("flag", ["--answers", "--allow-run"])
def test_a_missing_folder_is_named(advise: Callable[..., Result], flag: str) -> None:  # noqa: F811
    result = advise("mcp", flag, "no-such-folder")
    assert result.code == 2
    assert f"{flag} no-such-folder: no such folder" in result.err


def test_the_page_names_every_tool_with_its_arguments() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE, flags=re.MULTILINE))
    assert list(rows) == list(TOOLS)
    for name, row in rows.items():
        told = {word for word in re.findall(r"`(\w+)`", row.rpartition("|")[2]) if word != "advise"}
        if "the same" in row:
            told |= set(re.findall(r"`(\w+)`", rows["recommend"].rpartition("|")[2]))
        assert told == described(name)["properties"].keys()


def test_the_page_says_how_large_the_schemas_are() -> None:
    size = sum(len(json.dumps(described(name))) for name in TOOLS)
    (told,) = re.findall(r"all five schemas \((\d+) kB\)", PAGE)
    assert abs(int(told) - size / 1000) <= 3


def test_the_settings_it_shows_start_the_command() -> None:
    (settings,) = re.findall(r"```json\n(.*?)```", PAGE, flags=re.DOTALL)
    (server,) = json.loads(settings)["mcpServers"].values()
    assert server["command"] == "advise"
    assert load_command(server["args"][0]).name == "mcp"


def test_the_skill_is_one_that_agents_find_and_names_every_tool_and_option() -> None:
    """By agentskills.io/specification: named like its folder, and of at most 1,024 characters and 5,000 tokens."""
    _, head, body = SKILL.read_text().split("---\n", maxsplit=2)
    (document,) = parse_documents(head, label="SKILL.md")
    assert document.values["name"] == SKILL.parent.name
    assert 0 < len(document.values["description"]) <= 1024
    assert len(body) < 5000 * 3
    assert all(f"`{name}`" in body for name in TOOLS)
    options = described("recommend")["properties"]["options"]["properties"]
    words = set(re.findall(r"`(\w+)(?:: [^`]*)?`", body)) - {*TOOLS, "device", "source", "on"}
    assert {word for word in words if word.islower()} <= options.keys()
