"""Lowers a workload to kernels on demand, and keeps them by kind of device, precision and batch size."""

from collections.abc import Mapping

import numpy as np

from advisor.predict.lowering import Kernels, RowCounts, count_rows, lower
from advisor.predict.precision import Width, width_of
from advisor.records.device import CompileMode, DeviceKind, Precision
from advisor.records.prediction import IndexArray
from advisor.records.workload import Workload

_IN_FP16: Mapping[Precision, Precision] = {"amp-bf16": "amp-fp16", "bf16": "fp16"}
"""The fp16 precision with the same kernels as a bf16 one; they differ only in the compute unit."""


class StepKernels:
    """A cache of lowered kernels.

    The rows are counted for the first batch sizes requested, and counted again if a later request has others.
    """

    def __init__(self, workload: Workload, *, compile_mode: CompileMode) -> None:
        self.workload, self.compile_mode = workload, compile_mode
        self._batches: IndexArray = np.array([], dtype=np.intp)
        self._counts: dict[Width, RowCounts] = {}
        self._kernels: dict[tuple[DeviceKind, Precision], Kernels] = {}

    def at(self, batches: IndexArray, *, kind: DeviceKind, precision: Precision) -> Kernels:
        """Return the kernels at these batch sizes."""
        if not set(batches.tolist()).issubset(self._batches.tolist()):
            self._batches = np.unique(batches)
            self._counts, self._kernels = {}, {}
        kernels = self._lowered(kind, precision)
        is_all = np.array_equal(batches, self._batches)
        return kernels if is_all else kernels.at(np.searchsorted(self._batches, batches))

    def _lowered(self, kind: DeviceKind, precision: Precision) -> Kernels:
        """Return the kernels at all counted batch sizes."""
        key = (kind, precision)
        if key not in self._kernels:
            in_fp16 = _IN_FP16.get(precision)
            self._kernels[key] = (
                lower(self._counted(width_of(precision)), kind=kind, precision=precision)
                if in_fp16 is None
                else self._lowered(kind, in_fp16).in_bf16()
            )
        return self._kernels[key]

    def _counted(self, width: Width) -> RowCounts:
        if width not in self._counts:
            self._counts[width] = count_rows(
                self.workload, batches=self._batches.astype(np.float64), width=width, compile_mode=self.compile_mode
            )
        return self._counts[width]
