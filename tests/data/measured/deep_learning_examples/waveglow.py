"""WaveGlow for 80 mel bands (Prenger et al. 2018): twelve flows of eight dilated layers, 512 channels wide."""

import torch
from torch import Tensor, nn
from torch.nn.utils import weight_norm

SAMPLES = 8000
MEL_BANDS, FRAME_SAMPLES, WINDOW_SAMPLES = 80, 256, 1024
GROUP = 8
FLOWS, EARLY_EVERY, EARLY_SIZE = 12, 4, 2
LAYERS, CHANNELS = 8, 512


class Coupling(nn.Module):
    """The network of a flow: gated convolutions over half of the channels give scale and shift of the others."""

    def __init__(self, half: int) -> None:
        super().__init__()
        self.start = weight_norm(nn.Conv1d(half, CHANNELS, 1))
        self.end = nn.Conv1d(CHANNELS, 2 * half, 1)
        self.gated, self.conditions, self.outputs = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for layer in range(LAYERS):
            dilation = 2**layer
            self.gated.append(weight_norm(nn.Conv1d(CHANNELS, 2 * CHANNELS, 3, dilation=dilation, padding=dilation)))
            self.conditions.append(weight_norm(nn.Conv1d(MEL_BANDS * GROUP, 2 * CHANNELS, 1)))
            out = 2 * CHANNELS if layer < LAYERS - 1 else CHANNELS
            self.outputs.append(weight_norm(nn.Conv1d(CHANNELS, out, 1)))

    def forward(self, audio: Tensor, mel: Tensor) -> Tensor:
        """Return scale and shift, (batch, 2 x half, time)."""
        audio, skipped = self.start(audio), None
        for gated, condition, output in zip(self.gated, self.conditions, self.outputs, strict=True):
            both = gated(audio) + condition(mel)
            passed = output(torch.tanh(both[:, :CHANNELS]) * torch.sigmoid(both[:, CHANNELS:]))
            if passed.shape[1] > CHANNELS:
                audio = audio + passed[:, :CHANNELS]
                passed = passed[:, CHANNELS:]
            skipped = passed if skipped is None else skipped + passed
        return self.end(skipped)


class WaveGlow(nn.Module):
    """Maps a segment of audio to noise. The log-determinants of the mixing matrices, of 8 x 8, are left out."""

    def __init__(self) -> None:
        super().__init__()
        self.upsample = nn.ConvTranspose1d(MEL_BANDS, MEL_BANDS, WINDOW_SAMPLES, stride=FRAME_SAMPLES)
        self.mixes, self.couplings = nn.ModuleList(), nn.ModuleList()
        width = GROUP
        for flow in range(FLOWS):
            width -= EARLY_SIZE if flow % EARLY_EVERY == 0 and flow else 0
            self.mixes.append(nn.Conv1d(width, width, 1, bias=False))
            self.couplings.append(Coupling(width // 2))

    def forward(self, mel: Tensor, audio: Tensor) -> Tensor:
        """Return half of the squared noise less the logs of all scales, summed."""
        mel = self.upsample(mel)[:, :, : audio.shape[1]]
        mel = mel.unfold(2, GROUP, GROUP).permute(0, 2, 1, 3).flatten(2).transpose(1, 2)
        audio = audio.unfold(1, GROUP, GROUP).transpose(1, 2)
        total = audio.new_zeros(())
        for flow, (mix, coupling) in enumerate(zip(self.mixes, self.couplings, strict=True)):
            if flow % EARLY_EVERY == 0 and flow:
                total = total + audio[:, :EARLY_SIZE].square().sum() / 2
                audio = audio[:, EARLY_SIZE:]
            audio = mix(audio)
            first, second = audio.chunk(2, dim=1)
            shift, log_scale = coupling(first, mel).chunk(2, dim=1)
            audio = torch.cat([first, log_scale.exp() * second + shift], dim=1)
            total = total - log_scale.sum()
        return (total + audio.square().sum() / 2) / (audio.shape[0] * SAMPLES)


def model() -> nn.Module:
    """The net."""
    return WaveGlow()


def example_inputs(batch: int) -> tuple[Tensor, Tensor]:
    """Mel spectra and audio."""
    return torch.randn(batch, MEL_BANDS, SAMPLES // FRAME_SAMPLES + 1), torch.randn(batch, SAMPLES)


def loss(output: Tensor, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Return the output: the net computes its own loss."""
    return output


def optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Adam."""
    return torch.optim.Adam(parameters, lr=1e-4)
