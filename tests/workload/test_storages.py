import torch

from advisor.workload.storages import CELL, Storages


def storages():
    return Storages(size_of=int)


def live(tracked, category, storing="full"):
    return tracked.live_bytes[CELL[category, storing]]


def test_a_storage_counts_once_however_many_tensors_view_it():
    tracked = storages()
    tensor = torch.zeros(10)
    first = tracked.of(tensor, "activations")
    assert tracked.of(tensor[2:], "temporaries") is first
    assert live(tracked, "activations") == 40
    assert sum(tracked.live_bytes) == 40


def test_a_storage_counts_until_its_last_tensor_is_gone():
    tracked = storages()
    tensor = torch.zeros(10)
    tracked.of(tensor, "activations")
    view = tensor[:1]
    del tensor
    assert live(tracked, "activations") == 40
    del view
    assert sum(tracked.live_bytes) == 0


def test_other_dtypes_are_kept_apart_from_floats():
    tracked = storages()
    ids, halves = torch.zeros(10, dtype=torch.int64), torch.zeros(10, dtype=torch.float16)
    tracked.of(ids, "activations")
    tracked.of(halves, "activations")
    assert live(tracked, "activations", "other") == 80 + 20


def test_low_moves_a_float_and_nothing_else():
    tracked = storages()
    floats, ids = torch.zeros(10), torch.zeros(10, dtype=torch.int64)
    tracked.mark_low(tracked.of(floats, "activations"), dtype=floats.dtype)
    tracked.mark_low(tracked.of(ids, "activations"), dtype=ids.dtype)
    assert (live(tracked, "activations", "low"), live(tracked, "activations", "full")) == (40, 0)
    assert live(tracked, "activations", "other") == 80


def test_a_gradient_moves_and_is_kept_in_full():
    tracked = storages()
    gradient = torch.zeros(10)
    tracked.mark_low(tracked.of(gradient, "temporaries"), dtype=gradient.dtype)
    tracked.move(gradient, "gradients")
    assert live(tracked, "gradients") == 40
    assert sum(tracked.live_bytes) == 40


def test_what_is_left_out_counts_no_more_and_says_what_it_counted():
    tracked = storages()
    state = torch.zeros(10)
    tracked.of(state, "temporaries")
    assert tracked.leave_out(state) == 40
    assert sum(tracked.live_bytes) == 0
    assert tracked.leave_out(state) == 0
    del state
    assert sum(tracked.live_bytes) == 0


def test_what_is_left_out_at_first_sight_never_counts():
    tracked = storages()
    state = torch.zeros(10)
    tracked.leave_out(state)
    tracked.of(state, "activations")
    assert sum(tracked.live_bytes) == 0


def test_an_address_that_is_used_again_is_another_storage():
    tracked = storages()
    serials = set()
    for _ in range(20):
        serials.add(tracked.of(torch.zeros(10), "activations").serial)
    assert len(serials) == 20
    assert sum(tracked.live_bytes) == 0
