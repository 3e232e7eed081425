"""Checks that a change of the code leaves all answers the same, to 12 digits.

    python scripts/compare_answers.py write before/           (before the change)
    python scripts/compare_answers.py write after/            (after the change)
    python scripts/compare_answers.py compare before/ after/

`write` runs `advise` commands on the examples and writes the JSON of each into the folder; `compare` lists the answers
that differ. Run both `write` commands on the same day, since answers contain the age of prices. Digits beyond the 12th
are ignored because they depend on the order of summation.
"""

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

EXAMPLES = ("mlp.py", "small_cnn.py", "resnet50.py", "lstm.py", "transformer.py", "word_embedding.py")
CONFIGS = ("bert_base.json", "gpt2.json")
SERVED = "hf:examples/configs/llama3_8b.json"
PORTABLE = ("--no-local", "-o", "json")
"""Options that make an answer independent of the machine."""


def commands() -> dict[str, tuple[str, ...]]:
    """Return every command to run, by the name of its answer's file."""
    models = {Path(name).stem: f"examples/{name}" for name in EXAMPLES}
    models |= {Path(name).stem: f"hf:examples/configs/{name}" for name in CONFIGS}
    found: dict[str, tuple[str, ...]] = {}
    for name, source in models.items():
        for mode in ("inference", "training"):
            found[f"rank-{name}-{mode}"] = ("rank", source, "--mode", mode, *PORTABLE)
            found[f"memory-{name}-{mode}"] = (
                "memory",
                source,
                "--mode",
                mode,
                "--on",
                "t4",
                "--on",
                "l4",
                "-o",
                "json",
            )
        found[f"explain-{name}"] = ("explain", source, "--batch", "8", "--on", "t4", "--on", "c7a.4xlarge", *PORTABLE)
        found[f"breakeven-{name}"] = ("breakeven", source, *PORTABLE)
        found[f"profile-{name}"] = ("profile", source, "--mode", "training", "-o", "json")
    found["rank-job"] = (
        "rank",
        models["resnet50"],
        "--samples",
        "1e8",
        "--deadline",
        "24h",
        "--max-usd",
        "50",
        *PORTABLE,
    )
    found["rank-gpus"] = (
        "rank",
        models["transformer"],
        "--mode",
        "training",
        "--batch",
        "256",
        "--gpus",
        "4",
        *PORTABLE,
    )
    found["rank-served"] = ("rank", SERVED, "--prompt-tokens", "1024", "--output-tokens", "256", *PORTABLE)
    found["prices"] = ("prices", "list", "-o", "json")
    return found


def answer(command: tuple[str, ...]) -> dict[str, Any]:
    """Run the command; return its exit code and its JSON, or its error message."""
    done = subprocess.run([sys.executable, "-m", "advisor", *command], capture_output=True, text=True, check=False)
    return {"exit_code": done.returncode, "answer": json.loads(done.stdout) if done.stdout else done.stderr}


def write(folder: Path) -> None:
    """Write the answer of every command into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(max_workers=2) as pool:
        for name, found in zip(commands(), pool.map(answer, commands().values()), strict=True):
            (folder / f"{name}.json").write_text(json.dumps(found, indent=1), encoding="utf-8")


def differences(before: Any, after: Any, *, where: str = "") -> Iterator[str]:
    """Yield a line for every place where two JSON values differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            yield from differences(before.get(key), after.get(key), where=f"{where}.{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, where=f"{where}[{index}]")
    elif isinstance(before, float) and isinstance(after, float) and math.isclose(before, after, rel_tol=1e-12):
        return
    elif before != after:
        yield f"{where}: {str(before)[:60]} -> {str(after)[:60]}"


def compare(before: Path, after: Path) -> int:
    """Print the differences between two folders; return 1 if there are any."""
    names = sorted({file.name for folder in (before, after) for file in folder.glob("*.json")})
    changed = 0
    for name in names:
        pair = [json.loads((folder / name).read_text(encoding="utf-8")) for folder in (before, after)]
        found = list(differences(*pair))
        changed += bool(found)
        for line in found[:5]:
            print(f"{name}{line}")
        if len(found) > 5:
            print(f"{name}: {len(found) - 5} more")
    print(f"{len(names)} answers, {changed} changed")
    return 1 if changed else 0


def main() -> int:
    """Run `write FOLDER` or `compare BEFORE AFTER`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("write", "compare"))
    parser.add_argument("folders", nargs="+", type=Path, help="one folder to write, or two to compare")
    arguments = parser.parse_args()
    if arguments.action == "compare":
        return compare(*arguments.folders)
    write(*arguments.folders)
    return 0


if __name__ == "__main__":
    sys.exit(main())
