import asyncio
import errno
import os
from contextlib import closing
from pathlib import Path

import pytest

from advisor.serve import catalog_in_force as module
from advisor.serve.catalog_in_force import PricesInForce
from advisor.serve.pool import pool_of
from advisor.serve.settings import Settings
from tests.serve.conftest import ROOT


def too_many_files(**_: object) -> None:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "folder")


def test_files_whose_reading_was_hindered_are_read_again_and_wrong_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    overlay = tmp_path / "advisor.yaml"

    async def main() -> None:
        with pool_of(1, queue_count=16) as pool, closing(pool):
            prices = PricesInForce(Settings(), pool)
            await prices.load()
            first = prices.loaded_at
            overlay.write_text((ROOT / "examples" / "advisor.yaml").read_text())
            with monkeypatch.context() as hindered:
                hindered.setattr(module, "_LOAD_LIMIT_S", 0.0)
                await prices.check()
            assert (prices.loaded_at, bool(prices.problem)) == (first, True)
            await prices.check()  # the file is as it was, and this time nothing is in the way
            assert prices.loaded_at > first
            assert prices.problem == ""
            with monkeypatch.context() as hindered:
                hindered.setattr(module, "file_states", too_many_files)
                await prices.check()
            assert "Too many open files" in prices.problem
            await prices.check()
            assert prices.problem == ""
            overlay.write_text("provider: 7\n")
            await prices.check()
            wrong = prices.problem
            assert "advisor.yaml:1" in wrong
            monkeypatch.setattr(module, "_LOAD_LIMIT_S", 0.0)
            await prices.check()  # known to be wrong: it is not read again, or there would be another problem now
            assert (prices.problem, prices.failure_count) == (wrong, 3)

    asyncio.run(main())
