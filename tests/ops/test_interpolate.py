import pytest
from calls import cost, cost_of, indices, tensor

SMALL, LARGE = tensor(1, 2, 4, 4), tensor(1, 2, 8, 8)  # 32 and 128 elements


@pytest.mark.parametrize(
    ("mode", "flops"),
    [
        ("nearest2d", 0),
        ("bilinear2d", 2 * 4 * 128),  # 2 x 2 taps
        ("bicubic2d", 2 * 16 * 128),  # 4 x 4 taps
    ],
)
def test_resampling_is_a_multiply_add_per_tap(mode, flops):
    # Read 32 * 4, write 128 * 4.
    assert cost_of(f"aten.upsample_{mode}", [SMALL], [LARGE]) == cost(flops=flops, read_bytes=128, write_bytes=512)


def test_every_dimension_has_its_own_taps():
    # Linear 2, trilinear 2 x 2 x 2, Lanczos 6 x 6 (3 on either side); exact nearest neighbours are copies too.
    line, volume = tensor(1, 2, 8), tensor(1, 2, 4, 4, 4)
    assert cost_of("aten.upsample_linear1d", [line], [line]).flops == 2 * 2 * 16
    assert cost_of("aten.upsample_trilinear3d", [volume], [volume]).flops == 2 * 8 * 128
    assert cost_of("aten._upsample_lanczos2d_aa", [SMALL], [LARGE]).flops == 2 * 36 * 128
    assert cost_of("aten._upsample_nearest_exact2d", [SMALL], [LARGE]).flops == 0


def test_its_gradient_is_added_to_the_same_taps():
    # Nearest: one addition for each of 128 gradients; bilinear: 2 * 4 * 128.
    assert cost_of("aten.upsample_nearest2d_backward", [LARGE], [SMALL]) == cost(
        flops=128, read_bytes=512, write_bytes=128
    )
    assert cost_of("aten.upsample_bilinear2d_backward", [LARGE], [SMALL]).flops == 1024


def test_sampling_on_a_grid_follows_its_mode():
    # 128 outputs: bilinear 4 taps, nearest (mode 1) none, bicubic (2) 16. In three dimensions bilinear has 8.
    grid = tensor(1, 8, 8, 2)
    for mode, taps in ((0, 4), (1, 0), (2, 16)):
        flops = cost_of("aten.grid_sampler_2d", [SMALL, grid], [LARGE], interpolation_mode=mode).flops
        assert flops == 2 * taps * 128
    volume, result = tensor(1, 2, 4, 4, 4), tensor(1, 2, 2, 2, 2)
    inputs = [volume, tensor(1, 2, 2, 2, 3)]
    assert cost_of("aten.grid_sampler_3d", inputs, [result], interpolation_mode=0).flops == 2 * 8 * 16


def test_a_grids_gradient_goes_over_the_taps_twice():
    inputs = [LARGE, SMALL, tensor(1, 8, 8, 2)]
    outputs = [SMALL, tensor(1, 8, 8, 2)]
    assert cost_of("aten.grid_sampler_2d_backward", inputs, outputs, interpolation_mode=0).flops == 2 * 2 * 4 * 128


def test_a_region_of_interest_averages_bilinear_samples():
    # 2 x 2 samples of 4 multiply-adds for each of 5 * 2 * 3 * 3 = 90 outputs.
    inputs = [SMALL, tensor(5, 5)]
    assert cost_of("torchvision.roi_align", inputs, [tensor(5, 2, 3, 3)], sampling_ratio=1).flops == 8 * 90
    assert cost_of("torchvision.roi_align", inputs, [tensor(5, 2, 3, 3)], sampling_ratio=-1).flops == 4 * 8 * 90


def test_pooling_regions_compares_each_feature():
    assert cost_of("torchvision.roi_pool", [SMALL, tensor(5, 5)], [tensor(5, 2, 3, 3), indices(5, 2, 3, 3)]).flops == 32


def test_an_affine_grid_is_a_product_with_each_position():
    # 8 * 8 positions, 2 coordinates of 3 multiply-adds: 64 * 2 * 3 * 2 = 768.
    assert cost_of("aten.affine_grid_generator", [tensor(1, 2, 3)], [tensor(1, 8, 8, 2)]).flops == 768
