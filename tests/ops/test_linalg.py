import pytest
from calls import cost_of, tensor

SQUARE = tensor(2, 6, 6)


@pytest.mark.parametrize(
    ("op", "flops"),
    [
        ("linalg_cholesky_ex", 2 * 72),  # 216 / 3
        ("linalg_lu_factor_ex", 2 * 144),  # 2 * 216 / 3
        ("_linalg_det", 2 * 144),
        ("linalg_ldl_factor_ex", 2 * 72),
        ("linalg_inv_ex", 2 * 432),  # 2 * 216
        ("cholesky_inverse", 2 * 144),
        ("linalg_qr", 2 * 288),  # 2 * 36 * (6 - 2)
        ("_linalg_eigh", 2 * 1944),  # 9 * 216
        ("linalg_eig", 2 * 5400),  # 25 * 216
        ("linalg_householder_product", 2 * 288),
        ("linalg_eigvalsh", 2 * 288),  # 4 * 216 / 3
        ("linalg_eigvals", 2 * 2160),  # 10 * 216
        ("_linalg_svd", 2 * 4752),  # 14 * 216 + 8 * 216
        ("linalg_svdvals", 2 * 576),  # 4 * 216 - 4 * 216 / 3
        ("linalg_lstsq", 2 * 288),  # by QR
        ("linalg_matrix_exp", 2 * 2160),  # 5 products of 2 * 216
    ],
)
def test_a_factorisation_is_the_textbooks_leading_term_per_matrix(op, flops):
    assert cost_of(f"aten.{op}", [SQUARE], [SQUARE]).flops == flops


def test_a_tall_matrix_and_a_wide_one_are_alike():
    # QR of 9 x 3: 2 * 9 * (9 - 1) = 144.
    assert cost_of("aten.linalg_qr", [tensor(9, 3)], [tensor(9, 3)]).flops == 144
    assert cost_of("aten.linalg_qr", [tensor(3, 9)], [tensor(3, 9)]).flops == 144
    # Singular values: 4 * 9 * 9 - 4 * 27 / 3 = 288; with vectors 14 * 9 * 9 + 8 * 27 = 1350.
    assert cost_of("aten.linalg_svdvals", [tensor(9, 3)], [tensor(3)]).flops == 288
    assert cost_of("aten._linalg_svd", [tensor(3, 9)], [tensor(3, 3)]).flops == 1350


def test_solving_is_a_factorisation_and_two_triangles():
    # 6 x 6 with 4 right-hand sides, two samples: 2 * 144 + 2 * (2 * 24 * 6) = 864.
    right = tensor(2, 6, 4)
    assert cost_of("aten._linalg_solve_ex", [SQUARE, right], [right, SQUARE]).flops == 864
    # A triangle alone: 36 per right-hand side, 2 * 4 * 36; two of them when factored.
    assert cost_of("aten.linalg_solve_triangular", [SQUARE, right], [right]).flops == 288
    assert cost_of("aten.triangular_solve", [right, SQUARE], [right, SQUARE]).flops == 288
    assert cost_of("aten.cholesky_solve", [right, SQUARE], [right]).flops == 576


def test_applying_reflectors_is_four_flop_each_per_element():
    # 3 reflectors on (6, 4): 4 * 24 * 3.
    assert cost_of("aten.ormqr", [tensor(6, 3), tensor(3), tensor(6, 4)], [tensor(6, 4)]).flops == 288
