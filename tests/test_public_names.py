"""The public names of the package."""

import advisor


def test_dir_lists_the_public_functions() -> None:
    assert {"recommend", "explain", "memory", "breakeven", "fits", "observe", "save_report"} <= set(dir(advisor))
    assert all(hasattr(advisor, name) for name in dir(advisor))
