"""Measurements and predictions with round numbers."""

from typing import Any

from advisor.records.measurement import FailedRow, Measurement, PredictedRow


def measurement(**changes: Any) -> Measurement:
    values: dict[str, Any] = {
        "model": "timm:resnet50@224",
        "mode": "inference",
        "precision": "fp32",
        "batch": 8,
        "device": "t4",
        "step_s": 1.0,
        "source": "by hand",
        "file": "mine.csv",
        "line": 2,
    }
    return Measurement(**(values | changes))


def predicted(predicted_s: float, step_s: float = 1.0, *, device: str = "t4", **changes: Any) -> PredictedRow:
    """A prediction within 10 % either way, of 1 FLOP, with a roofline of half of it."""
    asked = {name: changes.pop(name) for name in tuple(changes) if name in Measurement.__dataclass_fields__}
    values: dict[str, Any] = {
        "kind": "gpu",
        "generation": "Turing",
        "family": "timm:resnet",
        "known": "device",
        "low_s": 0.9 * predicted_s,
        "high_s": 1.1 * predicted_s,
        "without_own_s": None,
        "roofline_s": predicted_s / 2,
        "flops": 1.0,
        "usd_per_hour": None,
    }
    return PredictedRow(
        measurement=measurement(step_s=step_s, device=device, **asked),
        device=device,
        predicted_s=predicted_s,
        **(values | changes),
    )


def failed(reason: str = "it is a riddle", *, device: str = "t4", **changes: Any) -> FailedRow:
    return FailedRow(
        measurement=measurement(device=device, **changes),
        device=device,
        kind="gpu",
        generation="Turing",
        family="timm:resnet",
        reason=reason,
    )
