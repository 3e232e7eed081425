from pathlib import Path

import pytest
import torch
from torch import nn

from advisor.errors import LoadError
from advisor.workload.input_spec import parse_input_specs
from advisor.workload.loaded import AS_EXPORTED, LoadedModel
from advisor.workload.sources.exported import load
from advisor.workload.sources.live import load_live

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


def exported(folder: Path, **how: object) -> str:
    path = folder / "net.pt2"
    program = torch.export.export(nn.Linear(3, 2), (torch.zeros(4, 3),), **how)  # type: ignore[arg-type]
    torch.export.save(program, path)
    return str(path)


def load_inference(path: str) -> LoadedModel:
    return load(path, mode="inference", specs=())


def test_the_batch_of_an_exported_program_is_fixed(tmp_path: Path) -> None:
    loaded = load_inference(exported(tmp_path))
    assert (loaded.name, loaded.batch, loaded.batch_is_fixed) == ("net", 4, True)
    args, keywords = loaded.make_inputs(4)
    assert loaded.model(*args, **keywords).shape == (4, 2)
    with pytest.raises(LoadError, match=r"\bbatch\b.*\b4\b.*\b8\b") as caught:
        loaded.make_inputs(8)
    assert "dynamic_shapes" in caught.value.hint


def test_a_batch_exported_as_dynamic_is_free(tmp_path: Path) -> None:
    loaded = load_inference(exported(tmp_path, dynamic_shapes=({0: torch.export.Dim("batch")},)))
    assert not loaded.batch_is_fixed
    args, keywords = loaded.make_inputs(7)
    assert loaded.model(*args, **keywords).shape == (7, 2)


def test_switching_to_training_changes_nothing_and_raises_nothing(tmp_path: Path) -> None:
    loaded = load_inference(exported(tmp_path))
    assert loaded.model.train().eval() is loaded.model
    assert any("as they were on export" in note for note in loaded.notes)


def test_other_inputs_than_the_exported_ones_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="exported"):
        load(exported(tmp_path), mode="inference", specs=parse_input_specs(["5"]))


@pytest.mark.parametrize("content", [b"", b"not a program"])
def test_a_file_that_is_no_program_is_refused_before_torch_logs_a_traceback(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "bad.pt2"
    file.write_bytes(content)
    with pytest.raises(LoadError, match=r"bad\.pt2.*not an exported program") as caught:
        load_inference(str(file))
    assert "torch.export.save" in caught.value.hint


def test_what_torch_save_wrote_is_refused_before_torch_logs_a_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "weights.pt2"
    torch.save(nn.Linear(3, 3).state_dict(), file)
    with pytest.raises(LoadError, match=r"weights\.pt2 is not an exported program"):
        load_inference(str(file))
    assert "Traceback" not in capfd.readouterr().err


def test_a_module_that_was_exported_says_so_too() -> None:
    module = torch.export.export(nn.Linear(3, 2), (torch.zeros(4, 3),)).module()
    assert load_live(module, torch.zeros(4, 3)).notes == (AS_EXPORTED,)
