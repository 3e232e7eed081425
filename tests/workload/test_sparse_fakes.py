"""Sparse fake tensors keep as many elements as real ones have."""

import pytest
import torch

from advisor.workload.fakes import fake_mode
from advisor.workload.sparse_fakes import called_on_sparse, is_sparse, parts_of

aten = torch.ops.aten


def gradient(count, *, first=0):
    """A gradient of `count` rows of 4 from the row `first` on, for a table of 50."""
    places = torch.arange(first, first + count)[None]
    return torch.sparse_coo_tensor(places, torch.ones(count, 4), (50, 4), check_invariants=False)


CALLS = {
    "copy": lambda: (aten.clone.default, gradient(6)),
    "product": lambda: (aten.mul.Scalar, gradient(6), 2.0),
    "in place": lambda: (aten.mul_.Scalar, gradient(6), 2.0),
    "power": lambda: (aten.pow.Tensor_Scalar, gradient(6), 2),
    "coalesced": lambda: (aten._coalesce.default, gradient(6)),
    "masked": lambda: (aten.sparse_mask.default, torch.ones(50, 4), gradient(6)),
    "zeroed": lambda: (aten.zero_.default, gradient(6)),
    "like": lambda: (aten.zeros_like.default, gradient(6)),
    "sum of two": lambda: (aten.add.Tensor, gradient(6), gradient(3, first=6)),
    "sum in place": lambda: (aten.add_.Tensor, gradient(6), gradient(3, first=6)),
}


def result_of(name):
    func, *args = CALLS[name]()
    result = called_on_sparse(func, tuple(args), {})
    assert is_sparse(result)
    assert (result is args[0]) == ("place" in name or name == "zeroed")
    return [tuple(part.shape) for part in parts_of(result)], result.is_coalesced()


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_a_result_has_the_elements_of_a_real_one(name, symbolic):
    real = result_of(name)
    with fake_mode(symbolic=symbolic, isolated=False):
        assert result_of(name)[0] == real[0]


def test_a_coalesced_tensor_is_known_to_be_so():
    with fake_mode(symbolic=False, isolated=False):
        assert result_of("coalesced")[1]
        assert not result_of("copy")[1]


def test_a_dense_result_stays_dense():
    with fake_mode(symbolic=False, isolated=False):
        table = torch.ones(50, 4)
        assert called_on_sparse(aten.add_.Tensor, (table, gradient(6)), {}) is table


def test_a_table_that_fits_in_no_memory_takes_a_sparse_gradient():
    with fake_mode(symbolic=False, isolated=False):
        table, rows = torch.ones(10**12, 4), torch.zeros(1, 6, dtype=torch.int64)
        sparse = torch.sparse_coo_tensor(rows, torch.ones(6, 4), table.shape, check_invariants=False)
        assert called_on_sparse(aten.add_.Tensor, (table, sparse), {"alpha": -0.1}) is table
