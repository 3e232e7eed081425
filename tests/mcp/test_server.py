"""The server, asked over stdin and stdout by the client of the protocol's own SDK."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import anyio
import jsonschema
import pytest
from mcp import Client, StdioServerParameters, stdio_client
from mcp_types import CallToolResult, ResourceLink, TextContent, Tool

from advisor.answers.ranking import rank
from advisor.mcp.tools import REFUSED, TOOLS
from advisor.question.from_source import question_from_source
from advisor.records.options import Options
from advisor.report.as_json import to_json
from advisor.serve.options import EXAMPLE_WORKLOAD, options_schema

ROOT = Path(__file__).resolve().parents[2]
SAVED = str(EXAMPLE_WORKLOAD)
Call = tuple[str, dict[str, Any]]
MODEL = "import pathlib, torch\npathlib.Path(__file__).with_suffix('.ran').touch()\nmodel = torch.nn.Linear(8, 2)\n"
MODEL += "example_inputs = torch.zeros(4, 8)\n"


def ask(*calls: Call, flags: Sequence[str] = (), folder: Path) -> tuple[list[Tool], list[CallToolResult]]:
    """The tools of a server that is started in the folder, and its answers to the calls."""

    async def asked() -> tuple[list[Tool], list[CallToolResult]]:
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "advisor", "mcp", *flags],
            env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder / "cache")},
            cwd=folder,
        )
        async with Client(stdio_client(server)) as client:
            tools = (await client.list_tools()).tools
            return tools, [await client.call_tool(name, arguments) for name, arguments in calls]

    return anyio.run(asked)


def text_of(result: CallToolResult) -> str:
    assert isinstance(result.content[0], TextContent)
    return result.content[0].text


def answered(result: CallToolResult) -> tuple[str, Path]:
    """The text of an answer and the file that it links to."""
    assert not result.is_error, text_of(result)
    text, link = text_of(result), result.content[1]
    assert isinstance(link, ResourceLink)
    file = Path(unquote(urlsplit(link.uri).path))
    assert str(file) in text
    return text, file


def refused(result: CallToolResult) -> str:
    assert result.is_error
    text = text_of(result)
    assert text.startswith("error: ")
    assert "Traceback" not in text
    return text


def test_a_saved_workload_gets_the_commands_figures_in_five_rows_and_all_of_them_in_a_file(tmp_path: Path) -> None:
    answers = tmp_path / "answers"
    answers.mkdir()
    options = {"samples": "1e9", "provider": ["aws", "gcp"]}
    inline = json.loads(EXAMPLE_WORKLOAD.read_text())
    calls = [
        ("recommend", {"source": SAVED, "options": options}),
        ("recommend", {"workload": inline, "options": options}),
    ]
    _, results = ask(*calls, flags=["--answers", str(answers)], folder=tmp_path)
    (text, file), (_, other) = map(answered, results)
    expected = rank(question_from_source(SAVED, Options(samples=10**9, provider=("aws", "gcp"), top=5)))
    assert json.loads(file.read_text()) == json.loads(to_json(expected))
    assert file.parent == answers
    assert file == other  # the same answer is the same file
    assert len(list(answers.iterdir())) == 1
    rows = re.findall(r"^ *\d+[~?]* +(?:aws|gcp) ", text, flags=re.MULTILINE)
    assert len(rows) == 5
    assert len(text) < 5000 < file.stat().st_size


def test_every_tool_answers(tmp_path: Path) -> None:
    calls: dict[str, dict[str, Any]] = {name: {"source": SAVED} for name in TOOLS}
    calls["explain"] |= {"on": ["l4", "t4"]}
    calls["memory"] |= {"on": ["l4"], "options": {"batch": 64}}
    calls["prices"] = {"options": {"device": ["l4"], "top": 3}}
    _, results = ask(*calls.items(), folder=tmp_path)
    for name, result in zip(calls, results, strict=True):
        text, file = answered(result)
        assert len(text) > 200, name
        assert not file.exists(), name  # the temporary folder ends with the server


def test_a_model_file_runs_only_in_an_allowed_folder(tmp_path: Path) -> None:
    allowed, other = tmp_path / "allowed", tmp_path / "other"
    for folder in (allowed, other):
        folder.mkdir()
        (folder / "model.py").write_text(MODEL)
        (folder / "config.json").write_text('{"model_type": "bert"}')
    (allowed / "link.py").symlink_to(other / "model.py")
    (allowed / "away").symlink_to(other)
    outside = ("other/model.py", "allowed/link.py", "allowed/away/model.py", "allowed/../other/model.py::model")
    options = {"provider": ["aws"], "no_calibrate": True}
    refusals = [("recommend", {"source": source}) for source in (*outside, f"hf:{other}", "finetune.yaml", "a\0b")]
    calls: list[Call] = [*refusals, ("recommend", {"source": "allowed/model.py", "options": options})]
    _, (*refused_results, result) = ask(*calls, flags=["--allow-run", "allowed"], folder=tmp_path)
    for call, one in zip(refusals, refused_results, strict=True):
        assert "allowed" in refused(one) or "\0" in call[1]["source"]
    assert not (other / "model.ran").exists()
    answered(result)
    assert (allowed / "model.ran").exists()


def test_without_the_flag_no_file_runs(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    calls: list[Call] = [
        ("recommend", {"source": "model.py"}),
        ("explain", {"source": "model.py::model"}),
        ("memory", {"source": "./model.py", "run": True}),
        ("breakeven", {"source": str(tmp_path / "model.py")}),
        ("recommend", {"source": "model.pt2"}),
    ]
    _, results = ask(*calls, folder=tmp_path)
    assert all("--allow-run" in refused(result) for result in results)
    assert not (tmp_path / "model.ran").exists()


def test_mistakes_are_tool_errors_with_the_commands_sentences(tmp_path: Path) -> None:
    calls: dict[str, Call] = {
        "options.max_usd: '-1' is not a number above 0": ("recommend", {"source": SAVED, "options": {"max_usd": -1}}),
        "did you mean samples?": ("recommend", {"source": SAVED, "options": {"sample": 3}}),
        "files of profiles and prices are named": ("recommend", {"source": SAVED, "options": {"prices": ["a.yaml"]}}),
        "makes no difference": ("prices", {"options": {"samples": 3}}),
        "did you mean source?": ("recommend", {"sourc": SAVED}),
        "either source or workload": ("recommend", {"source": SAVED, "workload": {}}),
        "expected an object": ("recommend", {"source": SAVED, "options": ["samples"]}),
        "No such file": ("recommend", {"source": "nowhere.json"}),
        '"run": true': ("recommend", {"source": SAVED, "script_args": ["--epochs", "3"]}),
        "--run": ("recommend", {"source": SAVED, "run": True}),
        "did you mean recommend?": ("recomend", {}),
        "expected text": ("recommend", {"source": 7}),
        "no price is within": ("prices", {"options": {"provider": ["aws"], "tier": ["marketplace"]}}),
        "workload: schema_version": ("recommend", {"workload": {"name": "x"}}),
    }
    _, results = ask(*calls.values(), folder=tmp_path)
    for expected, result in zip(calls, results, strict=True):
        assert expected in refused(result)


def test_the_schemas_are_those_of_the_flags(tmp_path: Path) -> None:
    tools, _ = ask(folder=tmp_path)
    assert [tool.name for tool in tools] == list(TOOLS)
    options = {tool.name: tool.input_schema["properties"]["options"]["properties"] for tool in tools}
    of_service = options_schema()["properties"]
    shared = options["recommend"].keys() & of_service.keys()
    assert of_service.keys() - REFUSED.keys() == shared  # a tool also takes options of sources
    assert all(options["recommend"][name] == of_service[name] for name in shared)
    assert options["recommend"].keys() == {*Options.__dataclass_fields__} - {*REFUSED}
    for name, own in options.items():
        for option, schema in own.items():
            assert {**schema, "description": ""} == {**options["recommend"][option], "description": ""}, name
    valid = {"source": SAVED, "options": {"samples": "1e6", "provider": ["aws"], "max_usd": 3}}
    for tool in tools:
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
    schema = tools[0].input_schema
    jsonschema.validate(valid, schema)
    for wrong in ({"sourc": SAVED}, {"options": {"sample": 3}}, {"options": {"mode": "trainin"}}, {"on": ["l4"]}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


def test_only_a_server_that_runs_nothing_says_that_it_changes_nothing(tmp_path: Path) -> None:
    for flags, expected in (((), True), (("--allow-run", "."), False)):
        tools, _ = ask(flags=flags, folder=tmp_path)
        assert {tool.annotations and tool.annotations.read_only_hint for tool in tools} == {expected}


def test_a_mistake_in_the_users_prices_ends_the_server_at_once(tmp_path: Path) -> None:
    (tmp_path / "advisor.yaml").write_text("provider: aws\ninstances: 7\n")
    command, env = [sys.executable, "-m", "advisor", "mcp"], {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=env, input="", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "advisor.yaml:2" in done.stderr


@pytest.mark.slow
def test_a_published_model_is_traced_by_its_name(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    call = ("memory", {"source": "hf:openai-community/gpt2", "on": ["l4"]})
    _, (result,) = ask(call, folder=tmp_path)
    text, _ = answered(result)
    assert "gpt2" in text


@pytest.mark.slow
def test_an_allowed_script_runs_with_its_arguments(tmp_path: Path) -> None:
    seen = "import sys, pathlib\npathlib.Path('seen').write_text(str(sys.argv[1:]))\n"
    (tmp_path / "train.py").write_text(seen + (ROOT / "examples/train.py").read_text())
    arguments = {"source": "train.py", "run": True, "script_args": ["--epochs", "3"], "options": {"no_calibrate": True}}
    flags = ["--allow-run", ".", "--answers", str(tmp_path)]
    _, (result,) = ask(("recommend", arguments), flags=flags, folder=tmp_path)
    _, file = answered(result)
    assert (tmp_path / "seen").read_text() == "['--epochs', '3']"
    assert json.loads(file.read_text())["job"]["mode"] == "training"  # as the script runs
