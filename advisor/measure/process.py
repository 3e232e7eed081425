"""A request in, the time of the source's real step out, by way of a child process of its own.

The child is that of `advisor.workload.child` with other answers: the same guard against what a user's file may do.
"""

from advisor.machine.memory import free_memory_bytes
from advisor.measure.request import MeasureRequest
from advisor.measure.room import check_room
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
        thread_count=request.thread_count, module="advisor.measure.child", sees_gpus=request.device != "cpu"
    )
    try:
        process.ask(request)
        return StepTiming(**process.answer()["timing"])
    finally:
        process.close()
