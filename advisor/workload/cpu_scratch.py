"""An operator's call in, what oneDNN allocates for it on a CPU beside its tensors out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from advisor.records.workload import Attribute

_STATE_COPIES = 6
"""Of a layer's states for each token: h for the next layer, h and c for the next step, each with a row to begin with.

oneDNN, src/cpu/rnn/rnn_utils.hpp, `set_workspace_sizes`: (layers + 1) x tokens of each, one layer a call in torch."""
_GATES = 4
_TRACED_COPIES = _GATES + 1
"""What the trace counts for backward: gates and cell."""
_ITEM_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """Blocks that one call holds, and bytes that live on as long as its last result."""

    held_bytes: tuple[int, ...] = ()
    kept_bytes: int = 0


def conv_scratch(operand_bytes: Sequence[int]) -> Scratch:
    """Images and weights in blocked layouts of its own (ATen/native/mkldnn/Conv.cpp reorders plain ones)."""
    return Scratch(held_bytes=tuple(operand_bytes))


def lstm_scratch(attributes: Mapping[str, Attribute], *, token_count: int, is_training: bool) -> Scratch:
    """The gates of all tokens of one layer and direction, and its states; for backward all layers keep theirs.

    Other recurrent layers run as torch's own operators.
    """
    if attributes["mode"] != "lstm" or attributes["proj_size"]:
        return Scratch()
    layers, hidden_size = attributes["num_layers"], attributes["hidden_size"]
    if not isinstance(layers, int) or not isinstance(hidden_size, int):
        raise TypeError(f"num_layers {layers!r} and hidden_size {hidden_size!r} are no whole numbers")
    unit_bytes = token_count * hidden_size * _ITEM_BYTES
    if not is_training:
        return Scratch(held_bytes=(_GATES * unit_bytes, _STATE_COPIES * unit_bytes))
    chains = layers * (2 if attributes["bidirectional"] else 1)
    kept_per_chain = _GATES + _STATE_COPIES - _TRACED_COPIES
    return Scratch(held_bytes=(_GATES * unit_bytes,), kept_bytes=chains * kept_per_chain * unit_bytes)
