import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from advisor.ops.arithmetic import larger, log2, smaller

lengths = st.integers(min_value=0, max_value=2**40).map(float)


@given(lengths, lengths)
def test_larger_and_smaller_are_pythons_own_for_numbers(a, b):
    assert (larger(a, b), smaller(a, b)) == (max(a, b), min(a, b))


def test_they_work_element_by_element_for_arrays():
    array = np.array([1.0, 5.0])
    assert larger(array, 3.0).tolist() == [3.0, 5.0]
    assert smaller(array, 3.0).tolist() == [1.0, 3.0]


def test_the_logarithm_never_goes_below_zero():
    assert log2(8.0) == 3.0
    assert log2(1) == 0.0
    assert log2(0.0) == 0.0
    assert log2(np.array([0.0, 8.0])).tolist() == [0.0, 3.0]
    assert math.isclose(log2(10.0), 3.321928, rel_tol=1e-6)
