"""Estimates the scratch memory that oneDNN allocates on a CPU for LSTMs, besides their tensors."""

from collections.abc import Mapping
from typing import Any

_STATE_COPIES = 6
"""Copies of a layer's states per token: h for the next layer, h and c for the next step, each with an initial row.

oneDNN, src/cpu/rnn/rnn_utils.hpp, `set_workspace_sizes`: (layers + 1) x tokens of each; torch calls one layer at a
time."""
_GATES = 4
_TRACED_COPIES = _GATES + 1
"""Copies that the trace already counts for backward: the gates and the cell."""
_ITEM_BYTES = 4


def lstm_scratch(attributes: Mapping[str, Any], *, token_count: int, is_training: bool) -> tuple[tuple[int, ...], int]:
    """Return the bytes of the blocks that are freed when the call ends, and those that live as long as its last result.

    They hold the gates of all tokens of one layer and direction, and its states; training keeps them for all layers.
    Other recurrent layers have no scratch memory, because they run as torch's own operators.
    """
    if attributes["mode"] != "lstm" or attributes["proj_size"]:
        return (), 0
    unit_bytes = token_count * attributes["hidden_size"] * _ITEM_BYTES
    if not is_training:
        return (_GATES * unit_bytes, _STATE_COPIES * unit_bytes), 0
    chains = attributes["num_layers"] * (2 if attributes["bidirectional"] else 1)
    kept_per_chain = _GATES + _STATE_COPIES - _TRACED_COPIES
    return (_GATES * unit_bytes,), chains * kept_per_chain * unit_bytes
