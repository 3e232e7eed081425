"""Costs of dense linear algebra: the leading terms of the textbook's operation counts.

Golub and Van Loan, "Matrix Computations", 4th edition: LU 2n^3/3 (3.2), Cholesky n^3/3 (4.2), Householder QR
2n^2(m - n/3) (5.2), symmetric eigenvalues 4n^3/3 and 9n^3 with vectors (8.3), eigenvalues 10n^3 and 25n^3 with vectors
(7.5), SVD 4mn^2 - 4n^3/3 for values and 14mn^2 + 8n^3 with thin U and V (8.6).
"""

import math
from collections.abc import Callable

from advisor.ops.arithmetic import larger, smaller
from advisor.ops.registry import Call, Cost, Number, aten, formula


def _register(names: str, *, flops: Callable[[Number, Number], Number]) -> None:
    """Register `names`, with `flops(m, n)` for one matrix with longer side m and shorter side n."""

    @formula(*aten(names), family="linalg", autocast="full")
    def _factorisation(call: Call) -> Cost:
        *samples, rows, columns = call.inputs[0].shape
        per_matrix = flops(larger(rows, columns), smaller(rows, columns))
        return call.streamed(flops=math.prod(samples) * per_matrix)


_register("cholesky linalg_cholesky linalg_cholesky_ex", flops=lambda _, n: n**3 / 3)
_register("cholesky_inverse linalg_inv_ex linalg_inv inverse", flops=lambda _, n: 2 * n**3)
_register("linalg_lu_factor linalg_lu_factor_ex linalg_lu _linalg_det _linalg_slogdet linalg_ldl_factor_ex",
          flops=lambda _, n: 2 * n**3 / 3)  # fmt: skip
_register("linalg_qr geqrf", flops=lambda m, n: 2 * n**2 * (m - n / 3))
_register("linalg_householder_product orgqr", flops=lambda m, n: 2 * n**2 * (m - n / 3))
_register("_linalg_eigh linalg_eigh", flops=lambda _, n: 9 * n**3)
_register("linalg_eigvalsh", flops=lambda _, n: 4 * n**3 / 3)
_register("linalg_eig", flops=lambda _, n: 25 * n**3)
_register("linalg_eigvals", flops=lambda _, n: 10 * n**3)
_register("_linalg_svd linalg_svd svd linalg_pinv", flops=lambda m, n: 14 * m * n**2 + 8 * n**3)
_register("linalg_svdvals", flops=lambda m, n: 4 * m * n**2 - 4 * n**3 / 3)
_register("linalg_lstsq", flops=lambda m, n: 2 * n**2 * (m - n / 3))


@formula(*aten("linalg_matrix_exp"), family="linalg", autocast="full")
def _matrix_exp(call: Call) -> Cost:
    """Taylor polynomial of degree 18 in 5 products, no squaring (Bader, Blanes and Casas 2019)."""
    *samples, n, _ = call.inputs[0].shape
    return call.streamed(flops=math.prod(samples) * 5 * 2 * n**3)


@formula(*aten("linalg_solve_triangular triangular_solve"), family="linalg", autocast="full")
def _triangular_solve(call: Call) -> Cost:
    """n^2 FLOP per right-hand side: n per element of the solution."""
    triangular = call.inputs[0] if call.op == "aten.linalg_solve_triangular" else call.inputs[1]
    return call.streamed(flops=call.outputs[0].numel * triangular.shape[-1])


@formula(*aten("ormqr"), family="linalg", autocast="full")
def _apply_reflectors(call: Call) -> Cost:
    """Inputs (reflectors, scales (..., k), other): a reflector costs 4 FLOP per element of `other` (5.1.4)."""
    return call.streamed(flops=4 * call.outputs[0].numel * call.inputs[1].shape[-1])


@formula(*aten("cholesky_solve linalg_lu_solve lu_solve linalg_ldl_solve"), family="linalg", autocast="full")
def _factored_solve(call: Call) -> Cost:
    """Two triangular systems: 2n FLOP per element of the solution, which has n rows."""
    solution = call.outputs[0]
    return call.streamed(flops=2 * solution.numel * solution.shape[-2])


@formula(*aten("_linalg_solve_ex linalg_solve_ex linalg_solve"), family="linalg", autocast="full")
def _solve(call: Call) -> Cost:
    """LU (2n^3/3) of the matrix, then two triangular systems."""
    *samples, n, _ = call.inputs[0].shape
    factor_flops = math.prod(samples) * 2 * n**3 / 3
    return call.streamed(flops=factor_flops + 2 * call.outputs[0].numel * n)
