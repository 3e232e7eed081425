"""Small programs of ordinary torch code that together dispatch most of the operators a user meets."""

import torch
from torch import nn
from torch.nn import functional

IMAGE, SEQUENCE, FEATURES = (2, 4, 8, 8), (2, 6, 8), (4, 5)


def source(*shape):
    return torch.rand(*shape, requires_grad=True)


def places(*shape):
    return torch.zeros(*shape, dtype=torch.int64)


def trained(result):
    """Runs backward from all that has a gradient."""
    parts = result if isinstance(result, list | tuple) else [result]
    means = [part.abs().mean() for part in parts if part.requires_grad]
    if means:
        sum(means).backward()


def with_gradients(layer):
    trained(layer(torch.rand(2, 3)))
    return layer


def _in_each_dimension(*names, arguments, dims=(1, 2, 3)):
    """Modules like Conv1d, Conv2d, Conv3d on inputs of 4 channels."""
    return [(getattr(nn, f"{name}{dim}d")(*arguments), (2, 4, *[8] * dim)) for name in names for dim in dims]


_PADS = ("ReflectionPad", "ReplicationPad", "ZeroPad", "CircularPad")
MODULES = [
    *_in_each_dimension("Conv", "ConvTranspose", arguments=(4, 6, 3)),
    *_in_each_dimension("MaxPool", "AvgPool", arguments=(2,)),
    *_in_each_dimension("AdaptiveMaxPool", "AdaptiveAvgPool", arguments=(3,)),
    *_in_each_dimension("LPPool", arguments=(2, 2)),
    *_in_each_dimension("FractionalMaxPool", arguments=(2, 3), dims=(2, 3)),
    *_in_each_dimension(*_PADS, arguments=(1,)),
    *_in_each_dimension("BatchNorm", "InstanceNorm", arguments=(4,)),
    (nn.BatchNorm2d(4).eval(), IMAGE),
    (nn.GroupNorm(2, 4), IMAGE),
    (nn.LayerNorm(8), SEQUENCE),
    (nn.RMSNorm(8), SEQUENCE),
    (nn.LocalResponseNorm(2), IMAGE),
    (nn.Linear(8, 4), SEQUENCE),
    (nn.utils.parametrizations.weight_norm(nn.Linear(8, 4)), SEQUENCE),
    (nn.utils.parametrizations.spectral_norm(nn.Linear(8, 4)), SEQUENCE),
    (nn.LSTMCell(8, 6), (2, 8)),
    (nn.GRUCell(8, 6), (2, 8)),
    (nn.RNNCell(8, 6), (2, 8)),
    (nn.TransformerEncoderLayer(8, 2, 16), SEQUENCE),
    *((nn.Upsample(scale_factor=2, mode=mode), (2, 4, 8)) for mode in ("nearest", "linear")),
    *((nn.Upsample(scale_factor=2, mode=mode), IMAGE) for mode in ("nearest", "nearest-exact", "bilinear", "bicubic")),
    *((nn.Upsample(scale_factor=2, mode=mode), (2, 4, 8, 8, 8)) for mode in ("nearest", "trilinear")),
    (nn.PixelShuffle(2), IMAGE),
    (nn.PixelUnshuffle(2), IMAGE),
    (nn.ChannelShuffle(2), IMAGE),
    (nn.Unfold(2), IMAGE),
    (nn.Fold((4, 4), 2), (2, 16, 9)),
    (nn.Dropout(), IMAGE),
    (nn.Dropout2d(), IMAGE),
    (nn.AlphaDropout(), IMAGE),
    (nn.GLU(1), IMAGE),
    (nn.PReLU(), IMAGE),
    (nn.Softmax(1), IMAGE),
]
ACTIVATIONS = [
    nn.ELU, nn.Hardshrink, nn.Hardsigmoid, nn.Hardtanh, nn.Hardswish, nn.LeakyReLU, nn.LogSigmoid, nn.ReLU, nn.ReLU6,
    nn.RReLU, nn.SELU, nn.CELU, nn.GELU, nn.Sigmoid, nn.SiLU, nn.Mish, nn.Softplus, nn.Softshrink, nn.Softsign, nn.Tanh,
    nn.Tanhshrink,
]  # fmt: skip
VALUE_LOSSES = [
    nn.L1Loss(), nn.MSELoss(), nn.BCELoss(), nn.BCEWithLogitsLoss(), nn.SmoothL1Loss(), nn.HuberLoss(),
    nn.KLDivLoss(reduction="batchmean"), nn.PoissonNLLLoss(), nn.SoftMarginLoss(), nn.HingeEmbeddingLoss(),
    nn.MultiLabelSoftMarginLoss(), nn.CrossEntropyLoss(),
]  # fmt: skip
CLASS_LOSSES = [nn.CrossEntropyLoss(label_smoothing=0.1), nn.NLLLoss(), nn.MultiMarginLoss()]
OPTIMIZERS = [
    "SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "Rprop", "ASGD", "Adafactor",
]  # fmt: skip


def _attention(**arguments):
    return functional.scaled_dot_product_attention(*(source(2, 4, 8, 16) for _ in range(3)), **arguments)


def _products():
    square = torch.einsum("bhid,bhjd->bhij", source(2, 2, 4, 3), source(2, 2, 4, 3))[0]
    return [torch.baddbmm(square, square, square), torch.mv(square[0], source(4)), torch.cdist(square, square)]


def _grid_sample():
    grid = functional.affine_grid(source(2, 2, 3), [2, 3, 5, 5], align_corners=False)
    return functional.grid_sample(source(2, 3, 4, 4), grid, align_corners=False)


def _indexed():
    table = source(4, 6)
    return [table[places(3)], table[:, places(3)], table.index_select(1, places(2)), table.gather(1, places(4, 2))]


def _written_by_index():
    table = (source(4, 6) * 1).scatter_add_(1, places(4, 6), source(4, 6)).scatter(1, places(4, 2), 1.0)
    table = table.index_add(0, places(3), source(3, 6)).index_fill(0, places(1), 1.0)
    table[places(3)] = source(3, 6)
    return table.index_copy(0, places(3), source(3, 6))


def _masked():
    mask = torch.rand(4, 6) > 0.5
    return torch.where(mask, source(4, 6), 0.0).masked_fill(mask, 0.0)


def _ordered():
    table = source(4, 6)
    return [table.sort(1)[0], table.topk(2)[0], table.median(1)[0], table.cummax(1)[0], table.max(1)[0], table.amin(1)]


def _reduced():
    table = source(4, 6)
    return [table.var(1), table.std(1), table.norm(dim=1), table.prod(1), table.logsumexp(1), table.any()]


def _scanned():
    return source(4, 6).cumsum(1) + source(4, 6).cumprod(1) + torch.logcumsumexp(source(4, 6), 1)


def _copied():
    table = source(2, 3).repeat(2, 1).flip(0).roll(1, 0).half().float().t().contiguous().double()
    return torch.cat([table, torch.stack([source(4)] * 2).tril().double()])


def _viewed():
    return [source(4, 6)[1:, 2], source(4, 6).unfold(1, 2, 2), source(4, 6).diagonal(), source(4, 6).expand(2, 4, 6)]


def _bits():
    return (places(4) & places(4)) | (places(4) << 1) ^ ~places(4)


def _complex():
    return torch.polar(source(3), source(3)) * torch.view_as_complex(source(3, 2)).conj()


def _made():
    drawn = torch.randn(3) + torch.bernoulli(torch.rand(3)) + torch.rand(3).uniform_()
    return drawn + torch.arange(3) + torch.linspace(0, 1, 3) + torch.eye(3) + torch.full((3,), 2.0)


def _solved():
    square = source(2, 4, 4)
    factors = [torch.linalg.inv(square), torch.linalg.qr(square)[1], torch.linalg.det(square)]
    return [*factors, torch.linalg.solve(square, source(2, 4, 3)), torch.linalg.svdvals(square)]


def _lists():
    return torch._foreach_mul_(torch._foreach_add([torch.rand(3), torch.rand(4)], 1.0), 2.0)


def _clipped():
    return nn.utils.clip_grad_norm_(list(with_gradients(nn.Linear(3, 4)).parameters()), 1.0)


def _unpooled():
    return nn.MaxUnpool2d(2)(*nn.MaxPool2d(2, return_indices=True)(source(*IMAGE)))


def _weighted_bags():
    return nn.EmbeddingBag(10, 4, mode="sum")(places(6), torch.tensor([0, 2]), per_sample_weights=source(6))


def _distances():
    first, second = source(*FEATURES), source(*FEATURES)
    return [nn.TripletMarginLoss()(first, second, second), nn.CosineEmbeddingLoss()(first, second, torch.ones(4))]


FUNCTIONS = {
    "products": _products,
    "bilinear": lambda: nn.Bilinear(8, 6, 4)(source(2, 8), source(2, 6)),
    "attention": lambda: _attention(is_causal=True),
    "attention with dropout": lambda: _attention(dropout_p=0.1),
    "lstm": lambda: nn.LSTM(8, 6, 2, bidirectional=True)(source(*SEQUENCE))[0],
    "gru": lambda: nn.GRU(8, 6)(source(*SEQUENCE))[0],
    "rnn": lambda: nn.RNN(8, 6, nonlinearity="relu")(source(*SEQUENCE))[0],
    "embedding": lambda: nn.Embedding(10, 4, padding_idx=0, max_norm=1.0)(places(2, 3)),
    "embedding bag": lambda: nn.EmbeddingBag(10, 4)(places(2, 3)),
    "weighted embedding bag": _weighted_bags,
    "unpooling": _unpooled,
    "grid": _grid_sample,
    "antialiasing": lambda: functional.interpolate(source(*IMAGE), size=(4, 4), mode="bilinear", antialias=True),
    "real fft": lambda: torch.fft.irfft(torch.fft.rfft(source(4, 8))),
    "fft": lambda: torch.fft.fft2(source(4, 8)),
    "stft": lambda: torch.stft(source(2, 64), 16, return_complex=True, window=torch.hann_window(16)),
    "indexing": _indexed,
    "writing by index": _written_by_index,
    "masks": _masked,
    "order": _ordered,
    "reductions": _reduced,
    "scans": _scanned,
    "copies": _copied,
    "views": _viewed,
    "bits": _bits,
    "complex": _complex,
    "creation": _made,
    "linear algebra": _solved,
    "lists": _lists,
    "clipping": _clipped,
    "sampling": lambda: functional.gumbel_softmax(source(4, 5), hard=True),
    "distances": _distances,
}


def _ctc():
    log_probabilities = source(10, 2, 5).log_softmax(2)
    return functional.ctc_loss(log_probabilities, places(2, 3) + 1, torch.full((2,), 10), torch.full((2,), 3))


def _packed():
    return nn.GRU(3, 4)(nn.utils.rnn.pack_padded_sequence(source(4, 2, 3), torch.tensor([4, 2])))[1]


def _gaussian():
    return nn.GaussianNLLLoss()(source(*FEATURES), torch.rand(*FEATURES), torch.rand(*FEATURES) + 1)


DATA_DEPENDENT = {
    "boolean index": lambda: source(4, 6)[torch.rand(4, 6) > 0.5],
    "nonzero": lambda: torch.rand(4).nonzero(),
    "unique": lambda: torch.unique(torch.rand(9), return_inverse=True),
    "ctc": _ctc,
    "packed sequences": _packed,
    "adaptive softmax": lambda: nn.AdaptiveLogSoftmaxWithLoss(32, 20, [5, 10])(source(2, 32), places(2)).loss,
    "gaussian": _gaussian,
}
