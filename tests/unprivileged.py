"""A user whom permissions keep out, also where the tests run as root, whom they do not."""

from __future__ import annotations

import importlib
import os
import pkgutil
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import holdfast

NOBODY = 65534


@contextmanager
def folder_of_a_plain_user() -> Iterator[Path]:
    """A folder of a user who is not root, and we are that user meanwhile."""
    _import_all()
    folder = Path(tempfile.mkdtemp(prefix="holdfast-plain-user-"))
    is_root = os.geteuid() == 0
    if is_root:
        os.chown(folder, NOBODY, NOBODY)
        os.seteuid(NOBODY)
    try:
        yield folder
    finally:
        if is_root:
            os.seteuid(0)
        _open_up(folder)
        shutil.rmtree(folder)


def _import_all() -> None:
    """What is imported only when it is needed may lie where that user may not read."""
    for module in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def _open_up(folder: Path) -> None:
    for parent, names, _ in os.walk(folder):
        for name in names:
            os.chmod(Path(parent) / name, 0o700)
