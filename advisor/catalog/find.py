"""A device's name as a person, a data sheet or torch writes it in, the device out."""

import re
from difflib import get_close_matches

from advisor.errors import UsageError
from advisor.records.device import Cpu, Gpu
from advisor.records.price import Catalog

_BRANDS = ("nvidia", "amd", "intel", "aws", "tesla", "geforce", "instinct", "radeon")
"""Words that names carry or not: torch says "NVIDIA A100-SXM4-40GB" and "Tesla T4"."""

_LEADING_BRANDS = re.compile(rf"^(?:{'|'.join(_BRANDS)})+")

_DECORATION = re.compile(
    r"\((?:R|TM)\)|^\d+th Gen |\bCPU\b|@ [\d.]+ ?GHz$|\b\d+-Cores?\b|\bProcessor$", flags=re.IGNORECASE
)
"""What the kernel's names of CPUs carry beside the model: "12th Gen Intel(R) Core(TM) i7-12700H"."""


def find_device(catalog: Catalog, name: str) -> Gpu | Cpu:
    """Look a device up by id, name or alias, as people, torch and /proc/cpuinfo write it.

    Case and punctuation do not count. Raises `UsageError`, with the closest names, when there is none.
    """
    devices: list[Gpu | Cpu] = [*catalog.gpus.values(), *catalog.cpus.values()]
    # As it stands first: GCP's "Intel(R) Xeon(R) CPU @ 2.20GHz" is nothing but decoration.
    for wanted in dict.fromkeys((_plain(name), _plain(_DECORATION.sub("", name)))):
        # An id wins over a name, a name over an alias: "A100" is one card's alias, not a part of another's id.
        for names_of in (_ids, _names, _aliases):
            for device in devices:
                if wanted in map(_plain, names_of(device)):
                    return device
    known = {_plain(known): device.id for device in devices for known in (*_ids(device), *_names(device))}
    close = dict.fromkeys(known[match] for match in get_close_matches(_plain(name), known, n=3, cutoff=0.5))
    hint = f"did you mean {', '.join(close)}?" if close else "use the id of a file in profiles/devices"
    raise UsageError(f"no profile describes the device {name!r}", hint=hint)


def find_devices(catalog: Catalog, name: str) -> tuple[Gpu | Cpu, ...]:
    """The device of that id or name, else every device whose id has all words of `name`: "A100" is four cards.

    An alias is looked up last. Raises `UsageError`, with the closest names, when there is none.
    """
    devices: list[Gpu | Cpu] = [*catalog.gpus.values(), *catalog.cpus.values()]
    exact = [device for device in devices if _plain(name) in (_plain(device.id), _plain(device.name))]
    words = set(_words(name))
    return tuple(exact or [device for device in devices if words and words <= set(_words(device.id))]) or (
        find_device(catalog, name),
    )


def _ids(device: Gpu | Cpu) -> tuple[str, ...]:
    return (device.id,)


def _names(device: Gpu | Cpu) -> tuple[str, ...]:
    return (device.name,)


def _aliases(device: Gpu | Cpu) -> tuple[str, ...]:
    return device.aliases


def _plain(name: str) -> str:
    """`NVIDIA GeForce RTX 3090`, `rtx-3090` and `GeForceRTX3090` are all rtx3090."""
    return _LEADING_BRANDS.sub("", re.sub(r"[^a-z0-9]", "", name.lower()))


def _words(name: str) -> list[str]:
    return [word for word in re.findall(r"[a-z0-9]+", name.lower()) if word not in _BRANDS]
