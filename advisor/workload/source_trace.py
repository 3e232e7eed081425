"""Traces one source: from the cache if nothing that the trace read has changed, else in a child process."""

from dataclasses import dataclass, replace
from typing import Self

from advisor.records.workload import SecondCount, Workload
from advisor.workload import trace_cache
from advisor.workload.dependencies import script_reads
from advisor.workload.file import workload_from_json
from advisor.workload.spawn import ProfileRequest, SourceProcess, start_profile


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTrace:
    """A trace that has started; leaving its `with` kills all of the user's processes."""

    request: ProfileRequest
    _found: Workload | SourceProcess

    @classmethod
    def start(cls, request: ProfileRequest) -> Self:
        """Read the cached Workload, or start the child, so that torch's import overlaps the caller's work.

        Raises as `ProfileRequest.check`.
        """
        return cls(request=request, _found=trace_cache.read(request) or start_profile(request))

    def workload(self) -> Workload:
        """Wait for the Workload and cache it; raise errors of the source as `LoadError`, `TraceError`, ..."""
        return self.counted()[0]

    def counted(self) -> tuple[Workload, SecondCount | None]:
        """Wait for the Workload, as `workload` does, and the second count if it was asked for."""
        if isinstance(self._found, Workload):
            return self._found, None
        message = self._found.answer()
        workload = workload_from_json(message["workload"], where=self.request.source)
        if workload.script is not None:
            reads = script_reads(message["dependencies"])
            workload = replace(workload, script=replace(workload.script, reads=reads))
        trace_cache.write(self.request, message["workload"], dependencies=message["dependencies"])
        trace_cache.forget_oldest()
        count = message.get("second_count")
        return workload, None if count is None else SecondCount(**count)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child, if there is one."""
        if isinstance(self._found, SourceProcess):
            self._found.close()
