import pytest

from advisor.workload.cpu_scratch import Scratch, conv_scratch, lstm_scratch

LAYERS = {"mode": "lstm", "proj_size": 0, "num_layers": 2, "hidden_size": 10, "bidirectional": True}


def test_a_convolution_has_its_operands_again() -> None:
    assert conv_scratch([100, 20]) == Scratch(held_bytes=(100, 20))


def test_an_lstm_holds_its_gates_and_states_in_inference() -> None:
    # For each of 3 tokens and 10 units, in 4 bytes: 4 gates, and 6 copies of states.
    assert lstm_scratch(LAYERS, token_count=3, is_training=False) == Scratch(held_bytes=(480, 720))


def test_in_training_every_layer_and_direction_keeps_more_than_the_trace_counts() -> None:
    # Kept are 4 gates and 6 copies, of which the trace counts 5: 5 x 3 x 10 x 4 bytes in 2 layers x 2 directions.
    found = lstm_scratch(LAYERS, token_count=3, is_training=True)
    assert found == Scratch(held_bytes=(480,), kept_bytes=4 * 600)


@pytest.mark.parametrize("changes", [{"mode": "gru"}, {"proj_size": 5}])
def test_other_recurrent_layers_are_torchs_own_operators(changes: dict[str, object]) -> None:
    assert lstm_scratch({**LAYERS, **changes}, token_count=3, is_training=True) == Scratch()  # type: ignore[dict-item]
