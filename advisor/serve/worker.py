"""Runs a worker process, which answers frames of the service until the service closes the socket."""

import gc
import json
import resource
import socket
from io import BufferedIOBase

from advisor.catalog.cache import catalog_from_json, catalog_to_json
from advisor.errors import AdvisorError
from advisor.question.from_source import catalog_of
from advisor.records.answer import Recommendation
from advisor.records.options import Options
from advisor.records.price import Catalog
from advisor.report.record_json import adapter_of
from advisor.serve.endpoints import answer
from advisor.serve.frames import Frame, read_frame
from advisor.serve.options import EXAMPLE_WORKLOAD
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
        replies.write(_reply(frame, catalog).packed())
        replies.flush()
        gc.collect(0)


def _reply(frame: Frame, catalog: Catalog | None) -> Frame:
    if frame.word == "load":
        return load(frame.body)
    if catalog is None:
        raise ValueError(f"asked to {frame.word} before a catalog was sent")
    return answer(frame.word, frame.body, catalog=catalog)


def load(body: bytes) -> Frame:
    """Load the given files; return the catalog ("catalog") or the first mistake ("refused")."""
    named = json.loads(body)
    try:
        catalog = catalog_of(Options(profiles=named["profiles"], prices=tuple(named["prices"])))
    except AdvisorError as error:
        return Frame("refused", json.dumps([error.message, error.hint]).encode())
    return Frame("catalog", catalog_to_json(catalog))
