"""All files below a folder, from one pass over its folders: nothing is opened, no link is followed. Read-only."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from holdfast.stores.readable import FORBIDDEN


class Folder(msgspec.Struct):
    """A folder as it was listed: names of files and links, and the folders in it, each sorted."""

    path: str  # relative to where the listing began; "" for that folder itself
    files: list[str] = []
    folders: list[Folder] = []
    is_closed: bool = False  # it may not be listed

    def everything(self) -> Iterator[str]:
        """The paths of all files in it and below."""
        stack = [self]
        while stack:
            folder = stack.pop()
            yield from (f"{folder.path}/{name}" if folder.path else name for name in folder.files)
            stack += folder.folders


def list_below(root: Path, is_passed_over: Callable[[str, list[str]], bool]) -> Folder:
    """Everything below `root`, without the folders that are passed over, by their name and what is in them."""
    top = Folder("")
    stack = [top]
    while stack:
        folder = stack.pop()
        folder.files, names, folder.is_closed = _listed(root / folder.path)
        if folder.path and is_passed_over(folder.path.rpartition("/")[2], folder.files):
            folder.files = []
            continue
        prefix = f"{folder.path}/" if folder.path else ""
        folder.folders = [Folder(prefix + name) for name in names]
        stack += folder.folders
    return top


def _listed(path: Path) -> tuple[list[str], list[str], bool]:
    files: list[str] = []
    folders: list[str] = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                (folders if entry.is_dir(follow_symlinks=False) else files).append(entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return [], [], False  # gone since it was named
    except OSError as error:
        if error.errno not in FORBIDDEN:
            raise
        return [], [], True
    return sorted(files), sorted(folders), False
