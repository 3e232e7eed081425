"""States the accuracy of the predictions for LLM serving.

The numbers are for devices left out of the fit (docs/accuracy.md); docs/language-models.md quotes the
sentences.
"""

SERVED_ACCURACY = (
    "Measured of language models in service: linear layers in fp16 (401 rows of Vidur's), off by 7.7 % in the mean on "
    "an A40 and by 9.7 % on an A100, each left out of the fit; RMS norms, rotary embeddings and gated activations "
    "(146 rows) by 9.8 % on an A40, fitted on an A100.",
    "Not measured: whole requests with their TTFT and TPOT, attention to a KV cache, weights in fp8, int8 and int4, "
    "what tensor parallel GPUs tell each other, language models on CPUs.",
)
