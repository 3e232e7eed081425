import gzip
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import platformdirs
import pytest

from advisor.files.own_code import PACKAGE, code_files
from advisor.workload import trace_cache
from advisor.workload.dependencies import recorded_dependencies
from advisor.workload.file import workload_to_json
from advisor.workload.spawn import ProfileRequest
from tests.predict.toys import linear_row, workload

SAVED = workload(linear_row())
DOCUMENT = workload_to_json(SAVED)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: tmp_path / "cache" / name)
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text("SIZE = 1")


def request(source: str = "net.py", **changes: Any) -> ProfileRequest:
    return ProfileRequest(source=source, **changes)


def keep(asked: ProfileRequest | None = None, *names: str) -> None:
    """As after a trace that read net.py and `names`."""
    with recorded_dependencies("net.py", *names) as dependencies:
        pass
    trace_cache.write(asked or request(), DOCUMENT, dependencies=dependencies)


def test_what_was_written_is_read_again() -> None:
    assert trace_cache.read(request()) is None
    keep()
    assert trace_cache.read(request()) == SAVED


def test_more_patience_asks_for_the_same_trace() -> None:
    keep()
    assert trace_cache.read(request(timeout_s=1.0)) == SAVED


@pytest.mark.parametrize(
    "other",
    [
        request("net.py::Net"),
        request(mode="training"),
        request(batch=2),
        request(inputs=("8",)),
        request(attention="eager"),
    ],
)
def test_another_request_is_another_trace(other: ProfileRequest) -> None:
    keep()
    assert trace_cache.read(other) is None


def test_the_same_request_in_another_folder_is_another_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep()
    keep(request("timm:resnet18"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    Path("net.py").write_text("SIZE = 1")
    assert trace_cache.read(request()) is None
    assert trace_cache.read(request("timm:resnet18")) == SAVED


@pytest.mark.parametrize("name", ["net.py", "pkg/inner.py", "sizes.json", "not_there.json"])
def test_a_change_in_a_file_that_was_read_is_another_trace(name: str) -> None:
    Path("pkg").mkdir()
    Path("pkg/inner.py").write_text("SIZE = 1")
    Path("sizes.json").write_text("1")
    keep(None, "pkg/inner.py", "sizes.json", "not_there.json")
    assert trace_cache.read(request()) == SAVED
    Path(name).write_text("2")
    assert trace_cache.read(request()) is None


CODE_THAT_READS = """
import os
os.getenv("GETENV"), os.environ.get("GET", 1), "IN" in os.environ
os.environ.setdefault("SET", "mine"), os.environ["SET"]
os.environb.get(b"BYTES"), os.environ.get("CUDA_VISIBLE_DEVICES")
os.environ["WRITTEN"] = "mine"
"""


@pytest.fixture
def read_by_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SET", "WRITTEN"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    code = compile(CODE_THAT_READS, str(tmp_path / "net.py"), "exec")
    with recorded_dependencies("net.py") as dependencies:
        exec(code)
        Counter(os.environ)  # a library's own reads do not count
    for name in ("SET", "WRITTEN"):
        monkeypatch.delenv(name)
    trace_cache.write(request(), DOCUMENT, dependencies=dependencies)


@pytest.mark.usefixtures("read_by_code")
@pytest.mark.parametrize("name", ["GETENV", "GET", "IN", "SET", "BYTES"])
def test_a_change_in_a_variable_that_the_code_read_is_another_trace(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert trace_cache.read(request()) == SAVED
    monkeypatch.setenv(name, "2")
    assert trace_cache.read(request()) is None


@pytest.mark.usefixtures("read_by_code")
@pytest.mark.parametrize("name", ["WRITTEN", "CUDA_VISIBLE_DEVICES", "NEVER_READ"])
def test_a_change_in_another_variable_is_the_same_trace(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "2")
    assert trace_cache.read(request()) == SAVED


def keep_trace_of(code: str, folder: Path) -> None:
    """Run the code as the user's net.py, and keep a trace with what it read."""
    with recorded_dependencies("net.py") as dependencies:
        exec(compile(code, str(folder / "net.py"), "exec"))
    trace_cache.write(request(), DOCUMENT, dependencies=dependencies)


@pytest.mark.parametrize(
    "code",
    [
        "from pathlib import Path; Path('big.flag').exists()",
        "import os; os.path.isfile('big.flag')",
        "import os; os.path.lexists('big.flag')",
        "import os; os.path.exists('.')\ntry: os.path.getsize('big.flag')\nexcept OSError: pass",
    ],
)
def test_a_file_that_the_code_looked_for_and_that_is_there_now_is_another_trace(code: str, tmp_path: Path) -> None:
    keep_trace_of(code, tmp_path)
    assert trace_cache.read(request()) == SAVED
    Path("big.flag").touch()
    assert trace_cache.read(request()) is None


@pytest.mark.parametrize(
    "code",
    [
        "import subprocess; subprocess.run(['true'])",
        "import os; os.system('true')",
        "import socket\nwith socket.socket() as made: made.connect_ex(('127.0.0.1', 9))",
    ],
)
def test_code_that_asks_a_program_or_a_server_is_traced_each_time(code: str, tmp_path: Path) -> None:
    keep_trace_of(code, tmp_path)
    assert trace_cache.read(request()) is None


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages on `sys.path`, in which an import has looked already; `lib` is one of them."""
    folder = tmp_path / "site-packages"
    for name, text in {"lib/__init__.py": "SIZE = 1", "lib/sizes.json": "[1]", "lib_other.py": "SIZE = 1"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "lib-1.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(folder)
    assert find_spec("lib_none") is None
    return folder


def keep_of_code(tmp_path: Path, code: str) -> None:
    """As after a trace of net.py with this code, which may import `lib` for the first time."""
    with recorded_dependencies("net.py") as dependencies:
        exec(compile(code, str(tmp_path / "net.py"), "exec"))
    for name in ("lib", "lib_other"):
        sys.modules.pop(name, None)
    trace_cache.write(request(), DOCUMENT, dependencies=dependencies)
    assert trace_cache.read(request()) == SAVED


def edit(file: Path) -> None:
    """Change a file but not its length, one second after it was last changed."""
    changed_s = file.stat().st_mtime + 1
    file.write_text(file.read_text().replace("1", "2"))
    os.utime(file, (changed_s, changed_s))


@pytest.mark.parametrize("name", ["lib/__init__.py", "lib/sizes.json"])
def test_a_change_in_a_file_of_a_library_that_was_read_is_another_trace(
    name: str, library: Path, tmp_path: Path
) -> None:
    keep_of_code(tmp_path, "import lib, pathlib; pathlib.Path(lib.__file__).with_name('sizes.json').read_text()")
    edit(library / "lib_other.py")
    assert trace_cache.read(request()) == SAVED
    edit(library / name)
    assert trace_cache.read(request()) is None


def test_a_change_in_a_library_that_was_imported_before_the_trace_is_another_trace(
    library: Path, tmp_path: Path
) -> None:
    import_module("lib")
    keep_of_code(tmp_path, "import lib")
    edit(library / "lib/__init__.py")
    assert trace_cache.read(request()) is None


def test_a_change_in_an_extension_module_is_another_trace(library: Path, tmp_path: Path) -> None:
    (library / "lib/fast.so").write_text("1")
    # As CPython reports that it loads one; C code opens the file.
    keep_of_code(
        tmp_path, f"import sys; sys.audit('import', 'lib.fast', {str(library / 'lib/fast.so')!r}, *[None] * 3)"
    )
    edit(library / "lib/fast.so")
    assert trace_cache.read(request()) is None


@pytest.mark.parametrize("name", ["lib-1.1.dist-info", "lib_none"])
def test_a_library_that_is_installed_or_upgraded_is_another_trace(name: str, library: Path, tmp_path: Path) -> None:
    keep_of_code(tmp_path, "try: import lib_none\nexcept ImportError: pass")
    (library / name).mkdir()
    assert trace_cache.read(request()) is None


def test_other_folders_of_libraries_are_another_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    keep()
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    assert trace_cache.read(request()) is None


def test_a_script_is_run_each_time() -> None:
    keep(request(run=True))
    assert trace_cache.read(request(run=True)) is None


def test_code_that_searches_all_variables_depends_on_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with recorded_dependencies() as dependencies:
        exec(compile("import os; [n for n in os.environ if n.startswith('NET_')]", str(tmp_path / "net.py"), "exec"))
    trace_cache.write(request(), DOCUMENT, dependencies=dependencies)
    assert trace_cache.read(request()) == SAVED
    monkeypatch.setenv("NET_WIDTH", "2")
    assert trace_cache.read(request()) is None


def test_a_setting_of_a_model_library_is_another_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    keep(request("timm:resnet18"))
    monkeypatch.setenv("TIMM_FUSED_ATTN", "0")
    assert trace_cache.read(request("timm:resnet18")) is None


def test_a_file_that_became_a_pipe_is_another_trace() -> None:
    Path("data").write_text("1")
    keep(None, "data")
    Path("data").unlink()
    os.mkfifo("data")
    assert trace_cache.read(request()) is None


def test_another_version_of_torch_is_another_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    keep()
    monkeypatch.setattr(metadata, "version", lambda package: "0.1")
    trace_cache._program_digest.cache_clear()
    try:
        assert trace_cache.read(request()) is None
    finally:
        trace_cache._program_digest.cache_clear()


SHOW_OWN_MODULES = """
import sys
from advisor.workload.spawn import ProfileRequest
from advisor.workload.trace_child import _profile

_profile(ProfileRequest(source="net.py", mode="training"))
print(*(module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "advisor"), sep="\\n")
"""


def test_the_program_digest_covers_what_a_trace_imports_and_no_room_above_it() -> None:
    Path("net.py").write_text("import torch; model = torch.nn.Linear(2, 2); example_inputs = torch.zeros(1, 2)")
    shown = subprocess.run([sys.executable, "-c", SHOW_OWN_MODULES], capture_output=True, text=True, check=True)
    imported = {Path(line) for line in shown.stdout.splitlines()}
    covered = set(code_files(*trace_cache._CODE))
    assert {PACKAGE / "records/fine_tuning.py", PACKAGE / "workload/trace.py"} < imported
    assert imported - {PACKAGE / "__init__.py"} <= covered
    rooms = {file.relative_to(PACKAGE).parts[0] for file in covered}
    assert rooms.isdisjoint({"catalog", "cost", "predict", "report", "scale"})


@pytest.mark.parametrize("spoil", [lambda kept: kept[:-9], lambda kept: b"", lambda kept: b"nothing like it"])
def test_a_file_that_is_not_whole_is_ignored(spoil: Callable[[bytes], bytes]) -> None:
    keep()
    (file,) = trace_cache.folder().iterdir()
    file.write_bytes(spoil(file.read_bytes()))
    assert trace_cache.read(request()) is None


@pytest.mark.parametrize(
    "entry",
    [
        b"[" * 100_000,
        b"[]",
        b"{}",
        b'{"dependencies": 1, "workload": {}}',
        b'{"dependencies": {"net.py": 1}, "workload": {}}',
        b'{"dependencies": {}, "workload": {"schema_version": 1, "rows": {"op": [1]}}}',
    ],
)
def test_a_forged_entry_is_ignored(entry: bytes) -> None:
    keep()
    (file,) = trace_cache.folder().iterdir()
    file.write_bytes(gzip.compress(entry))
    assert trace_cache.read(request()) is None


def test_an_entry_that_is_no_file_is_ignored() -> None:
    keep()
    (file,) = trace_cache.folder().iterdir()
    file.unlink()
    os.mkfifo(file)
    assert trace_cache.read(request()) is None


def test_an_entry_whose_files_were_forged_holds_only_where_they_are_there() -> None:
    keep()
    (file,) = trace_cache.folder().iterdir()
    entry = json.loads(gzip.decompress(file.read_bytes()))
    entry["dependencies"]["/not/there"] = "file 00"
    file.write_bytes(gzip.compress(json.dumps(entry).encode()))
    assert trace_cache.read(request()) is None


def test_a_folder_that_cannot_be_written_is_no_error() -> None:
    Path("cache").write_text("a file where the folder should be")
    keep()
    trace_cache.forget_oldest()
    assert trace_cache.read(request()) is None


def test_the_oldest_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_cache, "_KEPT_COUNT", 2)
    for age, batch in enumerate((3, 2, 1)):
        keep(request(batch=batch))
        newest = max(trace_cache.folder().iterdir(), key=lambda file: file.stat().st_mtime_ns)
        os.utime(newest, (age, age))
    trace_cache.forget_oldest()
    assert [trace_cache.read(request(batch=batch)) is None for batch in (3, 2, 1)] == [True, False, False]
