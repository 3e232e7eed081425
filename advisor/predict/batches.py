"""Parses the batch sizes to consider, and adds larger ones for devices that wait for their host."""

from collections.abc import Callable

import numpy as np

from advisor.errors import UsageError
from advisor.predict.join import join_batches
from advisor.records.answer import BOUNDS
from advisor.records.flag_values import own_batch, single_batch_of, takes_own_batch
from advisor.records.options import Options
from advisor.records.prediction import IndexArray, Predictions
from advisor.records.workload import Mode, Workload

MAX_CANDIDATES = 20
LARGEST_AUTO = 4096
"""The largest batch of `auto`, unless overheads still bound a device there: see `predict_growing`."""
_OVERHEADS = [BOUNDS.index("dispatch"), BOUNDS.index("launch")]
_HINT = "write 32, or 16,32,64, or 8..256, or auto"


def batch_candidates(text: str, *, mode: Mode, source_batch: int, flag: str = "--batch") -> IndexArray:
    """Return ascending batch sizes for `--batch text`: N, "N,M", "A..B" (ends and powers of two between) or "auto".

    auto: the powers of two up to 4096 and the source's own batch; `predict_growing` may add larger ones. Empty: the
    source's own batch for training, since the batch changes the result of training, and auto for inference. Raises
    UsageError, naming the `flag`, on anything else and on more than 20 sizes.
    """
    spec = text.strip() or str(source_batch)
    if is_auto(text, mode=mode):
        candidates = {source_batch, *_powers_of_two(1, LARGEST_AUTO)}
    elif ".." in spec:
        first, last = (_batch(part, flag=f"{flag} {text:.80}") for part in spec.split("..", 1))
        if first > last:
            raise UsageError(f"{flag} {text}: {first} is larger than {last}", hint=f"write {last}..{first}")
        candidates = {first, last, *_powers_of_two(first, last)}
    else:
        candidates = {_batch(part, flag=f"{flag} {text:.80}") for part in spec.split(",")}
    if len(candidates) > MAX_CANDIDATES:
        raise UsageError(
            f"{flag} {text}: {len(candidates)} sizes, but at most {MAX_CANDIDATES} can be compared", hint=_HINT
        )
    return np.array(sorted(candidates), dtype=np.intp)


def batches_of(workload: Workload, options: Options) -> IndexArray:
    """Return the batch sizes of `--batch`: of a language model in service, the requests in flight.

    Without `--batch`, a workload whose dimensions are not affine in the batch has its own alone.
    """
    if takes_own_batch(workload, options):
        return np.array([own_batch(workload, options)], dtype=np.intp)
    is_served = workload.generation is not None and workload.generation.engine is not None
    if is_served and is_auto(options.batch, mode=options.mode):
        return concurrencies()
    return batch_candidates(options.batch, mode=options.mode, source_batch=workload.batch)


def concurrencies() -> IndexArray:
    """Return the requests in flight of `auto`: four steps of equal size from each power of two to the next.

    The KV cache limits them, and tokens per second grow up to the limit. Of 513 devices that serve Llama 3 8B (prompts
    of 1024 tokens, answers of 256), none loses more than 5 % to the largest number that fits; with two steps 14 %, with
    powers of two 31 %.
    """
    steps = {part << exponent >> 2 for exponent in range(LARGEST_AUTO.bit_length()) for part in (4, 5, 6, 7)}
    return np.array(sorted(step for step in steps if step <= LARGEST_AUTO), dtype=np.intp)


def is_auto(text: str, *, mode: Mode) -> bool:
    """Return whether `--batch text` lets each device choose."""
    return (text.strip() or ("auto" if mode == "inference" else "")) == "auto"


def predict_growing(predict_at: Callable[[IndexArray], Predictions], batches: IndexArray, *, most: int) -> Predictions:
    """Predict at these batches, and at twice and four times the largest until no device is bound by overheads there.

    A step that only waits for dispatches or launches takes as long with more samples. Devices without the memory for
    the largest batch do not count, and no batch is larger than `most`.
    """
    found = predict_at(batches)
    while True:
        last = int(found.batches[-1])
        larger = np.array([batch for batch in (2 * last, 4 * last) if batch <= most], dtype=np.intp)
        is_idle = found.fits[:, -1] & np.isin(found.bound[:, -1], _OVERHEADS)
        if not len(larger) or not is_idle.any():
            return found
        found = join_batches([found, predict_at(larger)])


def _powers_of_two(first: int, last: int) -> set[int]:
    return {1 << exponent for exponent in range(last.bit_length()) if first <= 1 << exponent <= last}


def _batch(text_part: str, *, flag: str) -> int:
    batch = single_batch_of(text_part)
    if not batch:
        found = f"{text_part.strip()!r:.40}"
        raise UsageError(f"{flag}: {found} is not a positive whole number below 1e9", hint=_HINT)
    return batch
