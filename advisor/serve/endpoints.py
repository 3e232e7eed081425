"""Answers a request in a worker, with the same functions as the commands."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date

from advisor.answers.break_even import break_even
from advisor.answers.explanation import explain
from advisor.answers.price_list import list_prices
from advisor.answers.ranking import rank
from advisor.catalog.locate import shipped_profiles
from advisor.errors import AdvisorError, DocumentError, LoadError
from advisor.files.json_text import parse_json
from advisor.question.from_source import check_named, question_of
from advisor.question.record import Question
from advisor.records.price import Catalog
from advisor.report.prices import render_prices_json
from advisor.report.record_json import record_json
from advisor.serve.problem import Problem, problem_of
from advisor.serve.request import Asked, options_of, read_request


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An HTTP status and a JSON document."""

    status: int
    body: bytes


def answer(question: str, body: bytes, *, catalog: Catalog) -> Reply:
    """Return the reply to one of `QUESTIONS`; a mistake in the request also gets a reply."""
    try:
        return Reply(status=200, body=QUESTIONS[question](body, catalog))
    except AdvisorError as error:
        problem = problem_of(error)
        if isinstance(error, LoadError) and not isinstance(error, DocumentError):
            problem = Problem(status=400, code="not-json", message=error.message, hint=error.hint)
        return Reply(status=problem.status, body=problem.body())


def _question(asked: Asked, catalog: Catalog) -> Question:
    return question_of(asked.workload, asked.options, catalog=catalog)


def _recommend(body: bytes, catalog: Catalog) -> bytes:
    return record_json(rank(_question(read_request(body), catalog)))


def _explain(body: bytes, catalog: Catalog) -> bytes:
    asked = read_request(body, takes_on=True)
    check_named(asked.on, asked.options)
    return record_json(explain(_question(asked, catalog), on=asked.on))


def _breakeven(body: bytes, catalog: Catalog) -> bytes:
    return record_json(break_even(_question(read_request(body), catalog)))


def _report(body: bytes, catalog: Catalog) -> bytes:
    from advisor.answers.full_report import report
    from advisor.report.document import document_of  # only the page needs it, and a worker should start quickly

    return record_json(document_of(report(_question(read_request(body), catalog), with_break_even=False)))


def _break_even_section(body: bytes, catalog: Catalog) -> bytes:
    from advisor.report.break_even import break_even_section

    return record_json(break_even_section(break_even(_question(read_request(body), catalog))))


def _devices(_: bytes, catalog: Catalog) -> bytes:
    gpus, cpus = (record_json(tuple(profiles.values())) for profiles in (catalog.gpus, catalog.cpus))
    return b'{"gpus":' + gpus + b',"cpus":' + cpus + b"}"


def _offers(body: bytes, catalog: Catalog) -> bytes:
    options = options_of(parse_json(body, where="query", hint="see /openapi.json"))
    return render_prices_json(list_prices(catalog, options, today=date.today())).encode()


def _accuracy(_: bytes, __: Catalog) -> bytes:
    """Return the accuracy of the shipped efficiencies, as last written by `make accuracy`."""
    return (shipped_profiles() / "accuracy.json").read_bytes()


QUESTIONS: Mapping[str, Callable[[bytes, Catalog], bytes]] = {
    "recommend": _recommend,
    "explain": _explain,
    "breakeven": _breakeven,
    "report": _report,
    "break-even": _break_even_section,
    "devices": _devices,
    "offers": _offers,
    "accuracy": _accuracy,
}
