"""Files from outside that are inputs, as `reads` names them: which there are, and their hashes. Read-only.

Cannot read is not absent: a folder that cannot be listed, or a file that cannot be read, is an OSError, for
otherwise a step would be paid for again because its inputs seem to be gone. Links are followed here: whoever puts
one into the project means what it leads to. Nothing is waited for: what is no regular file is an error.
"""

from __future__ import annotations

import errno
import fnmatch
import glob
import hashlib
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from holdfast import clock
from holdfast.errors import UsageError
from holdfast.layout import CHECKPOINT_VIEW, RESUME_VIEW
from holdfast.pipeline.names import printable
from holdfast.pipeline.templates import check_pattern, fields, render
from holdfast.stores import readable
from holdfast.stores.readable import Fingerprint, fingerprint

ANY_DEPTH = "**"
SETTLED_S = 1.0
_ABSENT = (errno.ENOENT, errno.ENOTDIR)


def patterns_of(task: str, template: str, values: Mapping[str, str]) -> list[str]:
    """The patterns that a `reads` with fields stands for; a parameter must not lead them out of the project.

    Nobody can tell whether brackets or stars in a parameter are a glob or belong to a name: both count.
    """
    found = [render(template, values)]
    problem = check_pattern(found[0])
    if problem:
        raise UsageError(f"{task}: reads {printable(found[0])}: {problem}.")
    taken = {name: values[name] for name in fields(template)}
    if any(glob.has_magic(value) for value in taken.values()):
        found.append(render(template, {name: glob.escape(value) for name, value in taken.items()}))
    return found


def reads_of(root: Path, patterns: list[str]) -> list[str]:
    """The files that `reads` names, sorted, each once; one that is named without a glob also if it is missing."""
    found: set[str] = set()
    for pattern in patterns:
        if glob.has_magic(pattern):
            found.update(path for path in matching(root, pattern) if not _is_view(path))
        else:
            found.add(pattern)
    return sorted(path for path in found if not _is_folder(root / path))


def _is_view(path: str) -> bool:
    """Whether a path is a view, or one that was set aside: every run writes those, so no run would be complete."""
    return path.partition(".bak.")[0] in (CHECKPOINT_VIEW, RESUME_VIEW)


class OutsideHashes:
    """The hashes of files from outside: thousands of tasks may read the same one."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[Fingerprint, str]] = {}

    def of(self, path: Path) -> str:
        """The hash of a file; `missing` if there is none. Computed once, as long as nothing touches the file."""
        try:
            descriptor = readable.open_followed(path)
        except FileNotFoundError:
            return "missing"
        with readable.naming(path), open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            mark, known = fingerprint(status), self._known.get(path)
            if known is not None and known[0] == mark:
                return known[1]
            found = hashlib.file_digest(file, "sha256").hexdigest()
            # Of the file that was read: its name may be gone by now.
            is_same = fingerprint(os.fstat(descriptor)) == mark
        # A change within the same tick of the file system's clock would not show: not before it is over.
        if is_same and clock.now() - status.st_ctime > SETTLED_S:
            self._known[path] = (mark, found)
        return found


def matching(root: Path, pattern: str, *, passing_over: Collection[int] = ()) -> Iterator[str]:
    """The paths that a glob means, hidden ones only if it says so; `**` is any number of folders.

    As Python's own, but for folders that cannot be listed: an OSError, unless its number is one to pass over.
    """
    absent = frozenset((*_ABSENT, *passing_over))
    *folders, last = pattern.split("/")
    if last == ANY_DEPTH:
        folders, last = [*folders, last], "*"
    found = [""]
    for segment in folders:
        if segment == ANY_DEPTH:
            found = [below for path in found for below in _with_all_below(root, path, absent)]
        else:
            found = [path + "/" for above in found for path in _named(root, above, segment, absent)]
    is_listed = glob.has_magic(last)
    for path in (path for above in found for path in _named(root, above, last, absent)):
        if is_listed or _is_there(root / path, absent):
            yield path


def _named(root: Path, above: str, segment: str, absent: Collection[int]) -> list[str]:
    """The paths in the folder `above` that one segment of a glob may mean."""
    if not glob.has_magic(segment):
        return [above + segment]
    names = fnmatch.filter(_names(root / above, absent), segment)
    return [above + name for name in names if _is_meant(name, segment)]


def _is_meant(name: str, segment: str) -> bool:
    return segment.startswith(".") or not name.startswith(".")


def _with_all_below(root: Path, above: str, absent: Collection[int]) -> Iterator[str]:
    """A folder and all below it, each with its slash; a link that leads back up is not followed."""
    stack = [(above, frozenset([os.path.realpath(root / above)]))]
    while stack:
        folder, way = stack.pop()
        yield folder
        for path in (f"{folder}{name}/" for name in _names(root / folder, absent) if _is_meant(name, "*")):
            real = os.path.realpath(root / path) if _is_folder(root / path) else ""
            if real and real not in way:
                stack.append((path, way | {real}))


def _names(folder: Path, absent: Collection[int]) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError as error:
        if error.errno not in absent:
            raise
        return []


def _is_there(path: Path, absent: Collection[int]) -> bool:
    try:
        os.lstat(path)
    except OSError as error:
        if error.errno not in absent:
            raise
        return False
    return True


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        if error.errno != errno.ELOOP:  # a link that leads to itself
            raise
        return False
