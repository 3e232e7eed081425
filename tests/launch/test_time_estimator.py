"""The times given to SkyPilot's optimizer, which ranks by them in its own package, if that is installed."""

import json
import math
import os
import pickle
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import UsageError
from advisor.launch import skypilot_time_estimator
from advisor.records.answer import Interval, Quote, QuotedDevice, Recommendation
from tests.launch.test_engines import PYTHON, SKYPILOT_ROWS
from tests.launch.toys import GOOGLE_T4, GRAVITON, TWO_MACHINES, quote
from tests.report.toys import recommendation

ROOT = Path(__file__).resolve().parents[2]


def taking(of: Quote, seconds: float, **changes: Any) -> Quote:
    return replace(of, job_s=Interval(mid=seconds, low=seconds, high=seconds), **changes)


def answer(*quotes: Quote, **job: Any) -> Recommendation:
    found = recommendation(*quotes)
    return replace(found, job=replace(found.job, **({"assumed": False} | job)))


A10G = taking(quote("g5.xlarge", device="a10g"), 900.0)
A10G_LARGE = taking(quote("g5.4xlarge", device="a10g"), 850.0, job_usd=Interval(mid=9.0, low=9.0, high=9.0))
PRO = taking(quote("g7e.2xlarge", device="rtx-pro-6000-blackwell-server"), 120.0)
CPU = taking(GRAVITON, 40_000.0)
T4 = taking(GOOGLE_T4, 2000.0)
H100 = taking(quote("H100 [secure]", device="h100-sxm5-80gb", provider="runpod", tier="neocloud"), 60.0)


@dataclass(frozen=True)
class Resources:
    """The attributes of `sky.Resources` that are read; the cloud there has its name as its text."""

    cloud: str | None = None
    instance_type: str | None = None
    accelerators: dict[str, float] | None = None


@pytest.mark.parametrize(
    ("resources", "seconds"),
    [
        (Resources("AWS", "g5.xlarge"), 900.0),
        (Resources("AWS", "g5.4xlarge", {"A10G": 1}), 850.0),
        (Resources(None, "g5.4xlarge"), 850.0),
        (Resources(None, None, {"a10g": 1}), 900.0),  # the cheaper of the two
        (Resources("AWS", "c8g.xlarge"), 40_000.0),
        (Resources("GCP", "n1-standard-4", {"T4": 1}), 2000.0),
        (Resources("RunPod", "1x_H100_SECURE", {"H100-SXM": 1}), 60.0),  # a cloud whose types have other names here
        (Resources("AWS", "g5.12xlarge", {"A10G": 4}), math.inf),  # left out
        (Resources(None, None, {"A10G": 8}), math.inf),
        (Resources("GCP", None, {"A10G": 1}), math.inf),
        (Resources(None, None, {"L40S": 1}), math.inf),
    ],
)
def test_resources_take_the_time_of_their_type_or_gpu(resources: Resources, seconds: float) -> None:
    estimate = skypilot_time_estimator(answer(A10G_LARGE, A10G, PRO, CPU, T4, H100))
    assert estimate(resources) == seconds


def test_several_nodes_take_the_time_of_several_machines() -> None:
    of_one = taking(replace(TWO_MACHINES, instance_count=1, gpus_used=8), 700.0)
    found = answer(of_one, taking(TWO_MACHINES, 400.0))
    resources = Resources("AWS", "g5.48xlarge", {"A10G": 8})
    assert skypilot_time_estimator(found)(resources) == 700.0
    assert skypilot_time_estimator(found, num_nodes=2)(resources) == 400.0
    assert skypilot_time_estimator(found, num_nodes=3)(resources) == math.inf


def test_what_cannot_be_known_is_an_error_and_no_guess() -> None:
    estimate = skypilot_time_estimator(answer(A10G))
    with pytest.raises(UsageError, match="tpu-v5e"):
        estimate(Resources(None, None, {"tpu-v5e": 4}))
    with pytest.raises(UsageError, match="instance type"):
        estimate(Resources())
    # Whatever the answer ranks: on no cloud of its quotes, and of so many nodes that no quote is left.
    with pytest.raises(UsageError, match="tpu-v5e"):
        estimate(Resources("GCP", None, {"tpu-v5e": 4}))
    with pytest.raises(UsageError, match="tpu-v5e"):
        skypilot_time_estimator(answer(A10G), num_nodes=7)(Resources(None, None, {"tpu-v5e": 4}))
    for found in (recommendation(A10G), answer(A10G, requests_per_day=1000)):
        with pytest.raises(UsageError, match="job of a given size"):
            skypilot_time_estimator(found)


OPTIMIZE = """
import json, pickle, sys
import sky
from sky import check, clouds
check.get_cached_enabled_clouds_or_refresh = lambda *args, **more: [clouds.AWS()]  # no credentials are here
from advisor.launch import skypilot_time_estimator

answer = pickle.load(open(sys.argv[1], "rb"))
wanted = json.loads(sys.argv[2])
chosen = []
for estimator in (None, skypilot_time_estimator(answer)):
    for target in (sky.OptimizeTarget.COST, sky.OptimizeTarget.TIME):
        with sky.Dag() as dag:
            task = sky.Task(run="python train.py")
            task.set_resources({sky.Resources(**one) for one in wanted})
        if estimator:
            task.set_time_estimator(estimator)
        sky.Optimizer.optimize(dag, minimize=target, quiet=True)
        chosen.append(task.best_resources.instance_type)
print(json.dumps(chosen[:1] + chosen[2:]))  # without an estimator all take an hour, and none is the fastest
"""


def chosen_by_skypilot(found: Recommendation, *wanted: dict[str, Any], home: Path) -> list[str]:
    """SkyPilot's choices by hourly price, by cost and by time."""
    if subprocess.run([PYTHON, "-c", "import sky"], check=False, capture_output=True).returncode:
        pytest.skip("skypilot is not installed")
    catalog = home / ".sky/catalogs/v8/aws/vms.csv"
    catalog.parent.mkdir(parents=True)
    catalog.write_text(SKYPILOT_ROWS)
    (known := home / ".sky/catalogs/v8/common/accelerators.csv").parent.mkdir()
    known.write_text("AcceleratorName,Clouds\nA10G,\"['AWS']\"\nRTXPRO6000,\"['AWS']\"\n")
    file = home / "answer.pickle"
    file.write_bytes(pickle.dumps(found))
    env = {**os.environ, "HOME": str(home), "PYTHONPATH": str(ROOT)}
    command = [PYTHON, "-c", OPTIMIZE, str(file), json.dumps(wanted)]
    done = subprocess.run(command, env=env, cwd=home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    chosen: list[str] = json.loads(done.stdout.splitlines()[-1])
    return chosen


@pytest.mark.slow
def test_skypilots_optimizer_ranks_by_the_predicted_times(tmp_path: Path) -> None:
    # By the hour: $0.16, $1.006 and $3.36. For the job: 40,000 s are $1.78, 900 s are $0.25 and 120 s are $0.11.
    types = [{"infra": "aws", "instance_type": name} for name in ("c8g.xlarge", "g5.xlarge", "g7e.2xlarge")]
    assert chosen_by_skypilot(answer(CPU, A10G, PRO), *types, home=tmp_path / "1") == [
        "c8g.xlarge",
        "g7e.2xlarge",
        "g7e.2xlarge",
    ]
    # 300 s of the third are $0.28, more than 900 s of the second.
    slower = answer(CPU, A10G, taking(PRO, 300.0))
    gpus = [{"accelerators": "A10G:1"}, {"accelerators": "RTXPRO6000:1"}]
    chosen = chosen_by_skypilot(slower, types[0], *gpus, home=tmp_path / "2")
    assert chosen == ["c8g.xlarge", "g5.xlarge", "g7e.2xlarge"]


@pytest.mark.slow
def test_skypilot_does_not_choose_what_the_answer_left_out(tmp_path: Path) -> None:
    types = [{"infra": "aws", "instance_type": name} for name in ("c8g.xlarge", "g5.xlarge")]
    assert chosen_by_skypilot(answer(A10G), *types, home=tmp_path) == ["c8g.xlarge", "g5.xlarge", "g5.xlarge"]


def test_a_device_without_a_name_of_skypilot_matches_no_gpu() -> None:
    unnamed = replace(A10G, device=QuotedDevice(id="t4g", name="T4G", kind="gpu", count=1))
    assert skypilot_time_estimator(answer(unnamed))(Resources(None, None, {"A10G": 1})) == math.inf
