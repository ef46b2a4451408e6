"""What the pages and documents of a run say: all of them the same, at every stop."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from typing import Any

from .world import BrokenError, World

STATUSES = {0: "completed", 1: "failed", 3: "paused", 130: "in_progress"}
SHARED = ("status", "totals", "last_completed_step", "next_step", "total_cost_usd", "total_tokens", "error")
"""What `status --json` and checkpoint.json both have; without `updated_at`, which an approval moves for both."""
READY = """
    SELECT t.id FROM todos t WHERE t.status = 'pending' AND NOT EXISTS (
      SELECT 1 FROM todo_deps td JOIN todos dep ON td.depends_on = dep.id
      WHERE td.todo_id = t.id AND dep.status != 'done')
"""  # contract section 4


def check_views(world: World, code: int | None = None, *, are_items_guessed: bool = False) -> None:
    """Exit status, `list`, `status`, RESUME.md, checkpoint.md, checkpoint.json and todos.db say the same."""
    if not world.journal.is_file():
        return
    status = world.status()
    if code in STATUSES and status["status"] != STATUSES[code]:
        raise BrokenError(f"exit status {code}, but the run is {status['status']}")
    if are_items_guessed:
        return
    check_counts(world, status)
    check_documents(world, status)
    check_rows(world, status)


def check_counts(world: World, status: Any) -> None:
    totals = status["totals"]
    done, total = totals["completed"], totals["tasks"]
    said = {"status": (done, total)}
    said["checkpoint.md"] = counts(world, "checkpoint.md", r"Progress: (\d+) of (\d+)")
    said["RESUME.md"] = counts(world, "RESUME.md", r"Finished: (\d+) of (\d+)")
    cells = (world.root / "checkpoint.md").read_text().split("## Legend")[0]
    said["cells"] = (len(re.findall(r"\| ✅", cells)), total)
    if len(set(said.values())) != 1:
        raise BrokenError(f"views disagree: {said}")


def counts(world: World, name: str, pattern: str) -> tuple[int, int]:
    found = re.search(pattern, (world.root / name).read_text())
    return (int(found[1]), int(found[2])) if found else (-1, -1)


def check_documents(world: World, status: Any) -> None:
    """`status --json`, `list --json` and checkpoint.json."""
    listed = next(one for one in world("list", "--json").json() if one["run_id"] == status["run_id"])
    totals = status["totals"]
    expected = (
        status["status"],
        totals["completed"],
        totals["tasks"],
        status["total_cost_usd"],
    )
    if (listed["status"], listed["done"], listed["total"], round(listed["total_cost_usd"], 6)) != expected:
        raise BrokenError(f"list says {listed}, status {expected}")
    summary = json.loads((world.run_dir / "checkpoint.json").read_text())
    differ = {key: (summary[key], status[key]) for key in SHARED if summary[key] != status[key]}
    if differ:
        raise BrokenError(f"checkpoint.json and status differ: {differ}")


def check_rows(world: World, status: Any) -> None:
    """todos.db has the same tasks done, and its query lists exactly those that can start."""
    tasks = {task["id"]: task["status"] for task in status["tasks"]}
    with closing(sqlite3.connect(world.state / "todos.db")) as connection:
        rows = {row[0]: row[1] for row in connection.execute("SELECT id, status FROM todos") if row[0] in tasks}
        ready = {row[0] for row in connection.execute(READY)}
    done = {task for task, how in tasks.items() if how in ("completed", "skipped")}
    if done != {task for task, how in rows.items() if how == "done"} or rows.keys() != tasks.keys():
        raise BrokenError(f"todos.db has {rows}, status {tasks}")
    if ready != set(status["next"]):
        raise BrokenError(f"todos.db says {sorted(ready)} can start, status {sorted(status['next'])}")
