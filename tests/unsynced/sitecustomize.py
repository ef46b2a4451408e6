"""Python starts with this when its folder is on PYTHONPATH: no sync reaches the medium."""

import fcntl
import os


def answered(*_: int) -> None:
    """As after a sync that took no time."""


os.fsync = os.fdatasync = os.posix_fadvise = answered
vars(fcntl).pop("F_FULLFSYNC", None)  # what macOS syncs by
