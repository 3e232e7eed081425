"""A vision-language model of the size of LLaVA 1.5 7B: images of 336 x 336, 576 tokens each, before a text.

advise examples/vision_language.py --finetune lora --lora-targets q_proj,v_proj --samples 20000
"""

import torch
from torch import nn
from transformers import CLIPVisionConfig, CLIPVisionModel, LlamaConfig, LlamaForCausalLM

IMAGE_TOKENS, TEXT_TOKENS = 576, 448


class VisionLanguage(nn.Module):
    """A CLIP ViT-L/14 whose patches, projected by two layers, come before the text in Llama 2 7B."""

    def __init__(self) -> None:
        super().__init__()
        vision = CLIPVisionConfig(
            hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16, image_size=336,
            patch_size=14,
        )  # fmt: skip
        text = LlamaConfig(max_position_embeddings=4096, vocab_size=32064)  # other sizes: Llama 2 7B
        self.vision = CLIPVisionModel(vision)
        self.projection = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 4096))
        self.language = LlamaForCausalLM(text)

    def forward(self, pixels: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Take images (batch, 3, 336, 336) and texts (batch, tokens); return the loss of the text."""
        seen = self.projection(self.vision(pixels).last_hidden_state[:, 1:])
        read = self.language.get_input_embeddings()(tokens)
        labels = torch.cat((tokens.new_full(seen.shape[:2], -100), tokens), dim=1)
        loss: torch.Tensor = self.language(inputs_embeds=torch.cat((seen, read), dim=1), labels=labels).loss
        return loss


def get_model() -> nn.Module:
    """Return the model."""
    return VisionLanguage()


def example_inputs(batch: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images with their texts."""
    return torch.rand(batch, 3, 336, 336), torch.randint(32000, (batch, TEXT_TOKENS))


def loss(output: torch.Tensor, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Return the model's own loss."""
    return output
