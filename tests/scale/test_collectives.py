from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.records.scale import Fabric, Link
from advisor.scale.collectives import (
    SIMPLE,
    SWITCH_RATIO,
    all_gather_s,
    all_reduce_s,
    all_to_all_s,
    expert_exchange_s,
    hierarchical_all_reduce_s,
    ring_all_reduce_s,
    send_s,
    switch_all_reduce_s,
    tensor_all_reduce_s,
    tree_all_reduce_s,
)
from tests.scale.toys import KERNELS, fabric, simple_link

CALL_S = SIMPLE.call_s
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


def test_few_bytes_go_by_the_protocol_with_the_shortest_steps_and_many_by_the_one_with_all_the_bandwidth() -> None:
    links = Fabric(gpu_count=8, inside=Link(step_s=(0.6e-6, 1.9e-6, 3.4e-6), bytes_per_s=240e9))
    # LL: 6.6 us, 14 steps of 0.6 us, 1.75 x 64 KiB at 0.38 x 240 GB/s.
    assert float(all_reduce_s(2**16, links)) == pytest.approx(6.6e-6 + 8.4e-6 + 1.75 * 2**16 / 91.2e9)
    # LL128: 14 us, 14 steps of 1.9 us, 1.75 x 4 MiB at 0.92 x 240 GB/s.
    assert float(all_reduce_s(2**22, links)) == pytest.approx(14e-6 + 26.6e-6 + 1.75 * 2**22 / 220.8e9)
    # Simple: 8.4 us, 14 steps of 3.4 us.
    assert float(all_reduce_s(2**30, links)) == pytest.approx(8.4e-6 + 47.6e-6 + 1.75 * 2**30 / 240e9)


def test_a_gpu_also_copies_its_own_part() -> None:
    # 1 step of the other's half and 0.94 of its own: 1.94 / 2 x 1 GB at 100 GB/s.
    links = fabric(gpus=2)
    links = replace(links, inside=replace(links.inside, own_part_ratio=0.94))
    assert all_gather_s(1e9, links) == pytest.approx(CALL_S + 1e-6 + 9.7e-3)


def test_a_switch_adds_what_three_or_more_gpus_send_once() -> None:
    link = replace(simple_link(1e-6, 100.0), switch_bytes_per_s=200e9)
    four = Fabric(gpu_count=4, inside=link)
    assert switch_all_reduce_s(1e9, four) == pytest.approx(25e-6 + 1e9 / (200e9 * SWITCH_RATIO))
    assert all_reduce_s(1e9, four) == switch_all_reduce_s(1e9, four)
    two = Fabric(gpu_count=2, inside=link)
    assert all_reduce_s(1e9, two) == ring_all_reduce_s(1e9, two)
    assert np.isinf(switch_all_reduce_s(1e9, fabric(gpus=4)))


def test_gpus_without_links_to_each_other_share_the_host() -> None:
    # Two links of 20 GB/s for eight GPUs: 5 GB/s each. 7/8 x 1 GB.
    link = replace(simple_link(1e-6, 20.0), shared_bytes_per_s=40e9)
    assert all_gather_s(1e9, Fabric(gpu_count=8, inside=link)) == pytest.approx(CALL_S + 7e-6 + 0.175)
    assert all_gather_s(1e9, Fabric(gpu_count=2, inside=link)) == pytest.approx(CALL_S + 1e-6 + 0.025)


def test_all_to_all_sends_every_gpu_its_part() -> None:
    # 3/4 x 1 GB at 100 GB/s. Two machines of 4: each sends 4 x 4/8 x 1 GB at 50 GB/s.
    assert all_to_all_s(1e9, fabric(gpus=4)) == pytest.approx(CALL_S + 1e-6 + 7.5e-3)
    assert all_to_all_s(1e9, fabric(gpus=4, machines=2)) == pytest.approx(CALL_S + 10e-6 + 40e-3)


def test_sending_is_one_step() -> None:
    assert send_s(1e9, simple_link(1e-6, 100.0)) == pytest.approx(CALL_S + 1e-6 + 10e-3)


@pytest.mark.parametrize("collective", [all_reduce_s, all_gather_s, all_to_all_s])
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


def all_reduce_us(size_bytes: float, ways: int, link: Link) -> float:
    fabric = Fabric(gpu_count=ways, inside=link)
    return 1e6 * float(tensor_all_reduce_s(size_bytes, fabric, kernels=KERNELS, waiting_s=0.0))


def test_small_messages_go_in_one_shot_larger_ones_in_two_and_the_largest_around_the_ring() -> None:
    link = simple_link(3.4e-6, 100.0)
    # 7 x 1 kB at 100 GB/s; 2 x 2 us and 2 x 7/8 x 1 MB; 100 MB as NCCL does.
    assert all_reduce_us(1e3, 8, link) == pytest.approx(2 + 0.07)
    assert all_reduce_us(1e6, 8, link) == pytest.approx(4 + 17.5)
    assert all_reduce_us(1e8, 8, link) == pytest.approx(8.4 + 14 * 3.4 + 1750)


def test_a_switch_adds_for_an_engine_too() -> None:
    # 10 us and 4 MB at half of 400 GB/s; above 64 MB NCCL: 25 us and 100 MB at 0.71 of 400 GB/s.
    link = replace(simple_link(3.4e-6, 100.0), switch_bytes_per_s=400e9)
    assert all_reduce_us(4e6, 4, link) == pytest.approx(10 + 20)
    assert all_reduce_us(1e8, 4, link) == pytest.approx(25 + 1e8 / (400e9 * SWITCH_RATIO) * 1e6)


def test_an_engines_kernels_are_not_for_three_gpus_nor_for_four_on_pcie() -> None:
    link = simple_link(1e-6, 100.0)
    pcie = replace(link, shared_bytes_per_s=2e11)
    # NCCL: 8.4 us and 4 or 6 steps of 1 us.
    assert all_reduce_us(1.0, 3, link) == pytest.approx(8.4 + 4, rel=1e-3)
    assert all_reduce_us(1.0, 4, pcie) == pytest.approx(8.4 + 6, rel=1e-3)
    assert all_reduce_us(1.0, 2, pcie) == pytest.approx(2, rel=1e-3)


def test_a_token_goes_once_to_a_machine_however_many_experts_it_has_there() -> None:
    # 8 choices among 16 GPUs on 2 machines reach 16 (1 - (15/16)^8) GPUs and 2 (1 - 1/2^8) machines, of which half are
    # others: 8 GPUs send 0.996 MB each at 50 GB/s.
    seconds = expert_exchange_s(1e6, fabric(gpus=8, machines=2), chosen=8)
    assert float(seconds) == pytest.approx(8.4e-6 + 10e-6 + 8 * 0.99609375e6 / 50e9)
