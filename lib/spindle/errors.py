"""What can go wrong for a user, in the words a user needs, with the exit code of each kind.

This file alone decides exit codes (docs/operations.md lists them). It knows nothing of where an error is shown.
A failed URL is never an exception: it is a row with an outcome (DESIGN 6.4).
"""

from __future__ import annotations


class SpindleError(Exception):
    """A mistake that a user can mend. The text names the thing, the place and the way out; no stack trace is shown."""

    exit_code = 2


class ConfigError(SpindleError):
    """An unknown key, a wrong type or an impossible value in the configuration."""


class InputError(SpindleError):
    """A seed list, file or argument that cannot be used."""


class LeaseHeld(SpindleError):
    """The segment, or an overlapping range of buckets, belongs to somebody else. Exit code 3: try again later."""

    exit_code = 3


class SegmentStateError(SpindleError):
    """A job was asked to work on a segment that is not in the state it needs (or is expired, or out of order)."""

    exit_code = 3


class WarehouseError(SpindleError):
    """Not a warehouse, a warehouse of another version, or one that cannot be written (disk full, no permission)."""

    exit_code = 4


class NothingDue(SpindleError):
    """Only with --fail-if-empty: generate found nothing to list."""

    exit_code = 5


class UrlRejected(ValueError):
    """A URL that the normalisation policy refuses.

    `reason` is one word of a closed vocabulary (`urls.REJECT_REASONS`), the key under which `metrics` counts it.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail
