"""Numbers for sizes that depend on data, which fake tensors do not have."""

from typing import Any

import torch

_TRUE_RATIO = 0.5
"""Share of a mask that is taken to be true: nothing is known, and a half is off by the least factor on either side."""


class AssumedSizes:
    """Turns sizes into numbers. A plain size is itself; one that only the data would tell is assumed and noted."""

    def __init__(self) -> None:
        self._assumed: dict[Any, int] = {}

    def __call__(self, size: Any) -> int:
        """The number for `size`, an int or a symbol of torch's."""
        if isinstance(size, int):
            return size
        expression = size.node.expr
        for symbol in sorted(expression.free_symbols, key=str):
            if symbol not in self._assumed:
                self._assumed[symbol] = self._assume(size.node.shape_env, symbol)
        return max(0, int(expression.subs(self._assumed)))

    def _assume(self, shape_env: Any, symbol: Any) -> int:
        """Half of the most that it can be: a mask of n elements selects n / 2 of them."""
        upper = shape_env.bound_sympy(symbol).upper
        most = int(upper) if upper.is_Integer and upper < torch.iinfo(torch.int32).max else 0
        return int(most * _TRUE_RATIO)

    def notes(self) -> tuple[str, ...]:
        """What was assumed, in words."""
        sizes = sorted(size for size in self._assumed.values() if size > 0)
        if not sizes:
            return ()
        shown = ", ".join(str(size) for size in sizes[:6]) + (", ..." if len(sizes) > 6 else "")
        return (
            f"{len(sizes)} sizes depend on data: assumed {shown} (half of the most they can be, "
            f"{_TRUE_RATIO:.0%} of a mask true)",
        )
