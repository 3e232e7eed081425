"""Defines the errors that a user can cause, with their exit codes."""

from collections.abc import Iterable, Set
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of the process; scripts depend on these numbers."""

    ANSWER = 0
    NOTHING_FITS = 1
    USAGE = 2
    THRESHOLD = 3
    LOAD = 4
    NETWORK = 5
    INTERNAL = 70
    INTERRUPT = 130


EXIT_MEANINGS = {
    ExitCode.ANSWER: "answer",
    ExitCode.NOTHING_FITS: "nothing fits the limits",
    ExitCode.USAGE: "invalid usage, profile or price file",
    ExitCode.THRESHOLD: "threshold exceeded",
    ExitCode.LOAD: "load or trace error, timeout, --strict",
    ExitCode.NETWORK: "network",
    ExitCode.INTERNAL: "internal error: a bug in advise",
    ExitCode.INTERRUPT: "interrupt",
}
"""The meaning of each exit code, as printed in the help."""


class AdvisorError(Exception):
    """An error that the user can fix. `message` says what is wrong and where; `hint` says what to do."""

    exit_code = ExitCode.USAGE

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message


def did_you_mean(name: str, known: Iterable[str], *, otherwise: str = "", most: int = 1, cutoff: float = 0.6) -> str:
    """Return the hint for an unknown name: known names that are similar or end in it, otherwise some known names.

    `otherwise` replaces the list of known names.
    """
    from difflib import get_close_matches  # late, because every command imports this module

    spelled = {spelling.lower(): spelling for spelling in known}
    close = get_close_matches(name.lower(), spelled, n=most, cutoff=cutoff)
    if close := close or [one for one in spelled if name and one.endswith(name.lower())][:most]:
        return f"did you mean {', '.join(spelled[one] for one in close)}?"
    if otherwise or not spelled:
        return otherwise
    listed = sorted(spelled.values()) if isinstance(known, Set) else list(spelled.values())
    return f"use one of {', '.join(listed[:_MOST_LISTED])}" + (", ..." if len(listed) > _MOST_LISTED else "")


_MOST_LISTED = 30


class UsageError(AdvisorError):
    """A flag, an argument or an option has a value that cannot be used."""


class ProfileError(AdvisorError):
    """A profile, price or overlay file is invalid; `where` is `file:line: key`."""

    def __init__(self, message: str, *, where: str, hint: str = "") -> None:
        super().__init__(f"{where}: {message}", hint=hint)
        self.where = where


class NothingFitsError(AdvisorError):
    """No offer satisfies the limits."""

    exit_code = ExitCode.NOTHING_FITS


class NetworkError(AdvisorError):
    """A price list could not be fetched, or its content is invalid."""

    exit_code = ExitCode.NETWORK


class LoadError(AdvisorError):
    """The model's file could not be found, imported or understood."""

    exit_code = ExitCode.LOAD


ROW_ERRORS = (ArithmeticError, LookupError, TypeError, ValueError)
"""The exceptions that a formula raises for a row whose operands or attributes do not match its operator."""


def row_problem(error: BaseException) -> str:
    """Describe one of `ROW_ERRORS`."""
    return f"its operands or attributes do not match this operator ({type(error).__name__}: {error})"


class DocumentError(LoadError):
    """A JSON document named `where` is invalid at `key`; "" means the whole document."""

    def __init__(self, problem: str, *, where: str, key: str = "", hint: str = "") -> None:
        super().__init__(": ".join(part for part in (where, key, problem) if part), hint=hint)
        self.where = where
        self.key = key


class TraceError(AdvisorError):
    """The model was found but its step could not be traced."""

    exit_code = ExitCode.LOAD


class CoverageError(AdvisorError):
    """`--strict` is set and an operator has no formula."""

    exit_code = ExitCode.LOAD
