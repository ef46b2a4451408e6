"""What the documentation shows, taken from there: what the tests use is what people copy."""

from __future__ import annotations

import re
from pathlib import Path

_FORMATS = Path(__file__).parents[1] / "docs" / "formats.md"
_SQL = re.compile(r"^```sql\n(.*?)^```$", re.MULTILINE | re.DOTALL)

(READY,) = _SQL.findall(_FORMATS.read_text(encoding="utf-8"))
"""Asks todos.db what can start: each row's first column is a task."""
