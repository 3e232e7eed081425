"""Answers a request in a worker, with the same functions as the commands."""

from collections.abc import Callable, Mapping
from datetime import date

from advisor.answers.break_even import break_even
from advisor.answers.explanation import explain
from advisor.answers.price_list import list_prices
from advisor.answers.ranking import rank
from advisor.catalog.overlay import shipped_profiles
from advisor.errors import AdvisorError
from advisor.files.json_text import parse_json
from advisor.question.from_source import check_named, question_of
from advisor.question.record import Question
from advisor.records.price import Catalog
from advisor.report.prices import render_prices_json
from advisor.report.record_json import record_json
from advisor.serve.frames import Frame
from advisor.serve.options import options_of
from advisor.serve.problem import problem_of
from advisor.serve.request import AnswerRequest, read_request


def answer(question: str, body: bytes, *, catalog: Catalog) -> Frame:
    """Return the HTTP status and the reply to one of `QUESTIONS`; a mistake in the request also gets a reply."""
    try:
        return Frame("200", QUESTIONS[question](body, catalog))
    except AdvisorError as error:
        problem = problem_of(error)
        return Frame(str(problem.status), problem.body())


def _question(request: AnswerRequest, catalog: Catalog) -> Question:
    return question_of(request.workload, request.options, catalog=catalog)


def _recommend(body: bytes, catalog: Catalog) -> bytes:
    return record_json(rank(_question(read_request(body), catalog)))


def _explain(body: bytes, catalog: Catalog) -> bytes:
    request = read_request(body, takes_on=True)
    check_named(request.on, request.options)
    return record_json(explain(_question(request, catalog), on=request.on))


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
