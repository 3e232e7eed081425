"""Describes what is wrong with a request, as JSON."""

import json
from dataclasses import asdict, dataclass

from advisor.errors import AdvisorError, DocumentError, LoadError, NothingFitsError
from advisor.records.flag_values import first_field, with_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An error reply. `field` is the place in the request, such as "options.max_usd", or "" if there is none."""

    status: int
    code: str
    message: str
    field: str = ""
    hint: str = ""

    def body(self) -> bytes:
        """Return `{"error": {"code":, "field":, "message":, "hint":}}` as JSON."""
        error = asdict(self)
        del error["status"]
        return json.dumps({"error": error}).encode()


def problem_of(error: AdvisorError) -> Problem:
    """Return a user's mistake as an error reply, with flags named as fields of `options`."""
    is_json = isinstance(error, DocumentError) or not isinstance(error, LoadError)
    code = "nothing-fits" if isinstance(error, NothingFitsError) else "invalid" if is_json else "not-json"
    return Problem(
        status=422 if is_json else 400,
        code=code,
        field=_field_of(error),
        message=with_fields(error.message),
        hint=with_fields(error.hint),
    )


def _field_of(error: AdvisorError) -> str:
    if isinstance(error, DocumentError):
        return ".".join(part for part in (error.where, error.key) if part)
    return first_field(error.message)
