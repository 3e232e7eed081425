import numpy as np
import pytest

from advisor.records.scale import Plan
from advisor.scale.collectives import all_gather_s, send_s
from advisor.scale.links import fabric_of, inner_fabric, inside_link, outer_fabric
from tests.predict.toys import device


def test_gpus_talk_by_nvlink_where_it_reaches_all_else_through_the_host() -> None:
    link = inside_link([device(nvlink_bytes_per_s=2.4e11), device(host_to_device_bytes_per_s=1.2e10)])
    assert np.ravel(link.bytes_per_s).tolist() == [2.4e11, 1.2e10]
    assert np.ravel(link.latency_s).tolist() == [3.4e-6, 5.7e-6]


def test_where_every_pair_has_a_link_all_of_them_carry_their_part() -> None:
    # 7 others at 48 GB/s each are 336 GB/s: an all-gather of 8 GB takes 8.4 us, 7 steps of 3.4 us and 7 GB / 336 GB/s.
    eight = [device(gpu_count=8, peer_link_bytes_per_s=48e9)]
    fabric = fabric_of(eight, Plan(data=8))
    assert all_gather_s(8e9, fabric).item() == pytest.approx(8.4e-6 + 7 * 3.4e-6 + 7 / 336)
    # Two of them have one link: 1 GB / 48 GB/s.
    pair = inner_fabric(fabric, ways=2)
    assert all_gather_s(2e9, pair).item() == pytest.approx(8.4e-6 + 3.4e-6 + 1 / 48)
    assert send_s(1e9, fabric).item() == pytest.approx(8.4e-6 + 3.4e-6 + 1 / 48)


def test_groups_share_the_network_of_a_machine() -> None:
    fabric = fabric_of([device(nvlink_bytes_per_s=2e11, network_bytes_per_s=5e10)], Plan(machines=2, tensor=4, data=4))
    outer = outer_fabric(fabric, ways=4)
    assert (outer.gpu_count, outer.machines) == (2, 2)
    assert outer.between is not None
    assert np.ravel(outer.between.bytes_per_s).tolist() == [1.25e10]


def test_a_link_of_which_nothing_is_known_is_no_number() -> None:
    assert np.isnan(inside_link([device(host_to_device_bytes_per_s=None)]).bytes_per_s).all()


def test_the_fabric_is_that_of_the_plan() -> None:
    fabric = fabric_of([device(network_bytes_per_s=5e10)], Plan(machines=2, data=8))
    assert (fabric.gpu_count, fabric.machines) == (4, 2)
    assert fabric.between is not None
    assert np.ravel(fabric.between.bytes_per_s).tolist() == [5e10]
    assert fabric_of([device()], Plan(data=4)).between is None
