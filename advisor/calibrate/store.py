"""Writes calibrations to the user's cache folder and reads them back.

A file is YAML: a header that says what was timed where and when, then an efficiency per precision class, in the format
of `profiles/efficiency`. The key's numbers are written with all digits, since they must match exactly. A file that
cannot be read is ignored and reported; the next calibration of the device removes it.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import platformdirs

from advisor.errors import ProfileError
from advisor.files.whole_file import write_whole
from advisor.fit.files import number, yaml_text
from advisor.records.calibration import Calibration, CalibrationKey
from advisor.records.device import Efficiency

_HEADING = "# What this machine sustains, timed by `advise calibrate`; spreads are of log(measured / predicted)."
_DIGITS = 12
"""Length of the digest in a file's name, enough to make a collision among a few thousand unlikely."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The stored calibrations, and a message on the files that cannot be read."""

    calibrations: tuple[Calibration, ...] = ()
    problems: tuple[str, ...] = ()


def folder() -> Path:
    """Return the folder of this user's calibrations."""
    return platformdirs.user_cache_path("advisor") / "calibrations"


def read_stored() -> Stored:
    """Read every stored calibration."""
    found, reasons = [], []
    for _, calibration in _files():
        if isinstance(calibration, Calibration):
            found.append(calibration)
        else:
            reasons.append(calibration.message)
    if not reasons:
        return Stored(calibrations=tuple(found))
    more = f" (the first of {len(reasons)} files)" if reasons[1:] else ""
    problem = f"not a calibration of this version, ignored: {reasons[0]}{more}; `advise calibrate` makes a new one"
    return Stored(calibrations=tuple(found), problems=(problem,))


def keep(calibration: Calibration) -> Path:
    """Write the calibration to the file of its key, atomically, and return the path; then remove outdated files.

    Raises OSError if it cannot be written; all other files then stay.
    """
    digest = hashlib.sha256(json.dumps(asdict(calibration.key), sort_keys=True).encode()).hexdigest()
    file = folder() / f"{calibration.key.device}-{digest[:_DIGITS]}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(calibration_text(calibration), file)
    for outdated in _outdated_by(calibration.key):
        with suppress(OSError):  # it then stays, ignored as before
            outdated.unlink()
    return file


def code_of(key: CalibrationKey) -> str:
    """Return the digest of the code in the key's `program`, without that of the datasheet."""
    return key.program.partition("-")[0]


def _files() -> Iterator[tuple[Path, Calibration | ProfileError]]:
    """Yield every file in order of names, with its calibration, or the error if it cannot be read."""
    for file in sorted(folder().glob("*.yaml")):
        from advisor.catalog.device_files import (
            read_calibration,
        )  # imports the YAML parser, which most runs do not need

        try:
            yield file, read_calibration(file)
        except ProfileError as error:
            yield file, error


def _outdated_by(key: CalibrationKey) -> list[Path]:
    """Return the files of the key's device that cannot be read, or that other code made: no answer can use them.

    A file that cannot be read is of the device in its name. Calibrations under other conditions, or with another
    datasheet, stay, because these may come back.
    """
    name = re.compile(rf"{re.escape(key.device)}-[0-9a-f]{{{_DIGITS}}}\.yaml")

    def is_outdated(file: Path, found: Calibration | ProfileError) -> bool:
        if isinstance(found, ProfileError):
            return name.fullmatch(file.name) is not None
        return found.key.device == key.device and code_of(found.key) != code_of(key)

    return [file for file, found in _files() if is_outdated(file, found)]


def calibration_text(calibration: Calibration) -> str:
    """Return the text of the file: the header, then the efficiencies."""
    findings = {
        field.name: getattr(calibration, field.name)
        for field in fields(calibration)
        if field.name not in ("key", "efficiencies")
    } | {"precisions": [one.precision for one in calibration.efficiencies]}
    conditions = asdict(calibration.key)
    lines = [f"{name}: {json.dumps(value)}" for name, value in conditions.items() if value is not None]
    # JSON's strings and lists are YAML too.
    lines += [
        f"{name}: {number(value) if isinstance(value, float) else json.dumps(value)}"
        for name, value in findings.items()
        if value is not None
    ]
    return "\n".join([_HEADING, *lines, "---", profile_text(calibration.efficiencies)])


def profile_text(efficiencies: tuple[Efficiency, ...]) -> str:
    """Return the text of the efficiencies only, as a file in `efficiency/` of a profile folder.

    It is the text that `make fit` writes, with the calibrated device.
    """
    texts = []
    for one in efficiencies:
        own = [
            f'device: "{one.device}"',
            *([] if one.core_count is None else [f"core_count: {number(one.core_count)}"]),
        ]
        shared = yaml_text(replace(one, device="*", core_count=None)).splitlines()
        texts.append("\n".join([_HEADING, *own, *shared[1:]]) + "\n")
    return "---\n".join(texts)
