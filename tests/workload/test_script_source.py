"""What a script's code says without running it."""

from pathlib import Path

from advisor.workload.script_source import ScriptSource


def write(folder: Path, **modules: str) -> Path:
    for name, text in modules.items():
        file = folder / f"{name.replace('__', '/')}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return folder / "main.py"


def test_imports_are_those_of_neither_python_nor_the_folder(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        main="import os, numpy.linalg\nfrom torch import nn\nimport parts.model\n\ndef f():\n    import wandb\n",
        parts__model="import timm\nfrom parts.layers import Block\nfrom . import layers\n",
        parts__layers="import einops\nimport main\n",
    )
    assert ScriptSource(path).imports == ("einops", "numpy", "timm", "torch", "wandb")


def test_code_trains_if_it_has_what_only_training_needs(tmp_path: Path) -> None:
    def trains(text: str, **modules: str) -> bool:
        return ScriptSource(write(tmp_path, main=text, **modules)).trains

    assert trains("loss.backward()")
    assert trains("from torch.optim import Adam")
    assert trains("from transformers import Seq2SeqTrainer")
    assert trains("from steps import run", steps="def run(loss):\n    loss.backward()\n")
    assert not trains("model.eval()\nmodel(x)\n# loss.backward()\nprint('optim')\n")


def test_variables_of_torchrun_without_a_default_are_needed(tmp_path: Path) -> None:
    def needs(text: str) -> bool:
        return ScriptSource(write(tmp_path, main=text)).needs_torchrun

    assert needs("import os\nrank = int(os.environ['LOCAL_RANK'])")
    assert not needs("import os\nrank = os.environ.get('LOCAL_RANK', 0)")
    assert not needs("import os\nos.environ['MASTER_ADDR'] = 'localhost'")
    assert not needs("rank = settings['rank']")


def test_code_that_is_no_python_says_nothing(tmp_path: Path) -> None:
    source = ScriptSource(write(tmp_path, main="def broken(:\n"))
    assert (source.imports, source.trains) == ((), False)
