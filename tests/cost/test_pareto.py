import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from advisor.cost.pareto import pareto_front

AMOUNTS = st.integers(min_value=1, max_value=6).map(float)


@given(st.lists(st.tuples(AMOUNTS, AMOUNTS), min_size=1, max_size=12))
def test_the_front_is_what_no_other_beats(points: list[tuple[float, float]]) -> None:
    cost, time = (np.array(values) for values in zip(*points, strict=True))

    def beaten(one: tuple[float, float]) -> bool:
        return any(other != one and other[0] <= one[0] and other[1] <= one[1] for other in points)

    assert pareto_front(cost, time).tolist() == [not beaten(point) for point in points]
