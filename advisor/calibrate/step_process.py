"""Times the real step of a source in a child process.

The child works like `advisor.workload.trace_child` and has the same protection against errors in a user's file.
"""

from advisor.calibrate.memory_room import check_room
from advisor.calibrate.step_request import MeasureRequest
from advisor.machine.free_memory import free_memory_bytes
from advisor.records.timing import StepTiming
from advisor.workload.spawn import SourceProcess


def measure_source(request: MeasureRequest) -> StepTiming:
    """Time the step of a source that can be built.

    The weights are those that the source's own code makes; none are downloaded. Nothing is left behind. Raises
    `UsageError` if memory is short, and the error in the child, such as `LoadError`.
    """
    request.check()
    if request.device == "cpu":  # check before its weights are made; for a GPU, torch checks in the child
        check_room(request, free_bytes=free_memory_bytes())
    with SourceProcess.start(
        thread_count=request.thread_count, module="advisor.calibrate.step_child", sees_gpus=request.device != "cpu"
    ) as child:
        child.ask(request)
        return StepTiming(**child.answer()["timing"])
