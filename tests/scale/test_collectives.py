import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.records.scale import Fabric
from advisor.scale.collectives import (
    CALL_S,
    all_gather_s,
    all_reduce_s,
    hierarchical_all_reduce_s,
    ring_all_reduce_s,
    send_s,
    tree_all_reduce_s,
)
from tests.scale.toys import fabric

GPUS = st.sampled_from([1, 2, 4, 8])
MACHINES = st.sampled_from([1, 2, 4, 64])
SIZES = st.floats(min_value=1.0, max_value=1e12)
RATES = st.floats(min_value=0.1, max_value=1e4)


def test_a_ring_of_four_passes_three_quarters_twice() -> None:
    # 6 steps of 1 us; 2 x 3/4 x 1 GB at 100 GB/s = 15 ms.
    assert ring_all_reduce_s(1e9, fabric(gpus=4)) == pytest.approx(CALL_S + 6e-6 + 15e-3)


def test_a_tree_of_four_in_one_machine_is_a_chain_of_three_up_and_down() -> None:
    # 2 x 3 steps of 1 us; 2 x 1 GB at 100 GB/s = 20 ms.
    assert tree_all_reduce_s(1e9, fabric(gpus=4)) == pytest.approx(CALL_S + 6e-6 + 20e-3)


def test_a_ring_over_two_machines_is_as_fast_as_their_network() -> None:
    # 7 steps around 8 GPUs, 1 of them over the network: 6 us + 10 us, twice; 2 x 7/8 x 1 GB at 50 GB/s = 35 ms.
    assert ring_all_reduce_s(1e9, fabric(gpus=4, machines=2)) == pytest.approx(CALL_S + 32e-6 + 35e-3)


def test_a_tree_over_eight_machines_has_three_levels() -> None:
    # 2 x (3 x 1 us + 3 x 10 us); 2 x 1 GB at 50 GB/s = 40 ms.
    assert tree_all_reduce_s(1e9, fabric(gpus=4, machines=8)) == pytest.approx(CALL_S + 66e-6 + 40e-3)


def test_a_hierarchy_sends_each_byte_over_the_network_once_for_all_gpus_of_a_machine() -> None:
    # Inside, twice: 3 us and 3/4 GB at 100 GB/s = 7.5 ms. Between 2: 2 x 10 us and 2 x 1/2 x 1 GB at 50 GB/s = 20 ms.
    expected_s = 2 * (CALL_S + 3e-6 + 7.5e-3) + CALL_S + 20e-6 + 20e-3
    assert hierarchical_all_reduce_s(1e9, fabric(gpus=4, machines=2)) == pytest.approx(expected_s)


def test_few_bytes_over_many_machines_go_by_a_tree_and_many_by_a_ring() -> None:
    links = fabric(gpus=8, machines=64)
    assert all_reduce_s(1e3, links) == tree_all_reduce_s(1e3, links)
    assert all_reduce_s(1e11, links) == ring_all_reduce_s(1e11, links)


def test_gathering_takes_half_of_an_all_reduce() -> None:
    # 3 steps of 1 us; 3/4 x 1 GB at 100 GB/s = 7.5 ms.
    assert all_gather_s(1e9, fabric(gpus=4)) == pytest.approx(CALL_S + 3e-6 + 7.5e-3)


def test_sending_is_one_step() -> None:
    assert send_s(1e9, fabric(gpus=4)) == pytest.approx(CALL_S + 1e-6 + 10e-3)


@pytest.mark.parametrize("collective", [all_reduce_s, all_gather_s])
def test_one_gpu_tells_itself_nothing(collective: object) -> None:
    assert callable(collective)
    assert collective(np.array([1e9, 1e3]), fabric(gpus=1)).tolist() == [0.0, 0.0]


@given(SIZES, GPUS, MACHINES, RATES, RATES)
def test_doubling_a_link_never_slows(size: float, gpus: int, machines: int, inside: float, network: float) -> None:
    def time_s(inside_ratio: float, network_ratio: float) -> float:
        links = fabric(
            gpus=gpus, gb_per_s=inside_ratio * inside, machines=machines, network_gb_per_s=network_ratio * network
        )
        return float(all_reduce_s(size, links)) + float(all_gather_s(size, links))

    assert time_s(2.0, 1.0) <= time_s(1.0, 1.0)
    assert time_s(1.0, 2.0) <= time_s(1.0, 1.0)


@given(SIZES, SIZES, GPUS, MACHINES)
def test_more_bytes_never_take_less(size: float, more: float, gpus: int, machines: int) -> None:
    links: Fabric = fabric(gpus=gpus, machines=machines)
    assert all_reduce_s(size + more, links) >= all_reduce_s(size, links)
