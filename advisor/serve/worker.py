"""Runs a worker process, which answers frames with the same functions as the commands until its socket closes."""

import gc
import json
import resource
import socket
from collections.abc import Callable, Mapping
from datetime import date
from io import BufferedIOBase

from advisor.answers.break_even import break_even
from advisor.answers.explanation import explain
from advisor.answers.price_list import list_prices
from advisor.answers.ranking import rank
from advisor.catalog.cache import catalog_from_json, catalog_to_json
from advisor.catalog.overlay import shipped_profiles
from advisor.errors import AdvisorError
from advisor.files.json_text import adapter_of, parse_json
from advisor.question.from_source import catalog_of, check_named, question_of
from advisor.question.record import Question
from advisor.records.answer import Recommendation
from advisor.records.options import Options
from advisor.records.price import Catalog
from advisor.report.as_json import record_json
from advisor.report.prices import render_prices_json
from advisor.serve.frames import Frame, read_frame
from advisor.serve.options import EXAMPLE_WORKLOAD, options_of
from advisor.serve.problem import problem_of
from advisor.serve.request import read_request

_MEMORY_BYTES = 4 * 1024**3
"""Memory limit of one worker, including numpy's libraries, so that no request can exhaust the machine."""


def warm_up() -> None:
    """Build what every worker needs for its first answer, before the fork: validators, formulas and late imports."""
    read_request(b'{"workload":' + EXAMPLE_WORKLOAD.read_bytes() + b"}")
    adapter_of(Recommendation)


def work(connection: socket.socket) -> None:
    """Answer on the socket until it closes."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    gc.disable()  # garbage is collected between answers
    with connection.makefile("rwb") as stream:
        answer_frames(stream, stream)


def answer_frames(questions: BufferedIOBase, replies: BufferedIOBase) -> None:
    """Answer frames: "load" returns the catalog of given files, "catalog" sets the one to use, others are questions."""
    catalog: Catalog | None = None
    while frame := read_frame(questions):
        if frame.word == "catalog":
            catalog = catalog_from_json(frame.body)
            gc.collect()
            gc.freeze()  # thousands of offers never become garbage, so the collector may skip them
            continue
        if frame.word == "load":
            reply = load(frame.body)
        elif catalog is None:
            raise ValueError(f"asked to {frame.word} before a catalog was sent")
        else:
            reply = answer(frame.word, frame.body, catalog=catalog)
        replies.write(reply.packed())
        replies.flush()
        gc.collect(0)


def load(body: bytes) -> Frame:
    """Load the given files; return the catalog ("catalog") or the first mistake ("refused")."""
    named = json.loads(body)
    try:
        catalog = catalog_of(Options(profiles=named["profiles"], prices=tuple(named["prices"])))
    except AdvisorError as error:
        return Frame("refused", json.dumps([error.message, error.hint]).encode())
    return Frame("catalog", catalog_to_json(catalog))


def answer(question: str, body: bytes, *, catalog: Catalog) -> Frame:
    """Return the HTTP status and the reply to one of `QUESTIONS`; a mistake in the request also gets a reply."""
    try:
        return Frame("200", QUESTIONS[question](body, catalog))
    except AdvisorError as error:
        problem = problem_of(error)
        return Frame(str(problem.status), problem.body())


def _question(body: bytes, catalog: Catalog) -> Question:
    request = read_request(body)
    return question_of(request.workload, request.options, catalog=catalog)


def _explain(body: bytes, catalog: Catalog) -> bytes:
    request = read_request(body, takes_on=True)
    check_named(request.on, request.options)
    return record_json(explain(question_of(request.workload, request.options, catalog=catalog), on=request.on))


def _report(body: bytes, catalog: Catalog) -> bytes:
    from advisor.answers.full_report import report
    from advisor.report.document import document_of  # only the page needs it, and a worker should start quickly

    return record_json(document_of(report(_question(body, catalog), with_break_even=False)))


def _break_even_section(body: bytes, catalog: Catalog) -> bytes:
    from advisor.report.break_even import break_even_section

    return record_json(break_even_section(break_even(_question(body, catalog).by_cost())))


def _devices(_: bytes, catalog: Catalog) -> bytes:
    gpus, cpus = (record_json(tuple(profiles.values())) for profiles in (catalog.gpus, catalog.cpus))
    return b'{"gpus":' + gpus + b',"cpus":' + cpus + b"}"


def _offers(body: bytes, catalog: Catalog) -> bytes:
    options = options_of(parse_json(body, where="query", hint="see /openapi.json"))
    return render_prices_json(list_prices(catalog, options, today=date.today())).encode()


QUESTIONS: Mapping[str, Callable[[bytes, Catalog], bytes]] = {
    "recommend": lambda body, catalog: record_json(rank(_question(body, catalog))),
    "explain": _explain,
    "breakeven": lambda body, catalog: record_json(break_even(_question(body, catalog))),
    "report": _report,
    "break-even": _break_even_section,
    "devices": _devices,
    "offers": _offers,
    "accuracy": lambda _body, _catalog: (shipped_profiles() / "accuracy.json").read_bytes(),
}
