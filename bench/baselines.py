"""The bare programs that Holdfast is measured against: what a careful person would write by hand, and no more."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LINE = b"x" * 299 + b"\n"


def chain_log(folder: Path, steps: int) -> None:
    """One line of 300 bytes written and synced for each step, one after the other."""
    fd = _open_log(folder)
    try:
        for _ in range(steps):
            os.write(fd, LINE)
            os.fdatasync(fd)
    finally:
        os.close(fd)


class GroupLog:
    """A log in which whoever waits while another syncs shares the next sync."""

    def __init__(self, folder: Path) -> None:
        self._fd = _open_log(folder)
        self._sync_mutex = threading.Lock()
        self._count_mutex = threading.Lock()
        self._written = 0
        self._synced = 0

    def append(self, line: bytes) -> None:
        """Durable on return."""
        with self._count_mutex:
            os.write(self._fd, line)
            self._written += 1
            mine = self._written
        with self._sync_mutex:
            if self._synced >= mine:
                return
            covered = self._written
            os.fdatasync(self._fd)
            self._synced = covered

    def close(self) -> None:
        os.close(self._fd)


def fan_out_log(folder: Path, items: Sequence[str], steps: int, sleep_s: float, threads: int) -> None:
    """Every step of every item sleeps and is logged."""
    log = GroupLog(folder)

    def work(item: str, step: int) -> None:
        time.sleep(sleep_s)
        log.append(LINE)

    _for_all(items, steps, threads, work)
    log.close()


def fan_out_files(
    folder: Path,
    items: Sequence[str],
    steps: int,
    sleep_s: float,
    threads: int,
    text: Callable[[str, int], str],
) -> None:
    """Every step sleeps, safely writes a file of its own, and writes and syncs one log line."""
    log = _open_log(folder)
    out = folder / "out"
    out.mkdir()

    def work(item: str, step: int) -> None:
        time.sleep(sleep_s)
        write_safely(out, f"{item}-s{step}.md", text(item, step).encode())
        os.write(log, LINE)
        os.fdatasync(log)

    _for_all(items, steps, threads, work)
    os.close(log)


def write_safely(folder: Path, name: str, data: bytes) -> None:
    """Temporary file, sync, rename, sync of the folder: a file that a power cut leaves whole or absent."""
    temporary = folder / f".{name}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        os.write(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(temporary, folder / name)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _for_all(items: Sequence[str], steps: int, threads: int, work: Callable[[str, int], None]) -> None:
    """All steps of an item in order, many items at once."""

    def one(item: str) -> None:
        for step in range(1, steps + 1):
            work(item, step)

    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(one, item) for item in items]:
            future.result()


def _open_log(folder: Path) -> int:
    return os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
