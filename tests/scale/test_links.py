import numpy as np
import pytest

from advisor.records.scale import Plan
from advisor.scale.collectives import all_gather_s, all_to_all_s, send_s
from advisor.scale.links import fabric_of, inner_fabric, inside_link, outer_fabric, stage_links
from tests.predict.toys import device


def test_gpus_talk_by_nvlink_where_it_reaches_all_else_through_the_host() -> None:
    link = inside_link([device(nvlink_bytes_per_s=2.4e11), device(host_to_device_bytes_per_s=1.2e10)], ways=4)
    assert np.ravel(link.bytes_per_s).tolist() == [2.4e11, 1.2e10]
    assert np.ravel(link.shared_bytes_per_s).tolist() == [np.inf, 2.4e10]
    assert np.ravel(link.step_s[2]).tolist() == [3.4e-6, 5.7e-6]
    assert np.ravel(link.step_s[1]).tolist() == [1.9e-6, np.inf]


def test_a_bridge_links_two_and_spares_the_host_among_more() -> None:
    card = device(gpu_count=4, bridge_bytes_per_s=2.4e11, host_to_device_bytes_per_s=2.5e10)
    fabric = fabric_of([card], Plan(tensor=4))
    assert fabric.inside.bytes_per_s.item() == 2.5e10
    # Two pairs: as many transfers through the host as its two links carry, twice.
    assert fabric.inside.shared_bytes_per_s.item() == 1e11
    pair = inner_fabric(fabric, ways=2).inside
    assert (pair.bytes_per_s.item(), pair.shared_bytes_per_s.item()) == (2.4e11, np.inf)


def test_groups_side_by_side_share_the_host_and_larger_ones_take_whole_machines() -> None:
    fabric = fabric_of([device(gpu_count=8, network_bytes_per_s=5e10)], Plan(machines=2, tensor=16))
    assert inner_fabric(fabric, ways=4).inside.shared_bytes_per_s.item() == fabric.inside.shared_bytes_per_s.item() / 2
    assert outer_fabric(fabric, ways=4).inside.shared_bytes_per_s.item() == fabric.inside.shared_bytes_per_s.item() / 4
    both = inner_fabric(fabric, ways=16)
    assert (both.gpu_count, both.machines) == (8, 2)


def test_where_every_pair_has_a_link_all_of_them_carry_their_part() -> None:
    # 7 others at 48 GB/s each are 336 GB/s: an all-gather of 8 GB takes 8.4 us, 7 steps of 3.4 us and 7 GB / 336 GB/s,
    # and 0.94 GB of its own.
    eight = [device(gpu_count=8, peer_link_bytes_per_s=48e9)]
    fabric = fabric_of(eight, Plan(data=8))
    assert all_gather_s(8e9, fabric).item() == pytest.approx(8.4e-6 + 7 * 3.4e-6 + 7.94 / 336)
    # Two of them have one link: 1.94 GB / 48 GB/s.
    pair = inner_fabric(fabric, ways=2)
    assert all_gather_s(2e9, pair).item() == pytest.approx(8.4e-6 + 3.4e-6 + 1.94 / 48)
    assert send_s(1e9, fabric.inside).item() == pytest.approx(8.4e-6 + 3.4e-6 + 1 / 48)


def test_groups_share_the_network_of_a_machine() -> None:
    fabric = fabric_of([device(nvlink_bytes_per_s=2e11, network_bytes_per_s=5e10)], Plan(machines=2, tensor=4, data=4))
    outer = outer_fabric(fabric, ways=4)
    assert (outer.gpu_count, outer.machines) == (2, 2)
    assert outer.between is not None
    assert np.ravel(outer.between.bytes_per_s).tolist() == [1.25e10]


def test_one_gpu_of_each_machine_exchanges_over_the_network_alone() -> None:
    fabric = fabric_of([device(nvlink_bytes_per_s=2e11, network_bytes_per_s=5e10)], Plan(machines=2, tensor=4, data=2))
    outer = outer_fabric(fabric, ways=4)
    assert (outer.gpu_count, outer.machines) == (1, 2)
    assert np.isfinite(all_to_all_s(np.array([[1e6]]), outer)).all()


def test_copies_larger_than_a_machine_are_linked_by_the_network() -> None:
    plan = Plan(machines=4, tensor=8, data=2)  # four GPUs a machine: each copy takes two machines
    fabric = fabric_of([device(nvlink_bytes_per_s=2e11, network_bytes_per_s=5e10)], plan)
    outer = outer_fabric(fabric, ways=8)
    assert (outer.gpu_count, outer.machines) == (1, 2)


def test_a_link_of_which_nothing_is_known_is_no_number() -> None:
    assert np.isnan(inside_link([device(host_to_device_bytes_per_s=None)], ways=2).bytes_per_s).all()


def test_the_fabric_is_that_of_the_plan() -> None:
    fabric = fabric_of([device(network_bytes_per_s=5e10)], Plan(machines=2, data=8))
    assert (fabric.gpu_count, fabric.machines) == (4, 2)
    assert fabric.between is not None
    assert np.ravel(fabric.between.bytes_per_s).tolist() == [5e10]
    assert fabric_of([device()], Plan(data=4)).between is None


@pytest.mark.parametrize(
    ("plan", "sends"),
    [
        (Plan(machines=2, tensor=8), []),  # no stages, whatever the group spans
        (Plan(machines=4, tensor=8, pipeline=2), [("network", 1)]),
        (Plan(machines=2, tensor=2, pipeline=4), [("network", 1), ("inside", 2)]),
        (Plan(tensor=2, pipeline=2), [("inside", 1)]),
    ],
)
def test_a_pass_crosses_each_border_between_stages_once(plan: Plan, sends: list[tuple[str, int]]) -> None:
    links = fabric_of([device(nvlink_bytes_per_s=2e11, network_bytes_per_s=5e10)], plan)
    found = [("network" if link is links.between else "inside", count) for link, count in stage_links(links, plan)]
    assert found == sends
