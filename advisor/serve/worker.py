"""The process that computes: frames of the service in, replies out, until the service is gone."""

import gc
import json
import resource
import socket

from advisor.catalog.cache import catalog_from_json, catalog_to_json
from advisor.errors import AdvisorError
from advisor.question.from_source import catalog_of
from advisor.records.answer import Recommendation
from advisor.records.options import Options
from advisor.records.price import Catalog
from advisor.report.record_json import adapter_of
from advisor.serve.endpoints import answer
from advisor.serve.frames import Frame, Readable, Writable, read_frame
from advisor.serve.option_fields import EXAMPLE_WORKLOAD
from advisor.serve.request import read_request

_MEMORY_BYTES = 4 * 1024**3
"""The most that one process may map, numpy's libraries included: no request takes the machine's memory."""


def warm_up() -> None:
    """Make once what every worker would make for its first answer: validators, formulas, what is imported late."""
    read_request(b'{"workload":' + EXAMPLE_WORKLOAD.read_bytes() + b"}")
    adapter_of(Recommendation)


def work(connection: socket.socket) -> None:
    """Answer on the socket until it closes."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    gc.disable()  # garbage is looked for between answers, when what they were made from is gone already
    with connection.makefile("rwb") as stream:
        answer_frames(stream, stream)


def answer_frames(questions: Readable, replies: Writable) -> None:
    """The word "load" is answered with the catalog of some files, "catalog" brings the one in force, the rest ask."""
    catalog: Catalog | None = None
    while frame := read_frame(questions):
        if frame.word == "catalog":
            catalog = catalog_from_json(frame.body)
            gc.collect()
            gc.freeze()  # thousands of offers that never become garbage are not looked through again
            continue
        replies.write(_reply(frame, catalog).packed())
        replies.flush()
        gc.collect(0)


def _reply(frame: Frame, catalog: Catalog | None) -> Frame:
    if frame.word == "load":
        return load(frame.body)
    if catalog is None:
        raise ValueError(f"asked to {frame.word} before a catalog was sent")
    found = answer(frame.word, frame.body, catalog=catalog)
    return Frame(str(found.status), found.body)


def load(body: bytes) -> Frame:
    """The catalog in force as one document ("catalog"), or the first mistake in its files ("refused")."""
    named = json.loads(body)
    try:
        catalog = catalog_of(Options(profiles=named["profiles"], prices=tuple(named["prices"])))
    except AdvisorError as error:
        return Frame("refused", json.dumps([error.message, error.hint]).encode())
    return Frame("catalog", catalog_to_json(catalog))
