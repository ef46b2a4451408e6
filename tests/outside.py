"""A file outside every project, for links to lead to: a mistake, made as root, must not reach the system's own."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path

_folder = Path(tempfile.mkdtemp(prefix="holdfast-outside-"))
atexit.register(shutil.rmtree, _folder, ignore_errors=True)

CONTENT = b"somebody:x:1000:1000::/home/somebody:/bin/sh\n"
OUTSIDE = _folder / "passwd"
OUTSIDE.write_bytes(CONTENT)
