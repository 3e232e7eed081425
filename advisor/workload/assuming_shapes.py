"""A ShapeEnv that answers branches on data-dependent sizes, such as `if tokens.numel() == 0`, from what is assumed."""

from typing import Any

from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv

from advisor.workload.assumed_sizes import AssumedSizes


class AssumingShapeEnv(ShapeEnv):
    """Lets sizes and scalars that only data would tell through as symbols. `sizes` are those of the step being traced;
    a branch on anything else that is not known, a loss say, is torch's own error."""

    def __init__(self) -> None:
        super().__init__(allow_dynamic_output_shape_ops=True, allow_scalar_outputs=True)
        self.sizes = AssumedSizes()

    def evaluate_expr(self, orig_expr: Any, *args: Any, **kwargs: Any) -> Any:
        """What `orig_expr` is, with numbers in the place of the sizes assumed."""
        try:
            return super().evaluate_expr(orig_expr, *args, **kwargs)
        except GuardOnDataDependentSymNode:
            number = self.sizes.value_of(orig_expr)
            if number is None:
                raise
            return number
