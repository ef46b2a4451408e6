"""Files that cannot be read, whoever runs the test: permissions keep no root out, and no disk fails on demand."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.stores import readable


def refuse_reading(refused: Path, monkeypatch: pytest.MonkeyPatch, code: int = errno.EACCES) -> None:
    """Have each opening of that file fail with the errno `code`."""
    really = readable.open_regular

    def open_regular(path: str, **options: Any) -> int:
        if os.path.realpath(path) == os.path.realpath(refused):
            raise OSError(code, os.strerror(code), path)
        return really(path, **options)

    monkeypatch.setattr(readable, "open_regular", open_regular)


def refuse_following(is_time: Callable[[], object], monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Have each opening of what a step reads fail with the errno `code`, once it is time."""
    really = readable.open_followed

    def open_followed(path: Path) -> int:
        if is_time():
            raise OSError(code, os.strerror(code), str(path))
        return really(path)

    monkeypatch.setattr(readable, "open_followed", open_followed)


def hold_less_than(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if memory did not hold that many bytes."""
    monkeypatch.setattr(readable, "HELD_MAX", size - 1)
