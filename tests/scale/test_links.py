import numpy as np

from advisor.records.scale import Plan
from advisor.scale.links import fabric_of, inside_link
from tests.predict.toys import device


def test_gpus_talk_by_nvlink_where_it_reaches_all_else_through_the_host() -> None:
    link = inside_link([device(nvlink_bytes_per_s=2.4e11), device(host_to_device_bytes_per_s=1.2e10)])
    assert np.ravel(link.bytes_per_s).tolist() == [2.4e11, 1.2e10]
    assert np.ravel(link.latency_s).tolist() == [3.4e-6, 5.7e-6]


def test_a_link_of_which_nothing_is_known_is_no_number() -> None:
    assert np.isnan(inside_link([device(host_to_device_bytes_per_s=None)]).bytes_per_s).all()


def test_the_fabric_is_that_of_the_plan() -> None:
    fabric = fabric_of([device(network_bytes_per_s=5e10)], Plan(machines=2, data=8))
    assert (fabric.gpu_count, fabric.machines) == (4, 2)
    assert fabric.between is not None
    assert np.ravel(fabric.between.bytes_per_s).tolist() == [5e10]
    assert fabric_of([device()], Plan(data=4)).between is None
