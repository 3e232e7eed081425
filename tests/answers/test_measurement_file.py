from pathlib import Path

import pytest

from advisor.answers.measurement_file import has_column, read_measurements, source_of
from advisor.errors import UsageError
from tests.answers.toys import measurement

HEADER = "model,mode,precision,layout,compile,attention,batch,input,device,step_s,source"
ROW = "timm:vit,inference,amp-fp16,nhwc,compile,eager,8,3x224x224,t4,0.5,by hand"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mine.csv"


def write(file: Path, *lines: str) -> Path:
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def test_a_row_is_a_measurement_with_its_place(file: Path) -> None:
    assert read_measurements(write(file, HEADER, ROW)) == (
        measurement(
            model="timm:vit",
            precision="amp-fp16",
            layout="nhwc",
            compile="compile",
            attention="eager",
            input="3x224x224",
            step_s=0.5,
            file=str(file),
        ),
    )


def test_columns_come_in_any_order_and_those_with_a_default_may_be_empty_or_missing(file: Path) -> None:
    write(file, "step_s,device,batch,precision,mode,model,source,layout", "1,t4,8,fp32,inference,timm:vit,by hand,")
    assert read_measurements(file) == (measurement(model="timm:vit", file=str(file)),)


def test_a_byte_order_mark_as_spreadsheets_write_it_does_no_harm(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + f"{HEADER}\n{ROW}\n".encode())
    assert len(read_measurements(file)) == 1


def test_a_column_is_found_in_a_header_that_is_quoted_too(file: Path) -> None:
    for header in ("model,prompt_tokens", '"model","prompt_tokens"'):
        write(file, header, "hf:a.json,256")
        assert (has_column(file, "prompt_tokens"), has_column(file, "finetune")) == (True, False)
    assert not has_column(write(file, '"model,prompt_tokens'), "prompt_tokens")


@pytest.mark.parametrize(
    ("column", "cell", "message"),
    [
        ("batch", "eight", ":3: batch: found 'eight': input should be a valid integer"),
        ("batch", "0", ":3: batch: found '0': it is a count from 1"),
        ("batch", "1" + "0" * 20, f":3: batch: found '1{'0' * 20}': it is a count from 1, below 1e9"),
        ("step_s", "-1", ":3: step_s: found '-1': it is a number above 0"),
        ("step_s", "nan", ":3: step_s: found 'nan': it is a number above 0"),
        ("step_s", "", ":3: step_s: found '': input should be a valid number"),
        ("precision", "fp8", ":3: precision: found 'fp8': input should be 'fp32', 'cudnn-tf32', 'tf32'"),
        ("mode", "train", ":3: mode: found 'train': input should be 'inference', 'forward_backward' or 'training'"),
        ("device", " ", ":3: device: found '': it may not be empty"),
    ],
)
def test_a_wrong_cell_is_named_with_file_line_and_column(file: Path, column: str, cell: str, message: str) -> None:
    cells = dict(zip(HEADER.split(","), ROW.split(","), strict=True)) | {column: cell}
    write(file, HEADER, ROW, ",".join(cells.values()))
    with pytest.raises(UsageError) as caught:
        read_measurements(file)
    assert caught.value.message.startswith(f"{file}{message}")
    assert caught.value.hint


@pytest.mark.parametrize(
    ("header", "message", "hint"),
    [
        (HEADER.replace("device", "devise"), ":1: devise: no such column", "did you mean device?"),
        (HEADER.replace("step_s,", ""), ":1: step_s: the column is missing", "the columns are model, mode"),
        (f"{HEADER},batch", ":1: batch: the column comes twice", "remove one"),
    ],
)
def test_a_wrong_column_is_named(file: Path, header: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_measurements(write(file, header, ROW))
    assert caught.value.message == f"{file}{message}"
    assert caught.value.hint.startswith(hint)


def test_a_row_with_too_few_or_too_many_cells_is_named(file: Path) -> None:
    for row in ("timm:vit,inference", f"{ROW},more"):
        with pytest.raises(UsageError, match=r"\.csv:2: .*cells"):
            read_measurements(write(file, HEADER, row))


def test_a_file_that_is_no_table_is_refused(file: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_measurements(file)
    with pytest.raises(UsageError, match="holds no measurement"):
        read_measurements(write(file, HEADER))
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not UTF-8"):
        read_measurements(file)


def test_a_models_path_is_seen_from_the_files_folder_else_from_here(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = file.parent
    here = folder / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    for path in (folder / "net.py", folder / "bert.json", here / "own.py"):
        path.write_text("")
    sources = {
        "net.py::Net": f"{folder}/net.py::Net",
        "hf:bert.json": f"hf:{folder}/bert.json",
        "bert.json": f"{folder}/bert.json",
        "own.py": "own.py",
        "timm:vit@224": "timm:vit@224",
        "missing.py": "missing.py",
    }
    assert {model: source_of(measurement(model=model, file=str(file))) for model in sources} == sources
