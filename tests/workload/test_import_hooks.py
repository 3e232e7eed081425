"""Modules are patched as soon as they are imported."""

import importlib
import sys

import pytest

from advisor.workload.import_hooks import patched_on_import


@pytest.fixture
def library(tmp_path, monkeypatch):
    (tmp_path / "advised_library.py").write_text("def size(): return 1\nbefore = size()\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("advised_library", None)


def in_place_of_size(module):
    yield module, "size", lambda: 2


@pytest.mark.usefixtures("library")
def test_a_module_is_patched_after_it_has_run_and_put_back_at_the_end():
    with patched_on_import({"advised_library": in_place_of_size}):
        module = importlib.import_module("advised_library")
        assert (module.before, module.size()) == (1, 2)
    assert module.size() == 1


@pytest.mark.usefixtures("library")
def test_an_imported_module_is_patched_at_once():
    module = importlib.import_module("advised_library")
    with patched_on_import({"advised_library": in_place_of_size}):
        assert module.size() == 2
    assert module.size() == 1


def test_a_module_that_is_missing_is_still_missing_and_no_finder_stays():
    finders = list(sys.meta_path)
    with patched_on_import({"advised_missing": in_place_of_size}), pytest.raises(ModuleNotFoundError):
        importlib.import_module("advised_missing")
    assert sys.meta_path == finders
