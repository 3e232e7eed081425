"""torch's log while a step is traced."""

import logging

from advisor.workload.torch_log import fake_tensor_log_silenced

LOGGER = logging.getLogger("torch._subclasses.fake_tensor")


def test_errors_on_fake_tensors_are_not_logged_while_tracing_and_are_afterwards() -> None:
    level = LOGGER.level
    with fake_tensor_log_silenced():
        assert not LOGGER.isEnabledFor(logging.ERROR)
    assert LOGGER.isEnabledFor(logging.ERROR)
    assert LOGGER.level == level
