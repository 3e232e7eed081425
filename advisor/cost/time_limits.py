"""Pairs the user's limits on latency and token times with the predicted times."""

from dataclasses import dataclass

import numpy as np

from advisor.cost.service import request_latency_s
from advisor.records.answer import Job
from advisor.records.prediction import FloatArray, TokenTimes
from advisor.records.price import RejectionCode


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TimeLimit:
    """One limit on a time, with the flag that sets it and the predicted time of every step."""

    code: RejectionCode
    flag: str
    verb: str
    limit_s: float
    taken_s: FloatArray


def time_limits(step_s: FloatArray, tokens: TokenTimes | None, *, job: Job) -> list[TimeLimit]:
    """Return the time limits that are set, for steps of `step_s`; `tokens` are the token times of LLM serving."""
    limits, nothing = job.limits, np.zeros_like(step_s)
    asked: tuple[tuple[RejectionCode, str, str, float | None, FloatArray], ...] = (
        ("over-latency", "--max-latency", "takes", limits.max_latency_s, _latency_s(step_s, tokens, job=job)),
        ("over-ttft", "--max-ttft", "its first token takes", limits.max_ttft_s, tokens.first_s if tokens else nothing),
        ("over-tpot", "--max-tpot", "a token takes", limits.max_tpot_s, tokens.between_s if tokens else nothing),
    )
    return [
        TimeLimit(code=code, flag=flag, verb=verb, limit_s=limit_s, taken_s=taken_s)
        for code, flag, verb, limit_s, taken_s in asked
        if limit_s is not None
    ]


def _latency_s(step_s: FloatArray, tokens: TokenTimes | None, *, job: Job) -> FloatArray:
    """Return the latency that `--max-latency` limits: one step, or two for a service, where a request may wait for one.

    In LLM serving a request waits for no step: it takes the time to first token plus the time of the other tokens.
    """
    if tokens is not None and job.generation is not None:
        return tokens.first_s + job.generation.decode_count * tokens.between_s
    return step_s if job.requests_per_day is None else request_latency_s(step_s)
