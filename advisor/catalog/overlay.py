"""Determines the files in force and their order: flags, `./advisor.yaml`, the user's config folder, built-in files."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import platformdirs

from advisor.catalog.cache import content_key, read_cached, write_cached
from advisor.errors import UsageError
from advisor.files.regular_file import read_regular_file
from advisor.records.price import Catalog

OVERLAY_FILE = "advisor.yaml"
_PACKAGE = Path(__file__).resolve().parent.parent
_FOLDERS = {
    "gpus": "devices/gpu", "cpus": "devices/cpu", "efficiencies": "efficiency", "engines": "engines",
    "prices": "prices",
}  # fmt: skip
"""The folder of YAML files behind a field of a `Layer`."""
_FILES = (
    "gpu_parts", "billing", "extra_costs", "price_errors", "price_sources", "api_prices", "energy/gpu_power",
    "energy/cpu_power", "energy/grid",
)  # fmt: skip
"""The single YAML files of a layer; each is the field of its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A set of files that wins over the next layer, row by row.

    `name` is the user's name of an overlay, or "" for built-in files. `measured` is the folder of SpareCores' files,
    `wheels` the file of PyTorch's wheels; only the built-in layer has these. With `own_rates`, its prices are what the
    user pays, so no discounts apply.
    """

    name: str
    gpus: tuple[Path, ...] = ()
    cpus: tuple[Path, ...] = ()
    efficiencies: tuple[Path, ...] = ()
    engines: tuple[Path, ...] = ()
    prices: tuple[Path, ...] = ()
    gpu_parts: Path | None = None
    billing: Path | None = None
    extra_costs: Path | None = None
    price_errors: Path | None = None
    price_sources: Path | None = None
    api_prices: Path | None = None
    gpu_power: Path | None = None
    cpu_power: Path | None = None
    grid: Path | None = None
    wheels: Path | None = None
    measured: Path | None = None
    own_rates: bool = False

    def files(self) -> Iterator[Path]:
        """Yield every file of the layer."""
        if self.measured is not None:
            yield from sorted(self.measured.glob("*.yaml"))
        for value in (getattr(self, one.name) for one in fields(self) if one.name != "measured"):
            if isinstance(value, tuple):
                yield from value
            elif isinstance(value, Path):
                yield value


def layers(*, profiles: Path | None, prices: Sequence[Path], cwd: Path) -> list[Layer]:
    """Return the layers in force; the first wins, the built-in one is last.

    Raise `UsageError` if a requested folder or file is missing. A broken link is kept, so that reading it reports the
    error.
    """
    found: list[Layer] = []
    for file in prices:
        if not os.path.lexists(file):
            raise UsageError(f"--prices {file}: file does not exist", hint="name a YAML file of prices")
        found.append(Layer(name=str(file), prices=(file,), own_rates=True))
    if profiles is not None:
        if not profiles.is_dir():
            raise UsageError(
                f"--profiles {profiles}: folder does not exist", hint="name a folder that contains devices/ or prices/"
            )
        layer = _folder_layer(profiles, name=str(profiles))
        if not any(layer.files()):
            hint = "put YAML files into devices/gpu, devices/cpu, prices or efficiency in it"
            raise UsageError(f"--profiles {profiles}: no profiles in this folder", hint=hint)
        found.append(layer)
    config = platformdirs.user_config_path("advisor")
    own = (cwd / OVERLAY_FILE, config / OVERLAY_FILE)
    found.extend(Layer(name=str(file), prices=(file,), own_rates=True) for file in own if os.path.lexists(file))
    if (config / "profiles").is_dir():
        found.append(_folder_layer(config / "profiles", name=str(config / "profiles")))
    return [*found, shipped_layer()]


FileStates = tuple[tuple[Path, int, int], ...]
"""Files with their time of change in nanoseconds and their size in bytes."""


def file_states(*, profiles: Path | None, prices: Sequence[Path]) -> FileStates:
    """Return every file in force, so that an edit can be noticed; raise `UsageError` if one is missing."""
    try:
        in_force = layers(profiles=profiles, prices=prices, cwd=Path.cwd())
        states = [(file, file.stat()) for layer in in_force for file in layer.files()]
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}") from None
    return tuple((file, state.st_mtime_ns, state.st_size) for file, state in states)


def shipped_layer() -> Layer:
    """Return the layer of the built-in files."""
    shipped = shipped_profiles()
    layer = _folder_layer(shipped, name="")
    return replace(layer, measured=shipped / "sparecores", wheels=shipped / "torch_wheels.yaml")


def shipped_profiles() -> Path:
    """Return the folder of built-in profiles: inside the package in a wheel, beside it in a checkout."""
    for folder in (_PACKAGE / "profiles", _PACKAGE.parent / "profiles"):
        if (folder / "devices").is_dir():
            return folder
    raise FileNotFoundError(f"no profiles in or beside {_PACKAGE}: the installation is incomplete")


def starter_overlay() -> str:
    """Return the text of a starter overlay in which everything is commented out."""
    return read_regular_file(Path(__file__).parent / "starter.yaml").decode()


def _folder_layer(folder: Path, *, name: str) -> Layer:
    single = (folder / f"{file}.yaml" for file in _FILES)
    found: dict[str, Any] = {file.stem: file for file in single if os.path.lexists(file)}
    for field, place in _FOLDERS.items():
        files = (folder / place).glob("*")
        found[field] = tuple(sorted(file for file in files if file.suffix in (".yaml", ".yml")))
    return Layer(name=name, **found)


def load_catalog(*, profiles: Path | None = None, prices: Sequence[Path] = (), cwd: Path | None = None) -> Catalog:
    """Return all profiles and prices in force; the user's own `profiles` and `prices` win over the built-in ones.

    Raise `ProfileError` at the first invalid value, and `UsageError` for a missing file. `cwd` is the folder whose
    `advisor.yaml` is used (default: the current one).
    """
    in_force = layers(profiles=profiles, prices=prices, cwd=cwd or Path.cwd())
    folder = platformdirs.user_cache_path("advisor")
    key = content_key((file for layer in in_force for file in layer.files()), roles=repr(in_force))
    catalog = read_cached(folder, key=key)
    if catalog is None:
        # Imported here, because a cached catalog needs neither the YAML parser nor the checks.
        from advisor.catalog.parse import parse_catalog

        catalog = parse_catalog(in_force)
        write_cached(catalog, folder, key=key)
    return catalog
