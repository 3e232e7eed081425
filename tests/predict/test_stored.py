from advisor.predict.stored import added, all_gradients, gathered, scaled
from advisor.records.workload import StoredBytes
from tests.scale.toys import workload

PART = StoredBytes(low=(2.0, 4.0), full=(6.0, 0.0), other=(0.0, 8.0))


def test_a_share_is_of_every_kind_of_memory() -> None:
    assert scaled(PART, 0.5) == StoredBytes(low=(1.0, 2.0), full=(3.0, 0.0), other=(0.0, 4.0))


def test_a_sum_is_of_each_kind_by_itself() -> None:
    # 2 + 1 and 4 + 1; the rest as it was.
    assert added([PART, StoredBytes(low=(1.0, 1.0))]) == StoredBytes(low=(3.0, 5.0), full=(6.0, 0.0), other=(0.0, 8.0))
    assert added([]) == StoredBytes()


def test_gradients_are_as_large_as_the_parameters_that_the_optimizer_writes() -> None:
    # 120 parameters of 4 bytes.
    assert all_gradients(workload()) == StoredBytes(full=(480.0, 0.0))


def test_fsdp_gathers_what_lies_outside_of_blocks_and_two_of_them() -> None:
    # 480 - 400 outside, and 2 x 100.
    assert gathered(workload()) == StoredBytes(full=(280.0, 0.0))
