"""Writes the table of docs/language-models.md that says when a CPU is enough for a language model in service.

    python scripts/write_crossovers.py

For dense models of 0.1 to 70 billion parameters, prompts of two lengths, and with or without limits on the latency: the
requests per day from which the cheapest GPUs cost less than the cheapest CPUs, and what one of each costs a month.
"""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from write_seed_table import ROOT, where, with_table

from advisor import units
from advisor.answers.break_even import break_even
from advisor.question.from_source import catalog_of, profile_source, question_of
from advisor.records.answer import Contender
from advisor.records.options import Options, TimeLimit
from advisor.records.price import Catalog

PAGE = ROOT / "docs" / "language-models.md"
MARKS = "<!-- crossovers: written by scripts/write_crossovers.py -->", "<!-- end of crossovers -->"
MODELS = {
    "SmolLM 135M": (576, 30, 9, 3, 1536, 49152),
    "Qwen2.5 0.5B": (896, 24, 14, 2, 4864, 151936),
    "Llama 3.2 1B": (2048, 16, 32, 8, 8192, 128256),
    "Llama 3.2 3B": (3072, 28, 24, 8, 8192, 128256),
    "Llama 3.1 8B": (4096, 32, 32, 8, 14336, 128256),
    "Qwen2.5 14B": (5120, 48, 40, 8, 13824, 152064),
    "Qwen2.5 32B": (5120, 64, 40, 8, 27648, 152064),
    "Llama 3.1 70B": (8192, 80, 64, 8, 28672, 128256),
}
"""Width, layers, heads, heads of keys and values, inner width, and vocabulary of the published configs."""
PROMPTS = (1024, 8192)
ANSWER_TOKENS = 256
TTFT_LIMIT, TPOT_LIMIT = TimeLimit(seconds=2.0), TimeLimit(seconds=0.1)
_HEAD = (
    "| model | prompt | cheaper at requests a day | one a day: CPU; GPU | the same within 2 s and 100 ms a token |",
    "| --- | --- | --- | --- | --- |",
)


def main() -> None:
    """Write the table."""
    table = "\n".join((*_HEAD, *lines(catalog_of(Options()))))
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), table, marks=MARKS), encoding="utf-8")


def lines(catalog: Catalog) -> Iterator[str]:
    """Yield a line for each model and length of prompt."""
    with tempfile.TemporaryDirectory() as folder:
        for name, numbers in MODELS.items():
            config = Path(folder) / f"{name.replace(' ', '_')}.json"
            config.write_text(json.dumps(config_of(*numbers)), encoding="utf-8")
            for prompt_tokens in PROMPTS:
                size = Options(prompt_tokens=prompt_tokens, output_tokens=ANSWER_TOKENS)
                free = _cells(config, catalog, size)
                limited = _cells(config, catalog, replace(size, max_ttft=TTFT_LIMIT, max_tpot=TPOT_LIMIT))
                yield f"| {name} | {prompt_tokens:,} | {free[0]} | {free[1]} | {limited[0]} |"


def config_of(
    width: int, layer_count: int, head_count: int, key_head_count: int, inner_width: int, vocabulary: int
) -> dict[str, object]:
    """Return a config for transformers of a dense model with gated feed-forward layers."""
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": width,
        "num_hidden_layers": layer_count,
        "num_attention_heads": head_count,
        "num_key_value_heads": key_head_count,
        "intermediate_size": inner_width,
        "vocab_size": vocabulary,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": width <= 3072,
    }


def _cells(config: Path, catalog: Catalog, options: Options) -> tuple[str, str]:
    """Return which kind is cheaper over the requests per day, and what the cheapest of each costs at one a day."""
    workload = profile_source(f"hf:{config}", options).workload
    answer = break_even(question_of(workload, options, catalog=catalog))
    curve = next((one for one in answer.curves if one.kind == "requests_per_day"), None)
    if curve is None:
        return "neither", "-"
    first = curve.points[0]
    return where(curve), "; ".join(_monthly(one) for one in (first.cpu, first.gpu))


def _monthly(contender: Contender | None) -> str:
    if contender is None:
        return "none"
    return f"{units.format_usd(contender.job_usd.mid)} ({contender.name})"


if __name__ == "__main__":
    main()
