"""Writers that are killed at random moments: a file is the old one or the new one, and nothing piles up beside it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from tests.reliability.attack import Attack

ROOT = Path(__file__).parents[2]
WRITER = """
import sys
from pathlib import Path
from advisor.whole_file import replace_whole, write_whole
names, size = sys.argv[2:], int(sys.argv[1])
print("ready", flush=True)
version = 0
while True:
    for name in names:
        write_whole(f"{version}:" + "x" * size + f":{version}", Path(name))
        replace_whole(f"{version}:".encode() + b"x" * size + f":{version}".encode(), Path(name + ".cached"), mode=0o600)
    version += 1
"""


def is_whole(text: str, size: int) -> bool:
    first, middle, last = text.split(":")
    return first == last and len(middle) == size


@pytest.mark.slow
def test_writers_killed_at_random_moments(attack: Attack, tmp_path: Path) -> None:
    def check(chance: Random) -> None:
        folder = tmp_path / f"{chance.random()}"
        folder.mkdir()
        size = chance.choice([0, 10, 10**4, 10**6])
        names = ["answer.json", "x" * 200][: chance.randint(1, 2)]
        for _ in range(chance.randint(1, 3)):  # one after the other: each finds what the one before has left
            writer = subprocess.Popen(
                [sys.executable, "-c", WRITER, str(size), *names],
                cwd=folder,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                stdout=subprocess.PIPE,
            )
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(chance.random() * 0.1)
            writer.send_signal(signal.SIGKILL)
            writer.wait()
            writer.stdout.close()
            files = list(folder.iterdir())
            written = [file for file in files if not file.name.startswith(".")]
            assert all(is_whole(file.read_text(), size) for file in written)
            assert len(files) - len(written) <= 1  # of the one that was killed; those before it are gone

    attack.each(check, count=min(attack.count, 20))
