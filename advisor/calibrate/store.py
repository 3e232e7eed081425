"""Calibrations to files of the user's cache folder and back.

A file is YAML: what was timed where and when, then an efficiency per class of precision, each as `profiles/efficiency`
has it. The numbers of the key stand there to the last digit, for it holds only where they are the same. A file that
cannot be read is left out and named; the next calibration of that device writes it anew.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import platformdirs

from advisor.errors import ProfileError
from advisor.files.whole_file import write_whole
from advisor.fit.files import number, yaml_text
from advisor.records.calibration import Calibration, CalibrationKey
from advisor.records.device import Efficiency

_HEADING = "# What this machine sustains, timed by `advise calibrate`; spreads are of log(measured / predicted)."


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The calibrations that are kept, and the files that are none, in words."""

    calibrations: tuple[Calibration, ...] = ()
    problems: tuple[str, ...] = ()


def folder() -> Path:
    """Where this user's calibrations are kept."""
    return platformdirs.user_cache_path("advisor") / "calibrations"


def file_of(key: CalibrationKey) -> Path:
    """The file of that device under those conditions."""
    digest = hashlib.sha256(json.dumps(asdict(key), sort_keys=True).encode()).hexdigest()
    return folder() / f"{key.device}-{digest[:12]}.yaml"


def read_stored() -> Stored:
    """Every calibration that is kept."""
    files = sorted(folder().glob("*.yaml"))
    if not files:
        return Stored()
    from advisor.catalog.calibrations import read_calibration  # with the YAML parser, which most runs do without

    found, problems = [], []
    for file in files:
        try:
            found.append(read_calibration(file))
        except ProfileError as error:
            problems.append(f"{error.message}: no calibration, left out")
    return Stored(calibrations=tuple(found), problems=tuple(problems))


def keep(calibration: Calibration) -> Path:
    """Write the file in one step: whoever reads it sees the former one or this one whole. Raises OSError."""
    file = file_of(calibration.key)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(calibration_text(calibration), file)
    return file


def unwritable() -> str:
    """Why no calibration can be kept, in words; "" where one can be. Makes the folder where it is not there."""
    import tempfile  # whoever only reads is spared it

    try:
        folder().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder()):
            return ""
    except OSError as error:
        return f"{folder()} cannot be written: {error.strerror}"


def calibration_text(calibration: Calibration) -> str:
    """The file: the header, then the efficiencies."""
    findings = {
        "at": calibration.at,
        "n": calibration.n,
        "planned_count": calibration.planned_count,
        "median_ape": calibration.median_ape,
        "warnings": list(calibration.warnings),
        "host_to_device_bytes_per_s": calibration.host_to_device_bytes_per_s,
        "precisions": [one.precision for one in calibration.efficiencies],
    }
    conditions = asdict(calibration.key)
    lines = [f"{name}: {json.dumps(value)}" for name, value in conditions.items() if value is not None]
    lines += [f"{name}: {_scalar(value)}" for name, value in findings.items() if value is not None]
    return "\n".join([_HEADING, *lines, "---", profile_text(calibration.efficiencies)])


def profile_text(efficiencies: tuple[Efficiency, ...]) -> str:
    """The efficiencies alone, as a file in `efficiency/` of a folder of profiles."""
    return "---\n".join(_efficiency_text(one) for one in efficiencies)


def _efficiency_text(efficiency: Efficiency) -> str:
    """As `make fit` writes one, with the device that it is of."""
    own = [f'device: "{efficiency.device}"']
    if efficiency.core_count is not None:
        own.append(f"core_count: {number(efficiency.core_count)}")
    shared = yaml_text(replace(efficiency, device="*", core_count=None)).splitlines()
    return "\n".join([_HEADING, *own, *shared[1:]]) + "\n"


def _scalar(value: Any) -> str:
    """JSON's texts and lists are YAML's."""
    return number(value) if isinstance(value, float) else json.dumps(value)
