"""Formats samples and batches in words; in LLM serving these are requests and requests in flight."""

from advisor.records.generation import Generation

DEFAULT_BATCH = 32
"""Batch size if the source gives none; a note says so."""
ASSUMED_BATCH = f"the source gives no batch size: {DEFAULT_BATCH:,} unless --batch is set"
"""A note in the trace. An answer with `--batch` leaves it out."""


def samples_noun(generation: Generation | None) -> str:
    """Return "samples" or "requests"."""
    return "samples" if generation is None else "requests"


def samples_text(count: int, generation: Generation | None) -> str:
    """Return a count of samples or requests: "1,000 samples", "1 request"."""
    noun = samples_noun(generation)
    return f"{count:,} {noun.removesuffix('s') if count == 1 else noun}"


def batch_text(batch: int, generation: Generation | None) -> str:
    """Return a batch in words: "batch 8", "8 requests in flight"."""
    return f"batch {batch:,}" if generation is None else f"{samples_text(batch, generation)} in flight"


def at_batch_text(batch: int, generation: Generation | None) -> str:
    """Return a batch in words with its preposition: "at batch 8", "with 8 requests in flight"."""
    return f"{'at' if generation is None else 'with'} {batch_text(batch, generation)}"
