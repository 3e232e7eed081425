"""Says what earlier releases of PyTorch did otherwise than today's."""


def has_half_attention(release: str) -> bool:
    """Return whether attention without a fused kernel stayed in half: until 2.5, torch did not compute it in fp32.

    Source: `_scaled_dot_product_attention_math` in ATen/native/transformers/attention.cpp. An empty release is today's.
    """
    return bool(release) and tuple(map(int, release.split("."))) < (2, 5)
