from calls import cost, cost_of, tensor

SIGNAL = tensor(3, 8)
COMPLEX = tensor(3, 8, dtype="complex64")


def test_a_complex_transform_is_five_n_log_n():
    # 3 transforms of 8 points: 3 * 5 * 8 * 3 = 360. 24 numbers of 8 bytes in and out.
    assert cost_of("aten._fft_c2c", [COMPLEX], [COMPLEX], dim=(1,)) == cost(flops=360, read_bytes=192, write_bytes=192)


def test_a_real_transform_is_half_of_that():
    # 180; 24 floats in, 3 * 5 complex numbers out: 96 and 120 bytes. Its inverse the same, the other way round.
    spectrum = tensor(3, 5, dtype="complex64")
    assert cost_of("aten._fft_r2c", [SIGNAL], [spectrum], dim=(1,)) == cost(flops=180, read_bytes=96, write_bytes=120)
    assert cost_of("aten._fft_c2r", [spectrum], [SIGNAL], dim=(1,)) == cost(flops=180, read_bytes=120, write_bytes=96)


def test_a_transform_over_two_dimensions_has_their_product_of_points():
    # 4 * 8 = 32 points: 5 * 32 * 5 = 800.
    image = tensor(4, 8, dtype="complex64")
    assert cost_of("aten._fft_c2c", [image], [image], dim=(0, 1)).flops == 800


def test_a_short_time_transform_is_a_real_one_per_frame():
    # Spectrum (9, 10): 10 frames of 16 points have about 2 * 90 points: 2.5 * 180 * 4 = 1800.
    spectrum = tensor(9, 10, dtype="complex64")
    assert cost_of("aten.stft", [tensor(64)], [spectrum], n_fft=16).flops == 1800
    assert cost_of("aten.istft", [spectrum], [tensor(64)], n_fft=16).flops == 1800
