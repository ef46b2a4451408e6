"""EventLog: a journal of somebody's own, durable on return."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from holdfast import clock
from holdfast.errors import ForbiddenError, UsageError, ValueRefusedError
from holdfast.journal.lines import RESERVED
from holdfast.journal.log import LocalJournal
from holdfast.pipeline.names import as_given, as_path
from holdfast.values import encode_json


class EventLog:
    """A journal open for appending and reading, from several threads and processes.

    `lock_path` and `quarantine`: as for `LocalJournal`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        lock_path: Path | None = None,
        quarantine: Path | None = None,
    ) -> None:
        self.path = as_path(path, "path")
        if not self.path.name:
            raise UsageError(f"path must name a file, not {as_given(path)}.")
        self.notices: list[str] = []  # what was found damaged, and what was done about it
        self._journal = LocalJournal(self.path, lock_path=lock_path, quarantine=quarantine)

    def append(self, event: Mapping[str, Any]) -> int:
        """Append one event, a JSON object, and give its number. It is durable when this returns."""
        if not isinstance(event, Mapping):
            raise ValueRefusedError(f"An event is a dict, not {type(event).__name__}.", where="event")
        body = _encode(event)
        batch = self._journal.begin()
        try:
            seq = batch.add(body, clock.iso(clock.now()))
        except BaseException:
            batch.abort()
            raise
        batch.commit()
        self._journal.sync()
        self.notices += self._journal.take_notices()
        return seq

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """All events, as dicts with seq, ts and their own fields. Damage is mended first, if it can be."""
        if not self._journal.is_there():
            return
        try:
            self.notices += self._journal.repair()
        except ForbiddenError:
            pass  # reading goes on without
        found = self._journal.read()
        for line in found:
            yield line.event()
        self.notices += found.damage  # only where mending was not permitted

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files; everything appended is durable already. Using the log opens it again."""
        self._journal.close()


def _encode(event: Mapping[str, Any]) -> bytes:
    for name in RESERVED:
        if name in event:
            raise ValueRefusedError(f"event.{name} is a name that the log itself gives.", where=f"event.{name}")
    return encode_json(dict(event), "event")
