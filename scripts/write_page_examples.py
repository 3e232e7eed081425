"""Writes the saved workloads that the page of `advise serve` offers as examples.

    python scripts/write_page_examples.py

Traces the sources below, which needs torchvision and transformers, and writes the workloads into
`advisor/serve/page_files/examples/`.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "advisor" / "serve" / "page_files" / "examples"
SOURCES = {
    "resnet50": ("torchvision:resnet50",),
    "resnet50-training": ("torchvision:resnet50", "--mode", "training"),
    "gpt2-training": ("hf:examples/configs/gpt2.json", "--mode", "training"),
    "llama3-8b-service": ("hf:examples/configs/llama3_8b.json", "--prompt-tokens", "1024", "--output-tokens", "256"),
    "bert": ("hf:examples/configs/bert_base.json",),
    "lstm": ("examples/lstm.py",),
    "mlp": ("examples/mlp.py",),
}


def main() -> None:
    """Trace each source with `advise profile` in a separate process, as a user does."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, arguments in SOURCES.items():
        command = [sys.executable, "-m", "advisor", "profile", *arguments, "-o", str(FOLDER / f"{name}.json")]
        subprocess.run(command, cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
