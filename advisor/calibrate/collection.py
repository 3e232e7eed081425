"""Merges calibrations collected from other machines into profiles for `--profiles`.

The collected files are not changed, so collecting again is safe. For each device (for a CPU, with a core count) and
precision the calibration with the newest torch wins, then the one with the most operators, then the latest.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from advisor.calibrate.in_force import is_of_this_program, torch_version
from advisor.calibrate.store import profile_text
from advisor.errors import ProfileError, UsageError
from advisor.files.regular_file import read_regular_file
from advisor.files.whole_file import write_whole
from advisor.records.calibration import Calibration, Collected, CollectedDevice
from advisor.records.device import Efficiency
from advisor.records.price import Catalog

BACK = "back"
"""The folder of a fleet's calibrations, with a subfolder for each machine."""
_HEADING = "# Collected by `advise calibrate --collect`, which writes it anew.\n"

_Found: TypeAlias = tuple[Path, Calibration]


def collect(folder: Path, catalog: Catalog) -> Collected:
    """Write `efficiency/` in the folder from the calibrations in `back/`, one file for each device.

    Raises `UsageError`, and writes nothing, if there are no calibrations or a file of the user's own would be
    overwritten.
    """
    files = sorted((folder / BACK).rglob("*.yaml"))
    if not files:
        raise UsageError(
            f"--collect {folder}: no calibrations in {folder / BACK}",
            hint="copy each machine's calibrations there; `advise calibrate --fleet` prints how",
        )
    found: list[_Found] = []
    unread: list[str] = []
    for file in files:
        try:
            calibration = _read(file, catalog)
        except ProfileError as error:
            unread.append(error.message)
        else:
            found.append((file, calibration))
    if not found:
        listed = "".join(f"\n  {problem}" for problem in unread)
        raise UsageError(
            f"--collect {folder}: none of {len(files)} files can be used:{listed}",
            hint="copy them again, or calibrate again with this version of advise",
        )
    targets: dict[tuple[str, float | None], list[_Found]] = {}
    for one in found:
        targets.setdefault((one[1].key.device, one[1].key.core_count), []).append(one)
    problems = [f"{problem}: left out" for problem in unread]
    devices, texts = [], {}
    for (device, core_count), of_target in targets.items():
        holding = _holding(of_target)
        cores = "" if core_count is None else f"-{core_count:g}-cores"
        path = folder / "efficiency" / f"{device}{cores}.yaml"
        texts[path] = _HEADING + profile_text(tuple(efficiency for _, efficiency in holding))
        problems.extend(_left_out(of_target, holding))
        devices.append(_device(path, holding))
    _write(texts, folder)
    return Collected(devices=tuple(devices), problems=tuple(problems))


def _read(file: Path, catalog: Catalog) -> Calibration:
    """Read a calibration; raise `ProfileError` if it is none, or if this version of advise cannot use it."""
    from advisor.catalog.device_files import read_calibration  # imports the YAML parser, which most runs do not need

    calibration = read_calibration(file)
    device = calibration.key.device
    if device not in catalog.gpus and device not in catalog.cpus:
        raise ProfileError(f"no profile describes the device {device!r}", where=str(file))
    if any(one.device != device for one in calibration.efficiencies):
        raise ProfileError(f"contains efficiencies of devices other than {device}", where=str(file))
    if not is_of_this_program(calibration.key):
        raise ProfileError("made by another version of advise, whose figures are not comparable", where=str(file))
    return calibration


def _holding(found: Sequence[_Found]) -> list[tuple[_Found, Efficiency]]:
    """Return the best efficiency at each precision, with the calibration that it is from."""
    best: dict[str, tuple[_Found, Efficiency]] = {}

    def rank(one: _Found) -> tuple[tuple[int, ...], int, str, str]:
        file, calibration = one
        return _version(calibration.key.torch), calibration.n, calibration.at, str(file)

    for one in sorted(found, key=rank):
        best.update({efficiency.precision: (one, efficiency) for efficiency in one[1].efficiencies})
    return [best[precision] for precision in sorted(best)]


def _version(text: str) -> tuple[int, ...]:
    """Return the numbers of a release: (2, 13, 0) for "2.13.0+cu128"."""
    return tuple(int(digits) for digits in re.findall(r"\d+", text.partition("+")[0]))


def _left_out(found: Sequence[_Found], holding: Sequence[tuple[_Found, Efficiency]]) -> Iterator[str]:
    """Yield the calibrations that are left out, with the reason, and those made with another torch.

    A duplicate is not reported.
    """
    used = [one for one, _ in holding]
    here = torch_version()
    for file, calibration in found:
        if all(file != other for other, _ in used):
            better_file, better = used[0]
            if calibration != better:
                yield f"{file}: left out in favor of {better_file}, {_why_better(better, calibration)}"
        elif _version(calibration.key.torch) != _version(here):
            yield f"{file}: timed with torch {calibration.key.torch}; this machine has {here or 'none'}"


def _why_better(better: Calibration, other: Calibration) -> str:
    if _version(better.key.torch) != _version(other.key.torch):
        return f"which was timed with torch {better.key.torch}, not {other.key.torch}"
    if better.n != other.n:
        return f"which has {better.n} operators, not {other.n}"
    return f"which was made at {better.at}, not {other.at}"


def _device(path: Path, holding: Sequence[tuple[_Found, Efficiency]]) -> CollectedDevice:
    (_, first), _ = holding[0]
    return CollectedDevice(
        device=first.key.device,
        core_count=first.key.core_count,
        precisions=tuple(efficiency.precision for _, efficiency in holding),
        torch=tuple(sorted({calibration.key.torch for (_, calibration), _ in holding}, key=_version)),
        at=max(calibration.at for (_, calibration), _ in holding),
        file=path,
    )


def _write(texts: dict[Path, str], folder: Path) -> None:
    """Write each file at once, after checking that none of them is the user's own."""
    for path in texts:
        try:
            is_own = path.exists() and not read_regular_file(path).startswith(_HEADING.encode())
        except OSError:
            is_own = True
        if is_own:
            raise UsageError(f"--collect {folder}: {path} is a file of your own", hint="move or rename it")
    try:
        (folder / "efficiency").mkdir(exist_ok=True)
        for path, text in texts.items():
            write_whole(text, path)
    except OSError as error:
        raise UsageError(
            f"--collect {folder}: cannot be written to: {error.strerror}", hint="check its permissions"
        ) from error
