import subprocess
import sys


def test_the_process_that_takes_requests_starts_without_what_the_workers_compute_with() -> None:
    code = (
        "import sys; import advisor.cli.main, advisor.serve.run, advisor.serve.app;"
        "print(sorted({'numpy', 'torch', 'advisor.answers.ranking'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
