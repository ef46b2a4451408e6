"""The stores of a project on the local disk, for tests of what stands on them."""

from __future__ import annotations

from pathlib import Path

from holdfast.stores.objects import LocalObjects
from holdfast.stores.protocols import Files, Objects
from holdfast.stores.tree import LocalFiles


def local_stores(root: Path) -> tuple[Files, Objects]:
    """Files and objects of the run R in this folder."""
    root.mkdir(exist_ok=True)
    tmp = root / ".holdfast" / "tmp"
    return LocalFiles(root, tmp), LocalObjects(root / ".holdfast" / "objects", "R", tmp)
