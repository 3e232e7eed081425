"""The machine that runs the tests, whatever it is."""

import os
import subprocess
import sys

from advisor.machine.this_machine import this_machine


def test_it_has_threads_of_the_affinity_mask_and_at_most_one_core_for_each() -> None:
    machine = this_machine()

    assert 1 <= machine.thread_count <= len(os.sched_getaffinity(0))
    assert 0 < machine.core_count <= len(os.sched_getaffinity(0))


def test_it_is_read_without_torch() -> None:
    code = (
        "import sys; from advisor.machine.this_machine import this_machine; this_machine();"
        "sys.exit('torch' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
