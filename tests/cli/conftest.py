"""A pipeline that answers at once, so that the command line is tested without a model, a catalog or torch."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from advisor.cli.main import run
from advisor.records.answer import Recommendation
from advisor.records.script import Script
from tests.report.toys import GENOA, L4, T4, recommendation

CATALOG = SimpleNamespace(gpus={name: SimpleNamespace(vendor="NVIDIA", part_of=None) for name in ("a10g", "l4", "t4")})


@dataclass
class Pipeline:
    """Stands in for the question and the ranking: keeps what was asked and returns `answer`, or raises it."""

    answer: Recommendation | BaseException = field(default_factory=lambda: recommendation(L4, T4, GENOA))
    asked: list[dict[str, Any]] = field(default_factory=list)

    def question_from_source(self, source: str, options: Any, **more: Any) -> SimpleNamespace:
        self.asked.append({"source": source, "options": options, **more})
        script = Script(gpu_precision="amp-bf16", cpu_precision="fp32") if more.get("run") else None
        return SimpleNamespace(workload=SimpleNamespace(script=script), catalog=CATALOG)

    def rank(self, question: SimpleNamespace) -> Recommendation:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    stand_in = Pipeline()
    for name, function in (("question.from_source", "question_from_source"), ("answers.ranking", "rank")):
        module = ModuleType(f"advisor.{name}")
        setattr(module, function, getattr(stand_in, function))
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return stand_in


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


@pytest.fixture
def advise(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    def call(*arguments: str) -> Result:
        code = run(arguments)
        out, err = capsys.readouterr()
        return Result(code, out, err)

    return call
