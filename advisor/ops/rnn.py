"""Costs of LSTM, GRU and plain RNN layers, each counted as one operator.

The FLOP are those of the matrix products. The pointwise work on gates and states is below 1 % of them for usual widths
and is left out, like the softmax of attention; where it takes time, the lowering of a device counts it. Weights are
counted as read once per training step; a device that reads them at every time step accounts for it in its own lowering.
"""

import math
from dataclasses import dataclass, replace

from advisor.ops.registry import Call, Cost, Number, Tensor, aten, formula, streaming

GATE_COUNTS = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
"""Gates of a cell; each has one product with the input and one with the state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """A stack of recurrent layers; a layer's output is its projection if it has one, else its hidden state."""

    gates: int
    input_size: Number
    hidden_size: Number
    projection_size: Number
    layer_count: int
    direction_count: int

    @property
    def recurrent_size(self) -> Number:
        """The width of a layer's output per direction."""
        return self.projection_size or self.hidden_size

    @property
    def weight_numel(self) -> Number:
        """Weights of all layers; per direction gates x hidden x (input + recurrent) and hidden x projection."""
        later_inputs = (self.layer_count - 1) * self.direction_count * self.recurrent_size
        gate_inputs = self.input_size + later_inputs + self.layer_count * self.recurrent_size
        projections = self.layer_count * self.hidden_size * self.projection_size
        return self.direction_count * (self.gates * self.hidden_size * gate_inputs + projections)

    def cost(self, call: Call, *, output: Tensor, products: int = 1) -> Cost:
        """Return a call's cost: `products` multiply-adds per weight and token of `output` (..., directions x features).

        Each layer passes as many bytes to the next as the size of the output.
        """
        return call.streamed(
            flops=products * (2 * math.prod(output.shape[:-1]) * self.weight_numel),
            between_bytes=(self.layer_count - 1) * output.size_bytes,
        )


def layers_of(call: Call) -> Layers:
    """Return the layers of a composite row."""
    attributes = call.attributes
    return Layers(
        gates=GATE_COUNTS[attributes["mode"]],
        input_size=attributes["input_size"],
        hidden_size=attributes["hidden_size"],
        projection_size=attributes.get("proj_size", 0),
        layer_count=attributes["num_layers"],
        direction_count=2 if attributes["bidirectional"] else 1,
    )


@formula("rnn", "rnn_backward", family="rnn", autocast="low")
def _rnn(call: Call) -> Cost:
    """Inputs (input, states..., weights...), outputs (output, states...); backward's first input is output's gradient.

    In backward each product needs two, for the gradients of its input and its weight.
    """
    output, products = (call.outputs[0], 1) if call.op == "rnn" else (call.inputs[0], 2)
    return layers_of(call).cost(call, output=output, products=products)


def _one_layer_flops(call: Call) -> Number:
    """Inputs (input, input weight, recurrent weight, ...): one layer in one direction, as CPUs run it."""
    source, input_weight, recurrent_weight = call.inputs[:3]
    products = 2 if call.op.endswith("_backward") else 1
    return products * 2 * math.prod(source.shape[:-1]) * (input_weight.numel + recurrent_weight.numel)


_ONE_LAYER = aten("mkldnn_rnn_layer mkldnn_rnn_layer_backward")
streaming(*_ONE_LAYER, family="rnn", autocast="low", flops=_one_layer_flops)


@formula(*aten("quantized_lstm quantized_gru"), family="quantized", attributes=("num_layers", "bidirectional"))
def _quantized_rnn(call: Call) -> Cost:
    """Inputs (input, state (layers x directions, batch, hidden), ...): the packed int8 weights are not in the trace."""
    layers = Layers(
        gates=4 if call.op == "aten.quantized_lstm" else 3,
        input_size=call.inputs[0].shape[-1],
        hidden_size=call.inputs[1].shape[-1],
        projection_size=0,
        layer_count=call.attributes["num_layers"],
        direction_count=2 if call.attributes["bidirectional"] else 1,
    )
    cost = layers.cost(call, output=call.outputs[0])
    return replace(cost, read_bytes=cost.read_bytes + layers.weight_numel)
