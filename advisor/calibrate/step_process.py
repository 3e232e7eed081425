"""A request in, the time of the source's real step out, by way of a child process of its own.

The child is that of `advisor.workload.trace_child` with other answers, and guards against the same of a user's file.
"""

from advisor.calibrate.memory_room import check_room
from advisor.calibrate.step_request import MeasureRequest
from advisor.machine.free_memory import free_memory_bytes
from advisor.records.timing import StepTiming
from advisor.workload.spawn import SourceProcess


def measure_source(request: MeasureRequest) -> StepTiming:
    """Time the step of a source that can be built. Raises what goes wrong in the child as `LoadError`, ...

    Nothing of it is left behind: weights are those that the source's own code makes, and none are downloaded.
    """
    request.check()
    if request.device == "cpu":  # before its weights are made; a GPU is asked by torch, in the child
        check_room(request, free_bytes=free_memory_bytes())
    process = SourceProcess.start(
        thread_count=request.thread_count, module="advisor.calibrate.step_child", sees_gpus=request.device != "cpu"
    )
    try:
        process.ask(request)
        return StepTiming(**process.answer()["timing"])
    finally:
        process.close()
