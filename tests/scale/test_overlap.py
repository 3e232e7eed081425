import numpy as np
import pytest

from advisor.scale.parallel_step import exposed_of_buckets_s, exposed_of_units_s


def seconds(*values: float) -> np.ndarray:
    return np.array(values)


def test_where_the_link_keeps_up_the_last_bucket_is_left_over() -> None:
    # Backward takes 10 s, buckets of 0.5 s come every second: the last is sent from 10 to 10.5.
    exposed_s = exposed_of_buckets_s(seconds(10.0), seconds(0.5), seconds(0.5), bucket_count=10)
    assert exposed_s.tolist() == [0.5]


def test_where_it_does_not_the_link_works_from_the_first_bucket_on() -> None:
    # Backward takes 10 s, ten buckets take 2 s each: from 1 to 21.
    exposed_s = exposed_of_buckets_s(seconds(10.0), seconds(2.0), seconds(2.0), bucket_count=10)
    assert exposed_s.tolist() == [11.0]


def test_a_large_last_bucket_waits_for_the_end_of_backward() -> None:
    # The last takes 3 s after 10; the link is free long before.
    exposed_s = exposed_of_buckets_s(seconds(10.0), seconds(0.1), seconds(3.0), bucket_count=10)
    assert exposed_s.tolist() == [3.0]


def test_a_single_bucket_hides_behind_nothing() -> None:
    assert exposed_of_buckets_s(seconds(10.0), seconds(2.0), seconds(2.0), bucket_count=1).tolist() == [2.0]


def test_of_units_that_travel_in_time_the_first_is_waited_for() -> None:
    # 10 s of computing, 5 units that take 1 s each: 1 s before, the others behind.
    assert exposed_of_units_s(seconds(10.0), seconds(5.0), unit_count=5).tolist() == [1.0]


def test_of_units_that_are_late_all_is_waited_for_but_what_is_computed() -> None:
    # 10 s of computing, 5 units of 4 s each: 20 s in all, of which 10 are computed meanwhile.
    assert exposed_of_units_s(seconds(10.0), seconds(20.0), unit_count=5).tolist() == pytest.approx([10.0])
