"""Which fitted efficiency holds for a device at a precision."""

from collections.abc import Iterable, Sequence

from advisor.records.device import Device, Efficiency, FamilyEfficiency, Precision

ANY = "*"


def efficiency_of(device: Device, *, precision: Precision, efficiencies: Sequence[Efficiency]) -> Efficiency:
    """The most specific fit for the device: same vendor before any, same generation before any, then same precision.

    Raises ValueError when there is no fallback for the kind of device: the shipped profiles hold one.
    """

    def specificity(efficiency: Efficiency) -> tuple[bool, ...] | None:
        wanted = (device.vendor, device.generation, precision)
        found = (efficiency.vendor, efficiency.generation, efficiency.precision)
        if efficiency.kind != device.kind or not all(b in (a, ANY) for a, b in zip(wanted, found, strict=True)):
            return None
        return tuple(name != ANY for name in (efficiency.generation, efficiency.vendor, efficiency.precision))

    fitting = [(rank, efficiency) for efficiency in efficiencies if (rank := specificity(efficiency)) is not None]
    if not fitting:
        raise ValueError(f"no efficiency for a {device.kind} of {device.vendor} {device.generation} at {precision}")
    return max(fitting, key=lambda pair: pair[0])[1]


def family_efficiencies(efficiency: Efficiency, *, families: Iterable[str]) -> list[FamilyEfficiency]:
    """The entry of each family; a family without one takes the entry "*"."""
    return [efficiency.families.get(family) or efficiency.families[ANY] for family in families]
