"""Snapshots of a run's state: `checkpoint_NNNN.json`, each with proof of itself, at least two kept.

A snapshot is one JSON object whose last member is `"sha256"`, the hash of all bytes before the comma that
precedes it. The sidecar `checkpoint_NNNN.sha256` is for people (`sha256sum -c`); it decides nothing.

Crash story. A snapshot appears whole under its name or not at all; numbers only grow and are never used
twice; an old one is deleted only after newer ones were read back and proved. What is found damaged goes to
quarantine under a fresh name, and the next older one is tried. A file that could not be read for a reason
that says nothing about it (no descriptors, I/O error) is not damaged: that is a StorageError.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

import msgspec

from holdfast.errors import StorageError
from holdfast.layout import QUARANTINE_DIR
from holdfast.stores import asides, atomic, disk, readable

KEEP_MIN = 2

_NAME = re.compile(r"checkpoint_(\d{4,})\.json")
NUMBERED = re.compile(r"checkpoint_(\d{4,})\.")
_PROOF = re.compile(rb',?"sha256":"([0-9a-f]{64})"\}\n')
_PROOF_BYTES = len(b',"sha256":""}\n') + 64
_SIDECAR_MAX = 4096


class Loaded(msgspec.Struct, frozen=True):
    """A snapshot that proved itself: its JSON object without the proof."""

    number: int
    path: Path
    payload: bytes


def write_snapshot(run_dir: Path, number: int, payload: bytes, *, tmp_dir: Path | None = None) -> Path:
    """Write the JSON object `payload` as snapshot `number`, durable on return; then its sidecar."""
    if payload[:1] != b"{" or payload[-1:] != b"}":
        raise ValueError("a snapshot must be one JSON object")
    covered = payload[:-1]
    hasher = hashlib.sha256(covered)
    proof = b'%s"sha256":"%s"}\n' % (b"," if len(payload) > 2 else b"", hasher.hexdigest().encode())
    hasher.update(proof)
    path = snapshot_path(run_dir, number)
    atomic.write_file(path, covered + proof, sync=True, tmp_dir=tmp_dir)
    atomic.write_file(sidecar_of(path), _sidecar_line(path, hasher.hexdigest()), sync=False, tmp_dir=tmp_dir)
    return path


def read_snapshot(path: Path) -> bytes | None:
    """The JSON object of a snapshot without its proof, or None if it is damaged. OSErrors pass."""
    return _proved(_content(path))


def _content(path: Path) -> bytes:
    """The bytes of a snapshot; none of one that is too large to be read and does not even end like one."""
    try:
        return readable.read_file(path)
    except OSError as error:
        if error.errno != errno.ENOMEM or _ends_in_proof(path):
            raise
        return b""


def _ends_in_proof(path: Path) -> bool:
    with readable.opened(path) as descriptor:
        end = os.fstat(descriptor).st_size
        return _PROOF.fullmatch(os.pread(descriptor, _PROOF_BYTES, max(0, end - _PROOF_BYTES))) is not None


class Examined(msgspec.Struct, frozen=True):
    """A snapshot looked at in full: its JSON object (None: damaged), and what is wrong with its sidecar."""

    payload: bytes | None
    sidecar: str = ""  # "missing" | "stale"


def examine_snapshot(path: Path) -> Examined | None:
    """What a snapshot and its sidecar say of themselves; None if it is gone. OSErrors of the machine pass."""
    try:
        content = _content(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno not in readable.UNREADABLE:
            raise
        return Examined(None)
    return Examined(_proved(content), _examine_sidecar(path, content))


def _examine_sidecar(path: Path, content: bytes) -> str:
    try:
        sidecar = readable.read_file(sidecar_of(path), limit=_SIDECAR_MAX)
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        if error.errno not in readable.UNUSABLE:
            raise
        return "stale"
    return "" if sidecar == _sidecar_line(path, hashlib.sha256(content).hexdigest()) else "stale"


def _sidecar_line(path: Path, sha256: str) -> bytes:
    return f"{sha256}  {path.name}\n".encode()


def _proved(content: bytes) -> bytes | None:
    start = max(0, len(content) - _PROOF_BYTES)
    proof = _PROOF.search(content, start)
    if proof is None or proof.end() != len(content):
        return None
    covered = content[: proof.start()]
    if hashlib.sha256(covered).hexdigest().encode() != proof[1]:
        return None
    payload = covered + b"}"
    try:
        msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return payload


def newest_snapshot(
    run_dir: Path, *, quarantine: Path | None, damaged: list[str] | None = None, below: int | None = None
) -> Loaded | None:
    """The newest snapshot that proves itself, or None; with `below`, of those of a lower number.

    Damaged ones on the way are moved to `quarantine` (None: nothing is changed) and named in `damaged`,
    the caller's list if given, also when no good one is left.
    """
    found = [] if damaged is None else damaged
    try:
        for number, path in snapshots(run_dir):
            if below is not None and number >= below:
                continue
            payload = _read_or_none(path)
            if payload is not None:
                return Loaded(number, path, payload)
            if readable.is_there(path):
                found.append(put_away(path, quarantine, "is damaged"))
    except OSError as error:
        raise StorageError.from_os(error, "read the snapshots") from error
    return None


def _read_or_none(path: Path) -> bytes | None:
    try:
        return read_snapshot(path)
    except FileNotFoundError:
        return None  # rotated away while we looked
    except OSError as error:
        if error.errno in readable.UNREADABLE:
            return None
        raise


def put_away(path: Path, quarantine: Path | None, why: str) -> str:
    """Move a snapshot that cannot be used, and its sidecar, to `quarantine`; gives what to say about it."""
    if quarantine is None:
        return f"{path.name} {why}"
    kept_as = asides.set_aside(path, quarantine)
    if readable.is_there(sidecar_of(path)):
        asides.set_aside(sidecar_of(path), quarantine)
    return f"{path.name} {why}; it is kept as {kept_as.name}"


def snapshots(run_dir: Path) -> list[tuple[int, Path]]:
    """Number and path of all snapshots, newest first; by number, since names past 9999 sort otherwise."""
    matches = [match for name in names_in(run_dir) if (match := _NAME.fullmatch(name))]
    numbered = [(int(match[1]), run_dir / match[0]) for match in matches]
    return sorted(numbered, reverse=True)


def next_number(run_dir: Path, floor: int = 0) -> int:
    """A number above `floor` that no snapshot here or in quarantine ever had."""
    names = names_in(run_dir) + names_in(run_dir / QUARANTINE_DIR)
    numbers = [int(match[1]) for name in names if (match := NUMBERED.match(name))]
    return 1 + max([floor, *numbers])


def rotate(
    run_dir: Path,
    keep: int,
    *,
    written: Path | None = None,
    quarantine: Path | None = None,
    damaged: list[str] | None = None,
) -> list[Path]:
    """Delete snapshots older than the newest `keep` (at least 2) that prove themselves; gives the deleted.

    Those on the way that do not are moved to `quarantine`, if one is given, and named in `damaged`. The one that
    was `written` a moment ago is not read again.
    """
    paths = [path for _, path in snapshots(run_dir)]
    known = paths[:1] == [written]
    rotten, surplus = plan_rotation(paths[1:] if known else paths, keep, verified=int(known))
    if quarantine is not None and damaged is not None:
        damaged += [put_away(path, quarantine, "is damaged") for path in rotten]
    return [path for path in reversed(surplus) if _delete(path)]


def plan_rotation(paths: Iterable[Path], keep: int, verified: int = 0) -> tuple[list[Path], list[Path]]:
    """Which of these snapshots, newest first, are damaged, and which are surplus. Read-only.

    `verified`: how many newer ones there are that need no look.
    """
    rotten: list[Path] = []
    surplus: list[Path] = []
    for path in paths:
        if verified >= max(keep, KEEP_MIN):
            surplus.append(path)
        elif _read_or_none(path) is not None:
            verified += 1
        elif readable.is_there(path):
            rotten.append(path)
    return rotten, surplus


def _delete(path: Path) -> bool:
    """The sidecar first: a kill in between leaves a snapshot without sidecar, which is still whole."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return False
        beside = sidecar_of(path)
        if readable.is_there(beside) and not (beside.is_dir() and not beside.is_symlink()):
            disk.unlink(os.fspath(beside))
        disk.unlink(os.fspath(path))
    except FileNotFoundError:
        pass  # someone else was faster
    return True


def snapshot_path(run_dir: Path, number: int) -> Path:
    return run_dir / f"checkpoint_{number:04d}.json"


def sidecar_of(path: Path) -> Path:
    """Where the hash of a snapshot stands for people."""
    return path.with_suffix(".sha256")


def names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
