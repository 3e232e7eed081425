import pytest
import torch
from torch import nn

from advisor.workload.assumed_sizes import AssumedSizes
from advisor.workload.cpu_scratch import lstm_scratch
from advisor.workload.recorder import Recorder

LAYERS = {"mode": "lstm", "proj_size": 0, "num_layers": 2, "hidden_size": 10, "bidirectional": True}


def test_a_convolution_has_its_operands_again() -> None:
    conv = nn.Conv2d(3, 4, 1, bias=False)
    recorder = Recorder(conv, sizes=AssumedSizes(), symbolic=False)
    with torch.no_grad(), recorder:
        conv(torch.zeros(1, 3, 2, 2))
    found = recorder.finish().allocations
    # In 4 bytes: the weight 4 x 3, the image 3 x 2 x 2 and the result 4 x 2 x 2.
    assert sorted(size for serial, size in found.events if serial in found.scratch and size) == [48, 48, 64]


def test_an_lstm_holds_its_gates_and_states_in_inference() -> None:
    # For each of 3 tokens and 10 units, in 4 bytes: 4 gates, and 6 copies of states.
    assert lstm_scratch(LAYERS, token_count=3, is_training=False) == ((480, 720), 0)


def test_in_training_every_layer_and_direction_keeps_more_than_the_trace_counts() -> None:
    # Kept are 4 gates and 6 copies, of which the trace counts 5: 5 x 3 x 10 x 4 bytes in 2 layers x 2 directions.
    assert lstm_scratch(LAYERS, token_count=3, is_training=True) == ((480,), 4 * 600)


@pytest.mark.parametrize("changes", [{"mode": "gru"}, {"proj_size": 5}])
def test_other_recurrent_layers_are_torchs_own_operators(changes: dict[str, object]) -> None:
    assert lstm_scratch({**LAYERS, **changes}, token_count=3, is_training=True) == ((), 0)
