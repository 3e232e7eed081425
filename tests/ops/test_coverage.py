"""Every operator that ordinary code dispatches has a formula, and the formula works on the rows it makes."""

import math
import warnings

import numpy as np
import programs
import pytest
import torch
from observe import rows_of_a_real_run, rows_on_fake_tensors
from programs import places, source, trained, with_gradients
from torch import nn

from advisor.ops.evaluate import row_cost
from advisor.ops.registry import formula_of


def assert_covered(rows):
    assert rows
    assert {row.op for row in rows if formula_of(row.op) is None} == set()
    for row in rows:
        for batch in (4, np.array([1.0, 2.0])):
            cost = row_cost(row, batch=batch)
            assert all(math.isfinite(n) and n >= 0 for n in (cost.flops, cost.read_bytes, cost.write_bytes)), row


@pytest.mark.parametrize(("module", "shape"), programs.MODULES, ids=lambda value: type(value).__name__)
def test_modules_are_covered(module, shape):
    assert_covered(rows_on_fake_tensors(lambda: trained(module(source(*shape)))))


@pytest.mark.parametrize("activation", programs.ACTIVATIONS)
def test_activations_are_covered(activation):
    assert_covered(rows_on_fake_tensors(lambda: trained(activation()(source(*programs.IMAGE)))))


@pytest.mark.parametrize("loss", programs.VALUE_LOSSES, ids=lambda loss: type(loss).__name__)
def test_losses_of_values_are_covered(loss):
    def run():
        trained(loss(source(*programs.FEATURES).sigmoid(), torch.rand(*programs.FEATURES)))

    assert_covered(rows_on_fake_tensors(run))


@pytest.mark.parametrize("loss", programs.CLASS_LOSSES, ids=lambda loss: type(loss).__name__)
def test_losses_of_classes_are_covered(loss):
    assert_covered(rows_on_fake_tensors(lambda: trained(loss(source(*programs.FEATURES), places(4)))))


@pytest.mark.parametrize("name", programs.FUNCTIONS)
def test_functions_are_covered(name):
    assert_covered(rows_on_fake_tensors(lambda: trained(programs.FUNCTIONS[name]())))


@pytest.mark.parametrize("name", programs.DATA_DEPENDENT)
def test_code_that_depends_on_its_data_is_covered(name):
    assert_covered(rows_of_a_real_run(lambda: trained(programs.DATA_DEPENDENT[name]())))


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name", programs.OPTIMIZERS)
def test_optimizer_steps_are_covered(name, foreach):
    layer = with_gradients(nn.Linear(3, 4))
    optimizer = getattr(torch.optim, name)(layer.parameters(), lr=0.1, foreach=foreach)
    assert_covered(rows_of_a_real_run(optimizer.step))


def test_the_fast_path_of_an_encoder_layer_is_covered():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()

    def run():
        with torch.no_grad():
            layer(torch.rand(2, 3, 8))

    rows = rows_on_fake_tensors(run)
    assert_covered(rows)
    assert "aten._transformer_encoder_layer_fwd" in {row.op for row in rows}


def test_a_dynamically_quantised_layer_is_covered():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that it will move its quantisation to another package
        model = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(8, 4)), {nn.Linear})
        rows = rows_of_a_real_run(lambda: model(torch.rand(2, 8)))
    assert_covered(rows)
    assert "quantized.linear_dynamic" in {row.op for row in rows}
