"""Decides branches on data-dependent sizes, such as `if tokens.numel() == 0`, from the assumed sizes."""

from typing import Any

from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv

from advisor.workload.assumed_sizes import AssumedSizes


class AssumingShapeEnv(ShapeEnv):
    """A ShapeEnv in which data-dependent sizes and scalars are symbols, and branches on sizes use the assumed numbers.

    `sizes` belongs to the step being traced. A branch on any other unknown value, such as a loss, raises torch's error.
    """

    def __init__(self) -> None:
        super().__init__(allow_dynamic_output_shape_ops=True, allow_scalar_outputs=True)
        self.sizes = AssumedSizes()

    def evaluate_expr(self, orig_expr: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the value of `orig_expr`, with assumed numbers for data-dependent sizes."""
        try:
            return super().evaluate_expr(orig_expr, *args, **kwargs)
        except GuardOnDataDependentSymNode:
            number = self.sizes.value_of(orig_expr)
            if number is None:
                raise
            return number
