"""Writes the table and the picture of docs/language-models.md that say when a CPU is enough for a language model.

    python scripts/write_crossovers.py

For dense models of 0.1 to 70 billion parameters, prompts of two lengths, and with or without limits on the latency: the
requests per day from which the cheapest GPUs cost less than the cheapest CPUs, and what one of each costs a month. The
picture has the cheapest kind of machine for each model and each power of ten of the load.
"""

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from write_seed_table import ROOT, where, with_table

from advisor import units
from advisor.answers.break_even import break_even
from advisor.devices.named_machine import named_machine
from advisor.question.from_source import catalog_of, profile_source, question_of
from advisor.records.answer import Contender
from advisor.records.break_even_curves import Curve
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
PICTURE = ROOT / "docs" / "crossovers.svg"
SMALL_BYTES = 24 * 2**30
"""The most memory of all GPUs of a machine that counts as small: one T4, L4 or A10, or a part of a larger one."""
_COLORS = {"CPU": "#0072b2", "small GPU": "#e69f00", "large GPU": "#d55e00"}
"""As the report's series; told apart with every kind of colour blindness."""
_GRIDS = (
    ("Requests a day, prompts of 1,024 tokens", 1024, False),
    ("Requests a day, prompts of 8,192 tokens", 8192, False),
    ("The same of 1,024 tokens, within 2 s and 100 ms", 1024, True),
)
_DECADES = 8
_WIDTH, _LEFT, _TOP, _COLUMN, _ROW, _GAP = 464, 56, 68, 50, 22, 66
_HEAD = (
    "| model | prompt | cheaper at requests a day | monthly cost at one request a day: CPU; GPU "
    "| the same within 2 s and 100 ms a token |",
    "| --- | --- | --- | --- | --- |",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The costs of one model over its load, with prompts of one length; None if nothing serves it within the limits."""

    name: str
    prompt_tokens: int
    free: Curve | None
    limited: Curve | None


def main() -> None:
    """Write the table and the picture."""
    catalog = catalog_of(Options())
    found = list(cases(catalog))
    table = "\n".join((*_HEAD, *map(_line, found)))
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), table, marks=MARKS), encoding="utf-8")
    PICTURE.write_text(picture(found, catalog), encoding="utf-8")


def cases(catalog: Catalog) -> Iterator[Case]:
    """Yield each model with each length of prompt."""
    with tempfile.TemporaryDirectory() as folder:
        for name, numbers in MODELS.items():
            config = Path(folder) / f"{name.replace(' ', '_')}.json"
            config.write_text(json.dumps(config_of(*numbers)), encoding="utf-8")
            for prompt_tokens in PROMPTS:
                size = Options(prompt_tokens=prompt_tokens, output_tokens=ANSWER_TOKENS)
                limited = replace(size, max_ttft=TTFT_LIMIT, max_tpot=TPOT_LIMIT)
                yield Case(
                    name=name,
                    prompt_tokens=prompt_tokens,
                    free=_curve(config, catalog, size),
                    limited=_curve(config, catalog, limited),
                )


def _line(case: Case) -> str:
    cells = ["neither" if curve is None else where(curve) for curve in (case.free, case.limited)]
    first = None if case.free is None else case.free.points[0]
    monthly = "-" if first is None else "; ".join(_monthly(one) for one in (first.cpu, first.gpu))
    return f"| {case.name} | {case.prompt_tokens:,} | {cells[0]} | {monthly} | {cells[1]} |"


def picture(found: Sequence[Case], catalog: Catalog) -> str:
    """Return the SVG: one grid for each of `_GRIDS`, of models by powers of ten of the load, by what is cheapest."""
    names, loads = list(MODELS), range(_DECADES)
    height = _TOP + len(_GRIDS) * (_DECADES * _ROW + _GAP)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        'font-family="system-ui, Helvetica, Arial, sans-serif" font-size="15" fill="#1b1f24">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for number, (kind, color) in enumerate(_COLORS.items()):
        x = 8 + number * 152
        lines.append(f'<rect x="{x}" y="8" width="16" height="16" fill="{color}"/>')
        lines.append(f'<text x="{x + 22}" y="21">{kind}</text>')
    for number, (title, prompt_tokens, is_limited) in enumerate(_GRIDS):
        top = _TOP + number * (_DECADES * _ROW + _GAP)
        lines.append(f'<text x="8" y="{top - 10}" font-weight="600">{title}</text>')
        by_name = {case.name: case for case in found if case.prompt_tokens == prompt_tokens}
        for load in loads:
            y = top + (_DECADES - 1 - load) * _ROW
            label = ("1", "10", "100", "1k", "10k", "100k", "1M", "10M")[load]
            lines.append(f'<text x="{_LEFT - 8}" y="{y + 16}" text-anchor="end">{label}</text>')
            for column, name in enumerate(names):
                curve = by_name[name].limited if is_limited else by_name[name].free
                color = _COLORS.get(_cheapest(curve, 10**load, catalog), "#ffffff")
                x = _LEFT + column * _COLUMN
                lines.append(f'<rect x="{x}" y="{y}" width="{_COLUMN - 2}" height="{_ROW - 2}" fill="{color}"/>')
        for column, name in enumerate(names):
            middle, below = _LEFT + (column + 0.5) * _COLUMN, top + _DECADES * _ROW + 15
            lines.append(f'<text x="{middle}" y="{below}" text-anchor="middle">{name.split()[-1]}</text>')
    return "\n".join((*lines, "</svg>", ""))


def _cheapest(curve: Curve | None, load: int, catalog: Catalog) -> str:
    """Return the key of `_COLORS` of the cheapest machine at this load; empty if there is none."""
    point = None if curve is None else next((one for one in curve.points if one.at == load), None)
    contenders = [one for one in (point.cpu, point.gpu) if one is not None] if point else []
    if not contenders:
        return ""
    best = min(contenders, key=lambda one: one.job_usd.mid)
    if best.device.kind == "cpu":
        return "CPU"
    device = named_machine(best.id, catalog).device
    return "small GPU" if device.memory_bytes * device.gpu_count <= SMALL_BYTES else "large GPU"


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


def _curve(config: Path, catalog: Catalog, options: Options) -> Curve | None:
    """Return the costs of both kinds over the requests per day; None if neither does the job."""
    workload = profile_source(f"hf:{config}", options).workload
    answer = break_even(question_of(workload, options, catalog=catalog))
    return next((one for one in answer.curves if one.kind == "requests_per_day"), None)


def _monthly(contender: Contender | None) -> str:
    if contender is None:
        return "none"
    return f"{units.format_usd(contender.job_usd.mid)} ({contender.name})"


if __name__ == "__main__":
    main()
