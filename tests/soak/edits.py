"""What people write: into artifacts, half-finished texts, memory files and pages."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

from holdfast import seals

from .world import World


def edit_artifact(world: World) -> str:
    """A person's words somewhere above the seal."""
    names = [name for name in world.owners() if seals.is_inline(name) and (world.root / name).is_file()]
    if not names:
        return "nothing there"
    name = world.dice.choice(names)
    path = world.root / name
    try:
        lines = path.read_text().splitlines(keepends=True)
    except ValueError:
        return "not text"
    if len(lines) < 2:
        return "too short"
    lines.insert(world.dice.randrange(len(lines) - 1), f"{world.new_token()} this.\n")
    path.write_text("".join(lines))
    world.note("lost", "file", world.owners()[name].task)
    return name


def edit_half(world: World) -> str:
    """A person adds to a half-finished text."""
    parts = [path for path in world.files() if path.name.endswith(".part")]
    if not parts:
        return "nothing there"
    path = world.dice.choice(parts)
    with path.open("a") as text:
        text.write(f"{world.new_token()} this.\n")
    return path.name


def write_into_memory(world: World) -> str:
    """Between the sections, or inside of one."""
    path = world.root / world.sketch.memory
    if not path.is_file():
        return "nothing there"
    try:
        text = path.read_text()
    except ValueError:
        return "not text"
    places = [0, len(text), *(found.start() for found in re.finditer(r"<!-- holdfast section=", text))]
    if world.dice.random() < 0.3:
        places = [found.start() for found in re.finditer(r"Line \d of memory", text)] or places
        world.note("lost", "file", "memory")
    place = world.dice.choice(places)
    if place and text[place - 1] != "\n":
        return "damaged"
    path.write_text(f"{text[:place]}{world.new_token()} between.\n{text[place:]}")
    return str(place)


def turn_back_cell(world: World) -> str:
    """A finished task turned back in checkpoint.md, with a remark, or in todos.db."""
    task = world.dice.choice(world.tasks())
    if world.dice.random() < 0.4:
        return turn_back_row(world, task)
    path = world.root / "checkpoint.md"
    if not path.is_file() or path.is_symlink():
        return "nothing there"
    text = path.read_text(errors="replace")
    cells = [found.start() for found in re.finditer("(?<=[|] )✅(?= [|])", text)]
    if not cells:
        return "no cell"
    place = world.dice.choice(cells)
    path.write_text(
        text[:place] + "—" + text[place + 1 :].replace("## Legend", f"{world.new_token()}\n\n## Legend")
    )
    world.note("asked", "*")
    return f"character {place}"


def edit_letter(world: World) -> str:
    """Somebody writes into RESUME.md, or takes its stamp away."""
    path = world.root / "RESUME.md"
    if not path.is_file() or path.is_symlink():
        return "nothing there"
    text = path.read_text(errors="replace")
    if world.dice.random() < 0.3:
        text = text[: text.rfind("<!-- holdfast view")]
    place = world.dice.choice([found.start() for found in re.finditer("^", text, re.MULTILINE)])
    path.write_text(f"{text[:place]}{world.new_token()} this.\n{text[place:]}")
    return str(place)


def edit_rows(world: World) -> str:
    """Rows of todos.db that are claimed, renamed, added or deleted."""
    path = world.state / "todos.db"
    if not path.is_file() or path.is_symlink():
        return "nothing there"
    task, token = world.dice.choice(world.tasks()), world.new_token()
    statement, values = world.dice.choice(
        [
            ("UPDATE todos SET status = 'done' WHERE id = ?", (task,)),
            ("UPDATE todos SET description = ? WHERE id = ?", (token, task)),
            ("INSERT INTO todos (id, title, status) VALUES (?, 'more', 'pending')", (token,)),
            ("DELETE FROM todo_deps WHERE todo_id = ?", (task,)),
        ]
    )
    try:
        with closing(sqlite3.connect(path)) as connection, connection:
            changed = connection.execute(statement, values).rowcount
    except sqlite3.DatabaseError:
        changed = 0
    if not changed or token not in values:
        world.destroyed.add(token)
    return f"{statement} {values}"


def claim_cell(world: World) -> str:
    """A task that is not finished turned to done in checkpoint.md."""
    path = world.root / "checkpoint.md"
    if not path.is_file() or path.is_symlink():
        return "nothing there"
    text = path.read_text(errors="replace")
    cells = [found.start() for found in re.finditer("(?<=[|] )—(?= [|])", text)]
    if not cells:
        return "no cell"
    place = world.dice.choice(cells)
    path.write_text(text[:place] + "✅" + text[place + 1 :])
    return f"character {place}"


def turn_back_row(world: World, task: str) -> str:
    path = world.state / "todos.db"
    if not path.is_file() or path.is_symlink():
        return "nothing there"
    try:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE todos SET status = 'pending' WHERE id = ? AND status = 'done'", (task,))
    except sqlite3.DatabaseError:
        return "no database"
    world.note("asked", world.oldest(task))
    return f"row {task}"
