"""Every operator that ordinary code dispatches has a formula, and the formula works on the rows it makes."""

import math
import warnings

import numpy as np
import pytest
import torch
from observe import rows_of_a_real_run, rows_on_fake_tensors
from torch import nn
from torch.nn import functional

from advisor.ops.evaluate import row_cost
from advisor.ops.registry import formula_of

IMAGE, SEQUENCE, FEATURES = (2, 4, 8, 8), (2, 6, 8), (4, 5)


def source(*shape):
    return torch.rand(*shape, requires_grad=True)


def places(*shape):
    return torch.zeros(*shape, dtype=torch.int64)


def trained(result):
    """Runs backward through all that has a gradient."""
    parts = result if isinstance(result, list | tuple) else [result]
    means = [
        torch.view_as_real(part).mean() if part.is_complex() else part.mean() for part in parts if part.requires_grad
    ]
    if means:
        sum(means).backward()


def check(rows):
    assert rows
    assert {row.op for row in rows if formula_of(row.op) is None} == set()
    for row in rows:
        for batch in (4, np.array([1.0, 2.0])):
            cost = row_cost(row, batch=batch)
            for number in (cost.flops, cost.read_bytes, cost.write_bytes):
                assert math.isfinite(number), row
                assert number >= 0, row


def spatial(dims):
    return (2, 4, *[8] * dims)


MODULES = [
    *((nn.Linear(8, 4), SEQUENCE), (nn.PReLU(), IMAGE), (nn.GLU(1), IMAGE), (nn.Softmax(1), IMAGE)),
    *((getattr(nn, f"Conv{dims}d")(4, 6, 3, groups=2), spatial(dims)) for dims in (1, 2, 3)),
    *((getattr(nn, f"ConvTranspose{dims}d")(4, 6, 3, groups=2), spatial(dims)) for dims in (1, 2, 3)),
    *((getattr(nn, f"{kind}Pool{dims}d")(2), spatial(dims)) for dims in (1, 2, 3) for kind in ("Max", "Avg")),
    *((getattr(nn, f"Adaptive{kind}Pool{dims}d")(3), spatial(dims)) for dims in (1, 2, 3) for kind in ("Max", "Avg")),
    *((getattr(nn, f"LPPool{dims}d")(2, 2), spatial(dims)) for dims in (1, 2, 3)),
    *((getattr(nn, f"FractionalMaxPool{dims}d")(2, output_ratio=0.5), spatial(dims)) for dims in (2, 3)),
    *((getattr(nn, f"{kind}Pad{dims}d")(1), spatial(dims)) for dims in (1, 2, 3) for kind in ("Reflection", "Replication")),
    *((getattr(nn, f"{kind}Pad{dims}d")(1), spatial(dims)) for dims in (1, 2, 3) for kind in ("Zero", "Circular")),
    *((getattr(nn, f"{kind}Norm{dims}d")(4), spatial(dims)) for dims in (1, 2, 3) for kind in ("Batch", "Instance")),
    *((nn.BatchNorm2d(4).eval(), IMAGE), (nn.GroupNorm(2, 4), IMAGE), (nn.LayerNorm(8), SEQUENCE)),
    *((nn.RMSNorm(8), SEQUENCE), (nn.LocalResponseNorm(2), IMAGE), (nn.PixelShuffle(2), IMAGE)),
    *((nn.PixelUnshuffle(2), IMAGE), (nn.ChannelShuffle(2), IMAGE), (nn.Unfold(2), IMAGE), (nn.Fold((4, 4), 2), (2, 16, 9))),
    *((nn.LSTM(8, 6, 2, bidirectional=True), SEQUENCE), (nn.LSTM(8, 6, proj_size=3), SEQUENCE)),
    *((nn.GRU(8, 6), SEQUENCE), (nn.RNN(8, 6), SEQUENCE), (nn.LSTMCell(8, 6), (2, 8)), (nn.GRUCell(8, 6), (2, 8))),
    *((nn.TransformerEncoderLayer(8, 2, 16), SEQUENCE), (nn.Dropout(), IMAGE), (nn.Dropout2d(), IMAGE)),
    *((nn.AlphaDropout(), IMAGE), (nn.utils.parametrizations.weight_norm(nn.Linear(8, 4)), SEQUENCE)),
    (nn.utils.parametrizations.spectral_norm(nn.Linear(8, 4)), SEQUENCE),
    *((nn.Upsample(scale_factor=2, mode=mode), IMAGE) for mode in ("nearest", "nearest-exact", "bilinear", "bicubic")),
    *((nn.Upsample(scale_factor=2, mode=mode), (2, 4, 8)) for mode in ("nearest", "linear")),
    *((nn.Upsample(scale_factor=2, mode=mode), spatial(3)) for mode in ("nearest", "trilinear")),
]  # fmt: skip
ACTIVATIONS = [
    nn.ELU, nn.Hardshrink, nn.Hardsigmoid, nn.Hardtanh, nn.Hardswish, nn.LeakyReLU, nn.LogSigmoid, nn.ReLU, nn.ReLU6,
    nn.RReLU, nn.SELU, nn.CELU, nn.GELU, nn.Sigmoid, nn.SiLU, nn.Mish, nn.Softplus, nn.Softshrink, nn.Softsign, nn.Tanh,
    nn.Tanhshrink,
]  # fmt: skip
LOSSES = [
    nn.L1Loss(), nn.MSELoss(), nn.BCELoss(), nn.BCEWithLogitsLoss(), nn.SmoothL1Loss(), nn.HuberLoss(), nn.KLDivLoss(),
    nn.PoissonNLLLoss(), nn.SoftMarginLoss(), nn.HingeEmbeddingLoss(), nn.MultiLabelSoftMarginLoss(),
    nn.CrossEntropyLoss(),
]  # fmt: skip
CLASS_LOSSES = [nn.CrossEntropyLoss(label_smoothing=0.1), nn.NLLLoss(), nn.MultiMarginLoss()]
FUNCTIONS = {
    "einsum": lambda: torch.einsum("bhid,bhjd->bhij", source(2, 2, 3, 4), source(2, 2, 5, 4)),
    "bilinear": lambda: nn.Bilinear(8, 6, 4)(source(2, 8), source(2, 6)),
    "baddbmm": lambda: torch.baddbmm(source(2, 3, 5), source(2, 3, 4), source(2, 4, 5)),
    "vectors": lambda: torch.mv(source(3, 4), source(4)) @ source(3),
    "cdist": lambda: torch.cdist(source(2, 3, 4), source(2, 5, 4)),
    "attention": lambda: functional.scaled_dot_product_attention(*(source(2, 4, 8, 16) for _ in range(3)), is_causal=True),
    "dropped attention": lambda: functional.scaled_dot_product_attention(
        *(source(2, 4, 8, 16) for _ in range(3)), dropout_p=0.1
    ),
    "embedding": lambda: nn.Embedding(10, 4, padding_idx=0, max_norm=1.0)(places(2, 3)),
    "embedding bag": lambda: nn.EmbeddingBag(10, 4)(places(2, 3)),
    "weighted embedding bag": lambda: nn.EmbeddingBag(10, 4, mode="sum")(
        places(6), torch.tensor([0, 2]), per_sample_weights=source(6)
    ),
    "unpooling": lambda: nn.MaxUnpool2d(2)(*nn.MaxPool2d(2, return_indices=True)(source(*IMAGE))),
    "grid": lambda: functional.grid_sample(source(2, 3, 4, 4), functional.affine_grid(source(2, 2, 3), (2, 3, 5, 5))),
    "antialiased": lambda: functional.interpolate(source(*IMAGE), size=(4, 4), mode="bilinear", antialias=True),
    "fft": lambda: torch.fft.irfft(torch.fft.rfft(source(4, 8))).sum() + torch.fft.fft2(source(4, 8)).abs().sum(),
    "stft": lambda: torch.stft(source(2, 64), 16, return_complex=True, window=torch.hann_window(16)),
    "gather": lambda: source(4, 6).gather(1, places(4, 2)),
    "scatter": lambda: (source(4, 6) * 1).scatter_add_(1, places(4, 6), source(4, 6)).scatter(1, places(4, 2), 1.0),
    "index": lambda: source(4, 6)[places(3)].sum() + source(4, 6)[:, places(3)].sum() + source(4, 6).index_select(1, places(2)).sum(),
    "index writes": lambda: (source(4, 6) * 1).index_add(0, places(3), source(3, 6)).index_fill(0, places(1), 1.0).index_copy(0, places(3), source(3, 6)),
    "masks": lambda: torch.where(torch.rand(4, 6) > 0.5, source(4, 6), 0.0).masked_fill(torch.rand(4, 6) > 0.5, 0.0),
    "sorting": lambda: [*source(4, 6).sort(1)[:1], *source(4, 6).topk(2)[:1], source(4, 6).median(1)[0]],
    "scans": lambda: source(4, 6).cumsum(1) + source(4, 6).cumprod(1) + torch.logcumsumexp(source(4, 6), 1),
    "extremes": lambda: source(4, 6).cummax(1)[0].max(1)[0] + source(4, 6).amin(1) + source(4, 6).logsumexp(1),
    "moments": lambda: source(4, 6).var(1) + source(4, 6).std(1) + source(4, 6).norm(dim=1) + source(4, 6).prod(1),
    "copies": lambda: torch.cat([source(2, 3).repeat(2, 1).flip(0).roll(1, 0), torch.stack([source(3)] * 2).tril()]),
    "casts": lambda: source(4, 6).half().float().t().contiguous().double(),
    "slices": lambda: source(4, 6)[1:, 2].sum() + source(4, 6).unfold(1, 2, 2).sum() + source(4, 6).diagonal().sum(),
    "bits": lambda: (places(4) & places(4)) | (places(4) << 1) ^ ~places(4),
    "complex": lambda: torch.polar(source(3), source(3)) * torch.view_as_complex(source(3, 2)).conj(),
    "random": lambda: torch.randn(3) + torch.bernoulli(torch.rand(3)) + torch.normal(0.0, 1.0, (3,)) + torch.rand(3).uniform_(),
    "creation": lambda: torch.arange(3) + torch.linspace(0, 1, 3) + torch.eye(3) + torch.full((3,), 2.0) + torch.ones(3),
    "linear algebra": lambda: torch.linalg.solve(source(2, 4, 4), source(2, 4, 3)).sum() + torch.linalg.inv(source(4, 4)).sum() + torch.linalg.qr(source(4, 4))[1].sum(),
    "spectra": lambda: torch.linalg.svdvals(source(4, 4)).sum() + torch.linalg.eigvalsh(source(4, 4)).sum() + torch.linalg.det(source(4, 4)),
    "lists": lambda: torch._foreach_mul_(torch._foreach_add([torch.rand(3), torch.rand(4)], 1.0), 2.0),
    "clipping": lambda: nn.utils.clip_grad_norm_(list(_with_gradients(nn.Linear(3, 4)).parameters()), 1.0),
    "one-hot": lambda: functional.gumbel_softmax(source(4, 5), hard=True),
    "margins": lambda: nn.TripletMarginLoss()(source(*FEATURES), source(*FEATURES), source(*FEATURES)),
    "cosines": lambda: nn.CosineEmbeddingLoss()(source(*FEATURES), source(*FEATURES), torch.ones(4)),
}  # fmt: skip
DATA_DEPENDENT = {
    "nonzero": lambda: source(4, 6)[torch.rand(4, 6) > 0.5].sum() + torch.rand(4).nonzero().sum(),
    "unique": lambda: torch.unique(torch.rand(9), return_inverse=True),
    "ctc": lambda: functional.ctc_loss(
        source(10, 2, 5).log_softmax(2), places(2, 3) + 1, torch.full((2,), 10), torch.full((2,), 3)
    ),
    "packed": lambda: nn.GRU(3, 4)(nn.utils.rnn.pack_padded_sequence(source(4, 2, 3), torch.tensor([4, 2])))[1],
    "adaptive softmax": lambda: nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10])(source(2, 8), places(2)).loss,
    "gaussian": lambda: nn.GaussianNLLLoss()(source(*FEATURES), torch.rand(*FEATURES), torch.rand(*FEATURES) + 1),
}
OPTIMIZERS = [
    "SGD",
    "Adam",
    "AdamW",
    "RMSprop",
    "Adagrad",
    "Adadelta",
    "Adamax",
    "NAdam",
    "RAdam",
    "Rprop",
    "Adafactor",
]


def _with_gradients(layer):
    trained(layer(torch.rand(2, 3)))
    return layer


@pytest.mark.parametrize(("module", "shape"), MODULES, ids=lambda value: type(value).__name__)
def test_modules_are_covered(module, shape):
    check(rows_on_fake_tensors(lambda: trained(module(source(*shape)))))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_are_covered(activation):
    check(rows_on_fake_tensors(lambda: trained(activation()(source(*IMAGE)))))


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_losses_of_values_are_covered(loss):
    check(rows_on_fake_tensors(lambda: trained(loss(source(*FEATURES), torch.rand(*FEATURES)))))


@pytest.mark.parametrize("loss", CLASS_LOSSES, ids=lambda loss: type(loss).__name__)
def test_losses_of_classes_are_covered(loss):
    check(rows_on_fake_tensors(lambda: trained(loss(source(*FEATURES), places(4)))))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_covered(name):
    check(rows_on_fake_tensors(lambda: trained(FUNCTIONS[name]())))


@pytest.mark.parametrize("name", DATA_DEPENDENT)
def test_code_that_depends_on_its_data_is_covered(name):
    check(rows_of_a_real_run(lambda: trained(DATA_DEPENDENT[name]())))


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_steps_are_covered(name, foreach):
    layer = _with_gradients(nn.Linear(3, 4))
    optimizer = getattr(torch.optim, name)(layer.parameters(), lr=0.1, foreach=foreach)
    check(rows_of_a_real_run(optimizer.step))


def test_the_fast_path_of_an_encoder_layer_is_covered():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()

    def run():
        with torch.no_grad():
            layer(torch.rand(2, 3, 8))

    rows = rows_on_fake_tensors(run)
    check(rows)
    assert "aten._transformer_encoder_layer_fwd" in {row.op for row in rows}


def test_a_dynamically_quantised_layer_is_covered():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.ao.quantization says that it will move
        model = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(8, 4)), {nn.Linear})
        rows = rows_of_a_real_run(lambda: model(torch.rand(2, 8)))
    check(rows)
    assert "quantized.linear_dynamic" in {row.op for row in rows}
