from dataclasses import fields

import numpy as np

from advisor.predict.kernel_time import Kernels
from advisor.predict.lowering import StepKernels
from tests.predict.toys import linear_row, workload

TOY = workload(linear_row(count=3))


def at(step_kernels: StepKernels, *batches: int) -> Kernels:
    return step_kernels.at(np.array(batches, dtype=np.intp), kind="gpu", precision="fp32")


def test_kernels_at_some_of_the_batches_are_those_that_were_lowered_at_these_alone() -> None:
    shared = StepKernels(TOY, compile_mode="eager")
    at(shared, 1, 2, 4)
    part, alone = at(shared, 1, 4), at(StepKernels(TOY, compile_mode="eager"), 1, 4)
    for field in fields(Kernels):
        assert np.array_equal(getattr(part, field.name), getattr(alone, field.name)), field.name


def test_batches_that_were_not_counted_yet_are_counted() -> None:
    shared = StepKernels(TOY, compile_mode="eager")
    at(shared, 1, 2)
    kernels = at(shared, 2, 8)
    # 2 FLOP x 8 in x 16 out = 256 for each sample; the row is called three times.
    assert (kernels.calls @ kernels.flops).tolist() == [3 * 2 * 256, 3 * 8 * 256]
