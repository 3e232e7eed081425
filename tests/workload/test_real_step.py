from advisor.workload.real_step import real_step_note, real_step_reason, running_for_real


def failure():
    try:
        raise ValueError("aten.item\nand more")
    except ValueError as error:
        return error


class UnprintableError(Exception):
    def __str__(self):
        raise KeyError("no text")


def test_a_real_step_has_a_reason_while_it_runs():
    assert real_step_reason() == ""
    with running_for_real(failure()):
        first, line = real_step_reason().splitlines()
        assert first.endswith("failed: ValueError: aten.item")
        assert "test_real_step.py:6 in failure: raise ValueError" in line
        with running_for_real(None):
            assert "failed" not in real_step_reason()
        assert real_step_reason().startswith(first)
    assert real_step_reason() == ""


def test_an_error_without_a_text_is_named():
    with running_for_real(UnprintableError()):
        assert "UnprintableError" in real_step_reason()


def test_the_note_names_the_line():
    assert "test_real_step.py:6" in real_step_note(failure())
