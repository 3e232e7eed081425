"""Costs of dense linear algebra: the leading terms of the textbook's operation counts.

Golub and Van Loan, "Matrix Computations", 4th edition: LU 2n^3/3 (3.2), Cholesky n^3/3 (4.2), Householder QR
2n^2(m - n/3) (5.2), symmetric eigenvalues 4n^3/3 and 9n^3 with vectors (8.3), eigenvalues 10n^3 and 25n^3 with vectors
(7.5), SVD 4mn^2 - 4n^3/3 for values and 14mn^2 + 8n^3 with thin U and V (8.6). LAPACK Working Note 41 (Blackford and
Dongarra): inverse 2n^3 with its LU, from Cholesky factors 2n^3/3, LDL n^3/3.
"""

import math
from collections.abc import Callable

from advisor.ops.registry import Call, Number, aten, larger, smaller, streaming


def _factorise(names: str, *, flops: Callable[[Number, Number], Number]) -> None:
    """Register `names`, with `flops(m, n)` for one matrix with longer side m and shorter side n."""

    def total(call: Call) -> Number:
        *samples, rows, columns = call.inputs[0].shape
        return math.prod(samples) * flops(larger(rows, columns), smaller(rows, columns))

    streaming(*aten(names), family="linalg", autocast="full", flops=total)


def _solve(names: str, *, flops: Callable[[Call], Number]) -> None:
    streaming(*aten(names), family="linalg", autocast="full", flops=flops)


_factorise("cholesky linalg_cholesky linalg_cholesky_ex", flops=lambda _, n: n**3 / 3)
_factorise("linalg_ldl_factor_ex", flops=lambda _, n: n**3 / 3)
_factorise("linalg_inv_ex linalg_inv inverse", flops=lambda _, n: 2 * n**3)
_factorise("cholesky_inverse", flops=lambda _, n: 2 * n**3 / 3)
_factorise("linalg_lu_factor linalg_lu_factor_ex linalg_lu _linalg_det _linalg_slogdet",
           flops=lambda _, n: 2 * n**3 / 3)  # fmt: skip
_factorise("linalg_qr geqrf linalg_householder_product orgqr linalg_lstsq", flops=lambda m, n: 2 * n**2 * (m - n / 3))
_factorise("_linalg_eigh linalg_eigh", flops=lambda _, n: 9 * n**3)
_factorise("linalg_eigvalsh", flops=lambda _, n: 4 * n**3 / 3)
_factorise("linalg_eig", flops=lambda _, n: 25 * n**3)
_factorise("linalg_eigvals", flops=lambda _, n: 10 * n**3)
_factorise("_linalg_svd linalg_svd svd linalg_pinv", flops=lambda m, n: 14 * m * n**2 + 8 * n**3)
_factorise("linalg_svdvals", flops=lambda m, n: 4 * m * n**2 - 4 * n**3 / 3)
# Taylor polynomial of degree 18 in 5 products, no squaring (Bader, Blanes and Casas 2019).
_factorise("linalg_matrix_exp", flops=lambda _, n: 5 * 2 * n**3)

# n^2 FLOP per right-hand side: n per element of the solution.
_solve("linalg_solve_triangular", flops=lambda call: call.outputs[0].numel * call.inputs[0].shape[-1])
_solve("triangular_solve", flops=lambda call: call.outputs[0].numel * call.inputs[1].shape[-1])
# Two triangular systems: 2n FLOP per element of the solution, which has n rows.
_solve("cholesky_solve linalg_lu_solve lu_solve linalg_ldl_solve",
       flops=lambda call: 2 * call.outputs[0].numel * call.outputs[0].shape[-2])  # fmt: skip
# Inputs (reflectors, scales (..., k), other): a reflector costs 4 FLOP per element of `other` (5.1.4).
_solve("ormqr", flops=lambda call: 4 * call.outputs[0].numel * call.inputs[1].shape[-1])


def _solve_flops(call: Call) -> Number:
    """LU (2n^3/3) of the matrix, then two triangular systems."""
    *samples, n, _ = call.inputs[0].shape
    return math.prod(samples) * 2 * n**3 / 3 + 2 * call.outputs[0].numel * n


_solve("_linalg_solve_ex linalg_solve_ex linalg_solve", flops=_solve_flops)
