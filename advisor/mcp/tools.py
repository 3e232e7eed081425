"""Runs the tools of the MCP server: the functions of the commands, with answers short enough for a model's context."""

import gc
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from advisor.answers.break_even import break_even
from advisor.answers.explanation import explain
from advisor.answers.memory_fit import check_one_batch, memory_fit
from advisor.answers.price_list import list_prices, no_price_error
from advisor.answers.ranking import rank
from advisor.catalog.find import exchange_rate_of, overlay_notes
from advisor.catalog.overlay import FileStates, file_states, load_catalog
from advisor.errors import DocumentError, UsageError, did_you_mean
from advisor.files.whole_file import write_whole
from advisor.mcp.permission import permitted
from advisor.question.from_source import (
    as_saved,
    check_named,
    check_source,
    question_from_source,
    question_of,
)
from advisor.question.json_options import (
    NAMES_SCHEMA,
    check_keys,
    names_of,
    read_options,
    schema_of_options,
    wrong_type,
)
from advisor.question.record import Question
from advisor.records.options import OF_MEMORY, OF_PRICES, Options
from advisor.records.price import Catalog
from advisor.report.as_json import record_json
from advisor.report.break_even import break_even_content
from advisor.report.content import Block, View
from advisor.report.explanation import explanation_content
from advisor.report.memory import memory_content
from advisor.report.prices import price_list_content, render_prices_json
from advisor.report.recommendation import recommendation_content
from advisor.report.terminal import to_text
from advisor.workload.file import workload_from_json

_ROWS = 5
_WIDTH = 100
_DIGEST_LENGTH = 12
_INLINE = "workload.json"
"""The name of a workload that is given without a file."""
_NOT_IN_NAMES = re.compile("[^A-Za-z0-9]+")
REFUSED = {
    **dict.fromkeys(("profiles", "prices"), "files of profiles and prices are named when the server is started"),
    "model_config": "name the model by its id, as hf:ORG/NAME",
    "lengths": "it may name a file: give the padded length of a batch by input or sequence",
    "measure": "timing this machine takes minutes: run `advise SOURCE --measure` in a shell",
}
"""Fields of `Options` that no tool takes, with the reasons."""
_HINT = 'give {"source": "hf:Qwen/Qwen2.5-7B"}, {"source": "workload.json"} or {"workload": {...}}'
_SOURCE = (
    "hf:ORG/NAME, timm:NAME, torchvision:NAME, or a file saved by `advise profile FILE.py -o workload.json`; FILE.py, "
    "FILE.py::NAME and FILE.pt2 are executed, and only if the server was started with --allow-run for their folder"
)
_MODEL: Mapping[str, Mapping[str, Any]] = {
    "source": {"type": "string", "description": _SOURCE},
    "workload": {"type": "object", "description": "in place of source: the content of a saved workload"},
    "run": {"type": "boolean", "description": "run source, a training or inference script, until its first step"},
    "script_args": {**NAMES_SCHEMA, "description": "with run: the script's arguments"},
}
_ON = {**NAMES_SCHEMA, "description": "instances (g6.xlarge), offers or devices (l4); by default the best, or all"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The flags of `advise mcp`: the folder for full answers, folders whose files may run, the user's own prices."""

    answers: Path
    allow_run: tuple[Path, ...] = ()
    profiles: Path | None = None
    prices: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The arguments of a call. `question` traces the model, or reads its workload; the prices tool does not call it."""

    options: Options
    on: tuple[str, ...]
    catalog: Catalog
    question: Callable[..., Question]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The answer of a tool.

    - `name`: the name of the model; "" for prices
    - `content`: the rows asked for, to be shown as text
    - `json`: the full answer
    """

    name: str
    content: Iterable[Block]
    json: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool of the server.

    - `about`: its description for the agent
    - `options`: the fields of `Options` that it takes; None for all
    - `takes_model`, `takes_on`: whether it has the arguments of a model, and `on`
    """

    about: str
    answer: Callable[[Asked], Answered]
    options: tuple[str, ...] | None = None
    takes_model: bool = True
    takes_on: bool = False

    @property
    def refused(self) -> dict[str, str]:
        """The fields of `Options` that it does not take, with the reasons."""
        if self.options is None:
            return REFUSED
        others = {field.name for field in fields(Options)} - {*self.options}
        return {**dict.fromkeys(sorted(others), "it makes no difference to this answer"), **REFUSED}

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of its arguments."""
        options = {**schema_of_options(refused=self.refused), "description": "the flags of the command line"}
        own = {**(_MODEL if self.takes_model else {}), **({"on": _ON} if self.takes_on else {})}
        return {"type": "object", "additionalProperties": False, "properties": {**own, "options": options}}


def _answered(question: Question, answer: Any, content: Iterable[Block]) -> Answered:
    return Answered(name=question.workload.name, content=content, json=record_json(answer, indent=2).decode())


def _recommend(asked: Asked) -> Answered:
    question = asked.question()
    answer = rank(question)
    return _answered(question, answer, recommendation_content(answer, top=asked.options.top))


def _explain(asked: Asked) -> Answered:
    question = asked.question(on=asked.on)
    answer = explain(question, on=asked.on)
    return _answered(question, answer, explanation_content(answer, top=asked.options.top))


def _memory(asked: Asked) -> Answered:
    check_one_batch(asked.options)
    question = asked.question(read_machine=None)
    answer = memory_fit(question, on=asked.on)
    return _answered(question, answer, memory_content(answer, top=asked.options.top))


def _break_even(asked: Asked) -> Answered:
    question = asked.question()
    answer = break_even(question)
    return _answered(question, answer, break_even_content(answer))


def _prices(asked: Asked) -> Answered:
    rows = list_prices(asked.catalog, asked.options, today=date.today())
    if not rows:
        raise no_price_error(asked.catalog, asked.options)
    rate = exchange_rate_of(asked.catalog, asked.options.currency)
    content = price_list_content(rows, rate=rate, top=asked.options.top, notes=overlay_notes(asked.catalog))
    return Answered(name="", content=content, json=render_prices_json(rows))


TOOLS: Mapping[str, Tool] = {
    "recommend": Tool(
        about=(
            "Rank CPU and GPU cloud instances for a PyTorch model by what a job costs (training, batch inference, a "
            "service or LLM serving), with 90 % intervals. Give the job's size (samples, epochs, tokens, "
            "requests_per_day) if it is known, and limits (deadline, max_usd, max_co2, p99, region). Nothing is rented."
        ),
        answer=_recommend,
    ),
    "explain": Tool(
        about="Say what bounds a step of the model on given devices (compute, memory, launches, transfers) and what "
        "would make it faster. Options are described in `recommend`.",
        answer=_explain,
        takes_on=True,
    ),
    "memory": Tool(
        about="Say whether a step of the model fits the memory of given devices, the largest batch, and what would "
        "make it fit. Options are described in `recommend`.",
        answer=_memory,
        options=OF_MEMORY,
        takes_on=True,
    ),
    "breakeven": Tool(
        about="Find from which batch size, number of samples or requests per day a GPU is cheaper than a CPU for the "
        "model. Options are described in `recommend`.",
        answer=_break_even,
    ),
    "prices": Tool(
        about="List instance prices, cheapest first, each with its date: for questions about prices alone, without a "
        "model. Options are described in `recommend`.",
        answer=_prices,
        options=OF_PRICES,
        takes_model=False,
    ),
}


def described(name: str) -> dict[str, Any]:
    """Return the schema of a tool's arguments; only `recommend` describes the options, which all tools share.

    The descriptions are most of the schema, and every schema is in the context of the model all the time.
    """
    schema = TOOLS[name].schema()
    if name != "recommend":
        for option in schema["properties"]["options"]["properties"].values():
            del option["description"]
    return schema


class ToolRunner:
    """Runs the tools, one call at a time, with a catalog that it reads again when a file has changed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._seen: FileStates = ()
        self._catalog = self._catalog_in_force()

    def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, Path]:
        """Return the short answer and the file with the full one; raise `AdvisorError` for a mistake of the caller."""
        if name not in TOOLS:
            raise UsageError(f"no such tool: {name!r:.80}", hint=did_you_mean(name, TOOLS))
        tool = TOOLS[name]
        check_keys(arguments, tool.schema()["properties"], key="", hint=_HINT)
        given = arguments.get("options") or {}
        options = read_options(given, refused=tool.refused, of_script=arguments.get("run") is True)
        if "top" not in given:
            options = replace(options, top=_ROWS)
        catalog = self._catalog_in_force()
        on = names_of(arguments.get("on") or [], key="on", hint=_HINT)
        question = partial(self._question, arguments, options)
        answered = tool.answer(Asked(options=options, on=on, catalog=catalog, question=question))
        file = self._written(name, answered)
        view = View(top=options.top, width=_WIDTH, folded="in the full answer")
        return f"{to_text(answered.content, view)}\nFull answer, with every row, as JSON: {file}\n", file

    def _catalog_in_force(self) -> Catalog:
        seen = file_states(profiles=self._settings.profiles, prices=self._settings.prices)
        if seen != self._seen:
            self._catalog = load_catalog(profiles=self._settings.profiles, prices=self._settings.prices)
            self._seen = seen
            gc.freeze()  # thousands of offers never become garbage, so the collector may skip them
        return self._catalog

    def _question(self, arguments: Mapping[str, Any], options: Options, **how: Any) -> Question:
        """Return the question about the source or the workload of the arguments."""
        source, workload = arguments.get("source"), arguments.get("workload")
        if (source is None) == (workload is None):
            raise DocumentError("give either source or workload", where="", hint=_HINT)
        run = arguments.get("run") or False
        if not isinstance(run, bool):
            raise wrong_type(run, "true or false", key="run", hint=_HINT)
        script_args = names_of(arguments.get("script_args") or [], key="script_args", hint=_HINT)
        if script_args and not run:
            raise DocumentError("only a script has arguments", where="", key="script_args", hint='add "run": true')
        if workload is None:
            if not isinstance(source, str):
                raise wrong_type(source, "text", key="source", hint=_HINT)
            source = permitted(source, self._settings.allow_run)
            how |= {"run": run, "script_args": script_args, "catalog": self._catalog}
            return question_from_source(source, options, **how)
        check_named(how.get("on", ()), options)
        check_source(_INLINE, options, run=run)
        saved = workload_from_json(workload, where="workload")
        return question_of(saved, as_saved(options, saved, where=repr(saved.name)), catalog=self._catalog)

    def _written(self, name: str, answered: Answered) -> Path:
        digest = hashlib.sha256(answered.json.encode()).hexdigest()[:_DIGEST_LENGTH]
        parts = (name, _NOT_IN_NAMES.sub("-", answered.name).strip("-")[:40], digest)
        file = self._settings.answers / f"{'-'.join(filter(None, parts))}.json"
        try:
            write_whole(answered.json, file)
        except OSError as error:
            raise UsageError(f"{file}: {error.strerror}", hint="ask the user for another --answers DIR") from error
        return file
