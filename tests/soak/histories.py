"""What may happen to a project: commands, kills, damage, edits, and changes of mind, as a seeded dice falls."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from scenarios.damages import cut, delete, empty, flip, folder, garbage, link, tail_lost, zeros

from . import oracles
from .pipelines import renamed
from .world import MEMORY, VIEWS, World

Action = Callable[[World], str]
DAMAGES = (delete, delete, empty, cut, cut, flip, zeros, garbage, tail_lost, folder, link)
MANNERS = (
    ["--on-changed", "restore"],
    ["--on-changed", "keep"],
    ["--on-partial", "continue"],
    ["--only-needed"],
    ["--quick"],
    ["--no-retry"],
    ["--concurrency", "1"],
    ["--budget", "0.03"],
)


# --- commands --------------------------------------------------------------------------------------------------


def run(world: World) -> str:
    more = world.dice.choice([[], [], *MANNERS])
    world.has_kept_edits |= "keep" in more
    said = world.go(*more)
    oracles.expect_code(world, said, (0, 1, 3) if "--no-retry" in more else (0, 3))
    oracles.check_views(world)
    return ""


def run_killed(world: World) -> str:
    """At an operation on the disk, or at a line that a body writes."""
    torn = world.dice.choice(["", ":torn"])
    if world.dice.random() < 0.6:
        said = world.go(kill_at=f"{world.dice.randrange(1, 90)}{torn}")
    else:
        said = world.go(stop=f"{world.dice.randrange(1, 25)}:KILL")
    oracles.expect_code(world, said, (0, 3, -9))
    return ""


def run_interrupted(world: World) -> str:
    said = world.go(stop=f"{world.dice.randrange(1, 20)}:{world.dice.choice(['INT', 'TERM'])}")
    oracles.expect_code(world, said, (0, 3, 130))
    if said.code == 130:
        oracles.check_views(world)
    return ""


def run_foreseen(world: World) -> str:
    oracles.check_plan(world)
    return ""


def redo(world: World) -> str:
    task = world.dice.choice(world.tasks())
    world.note("asked", world.oldest(task))
    said = world.go("--redo", task)
    if "there is no step or task" not in said.text:  # of items that nobody knows yet
        oracles.expect_code(world, said, (0, 3))
    return task


def recover(world: World) -> str:
    """Foreseen, done, and done once more."""
    oracles.check_recover(world)
    return ""


def recover_killed(world: World) -> str:
    said = world("recover", "soak.py", kill_at=str(world.dice.randrange(1, 60)))
    oracles.expect_code(world, said, (0, 2, 3, -9))
    return ""


def look(world: World) -> str:
    words = world.dice.choice(
        [["status"], ["list"], ["plan"], ["verify"], ["scan", "soak.py"], ["events"], ["why"]]
    )
    if words == ["why"]:
        words = ["why", world.dice.choice(world.tasks())]
    said = world(*words, *world.dice.choice([[], ["--json"]]))
    oracles.expect_code(world, said, (0, 2, 4) if words[0] == "verify" else (0, 2))
    return ""


def run_meddled_with(world: World) -> str:
    """A file is deleted or spoiled while an engine is at work."""
    owners = world.owners()
    if not owners:
        return "no files"
    path = world.dice.choice(list(owners))
    world.note("lost", "file", owners[path].task)
    said = world.go(stop=f"{world.dice.randrange(1, 30)}:{world.dice.choice(['delete', 'spoil'])} {path}")
    oracles.expect_code(world, said, (0, 1, 3))
    return path


def moment(world: World) -> str:
    """When a short command is killed; mostly never."""
    return str(world.dice.randrange(1, 12)) if world.dice.random() < 0.2 else ""


# --- people ----------------------------------------------------------------------------------------------------


def approve(world: World) -> str:
    for gate in world.sketch.gates:
        world("approve", gate.name, kill_at=moment(world))
    return ""


def reject(world: World) -> str:
    task = world.dice.choice(world.tasks())
    world.note("asked", world.oldest(task))
    return f"{task} {world.say('reject', task, '--to', task, '--feedback').text}"


def decide(world: World) -> str:
    """Beforehand, unasked."""
    task, choice = world.dice.choice(world.tasks()), world.dice.choice(["redo", "restore", "keep"])
    if choice == "keep" and not world.is_edited(world.oldest(task)):
        return "nothing to keep"  # something out of date would stand, and rightly
    world.note("asked", world.oldest(task))
    said = world("decide", task, choice, kill_at=moment(world))
    world.has_kept_edits |= choice == "keep"
    return f"{task} {choice} -> {said.code}"


def retry(world: World) -> str:
    world("retry", "--all", kill_at=moment(world))
    return ""


def note(world: World) -> str:
    return world.say("note").text


# --- damage ----------------------------------------------------------------------------------------------------


def destroy(world: World, path: Path, how: Callable[..., None]) -> str:
    """Damage a file or a folder; people's words that only it had are gone with it."""
    before = world.present_tokens()
    how(path, world.dice)
    world.destroyed |= before - world.present_tokens()
    return f"{how.__name__} {path.relative_to(world.root)}"


def damage_artifact(world: World) -> str:
    owners = world.owners()
    names = [
        name for name in (*owners, *(f"{name}.seal" for name in owners), MEMORY) if (world.root / name).is_file()
    ]
    if not names:
        return "nothing there"
    name = world.dice.choice(names)
    if name == MEMORY:
        world.note("lost", "file", "memory")
    else:
        world.note("lost", "file", owners[name.removesuffix(".seal")].task)
    return destroy(world, world.root / name, world.dice.choice(DAMAGES))


def edit_artifact(world: World) -> str:
    """A person's words somewhere above the seal."""
    names = [name for name in world.owners() if name.endswith(".md") and (world.root / name).is_file()]
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


def write_into_memory(world: World) -> str:
    """Between the sections, or inside of one."""
    path = world.root / MEMORY
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


def damage_state(world: World) -> str:
    """A file of Holdfast's own, the journal or the copies with good chance, or all of it."""
    if not world.state.exists():
        return "nothing there"
    named = [world.journal, world.state / "objects", world.state / "todos.db", world.run_dir, world.state]
    others = [path for path in world.state.rglob("*") if path.is_file() and not path.name.endswith(".lock")]
    path = world.dice.choice([*named, *world.dice.sample(others, min(len(others), 3))])
    if not path.exists() or path.is_symlink():
        return "nothing there"
    note_loss(world, path)
    return destroy(world, path, delete if path.is_dir() else world.dice.choice(DAMAGES))


def lose_all_state(world: World) -> str:
    if not world.state.exists():
        return "nothing there"
    note_loss(world, world.state)
    return destroy(world, world.state, delete)


def note_loss(world: World, path: Path) -> None:
    name = str(path.relative_to(world.root))
    lost = []
    if path in (world.state, world.run_dir, world.journal) or "checkpoint_" in name:
        lost.append("record")
    if path == world.state or "objects" in name:
        lost.append("objects")
    for what in lost:
        world.note("lost", what)
        world.note_whole()


def tear_journal(world: World) -> str:
    """The last bytes were never written."""
    if not world.journal.is_file() or world.journal.is_symlink():
        return "nothing there"
    before = world.present_tokens()
    data = world.journal.read_bytes().rstrip()
    world.journal.write_bytes(data[: max(0, len(data) - world.dice.randrange(1, 300))])
    world.destroyed |= before - world.present_tokens()
    note_loss(world, world.journal)
    return ""


def lose_view(world: World) -> str:
    path = world.root / world.dice.choice(VIEWS)
    return (
        destroy(world, path, world.dice.choice(DAMAGES))
        if path.is_file() and not path.is_symlink()
        else "nothing there"
    )


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


# --- changes of mind -------------------------------------------------------------------------------------------


def change_topic(world: World) -> str:
    world.params["topic"] = world.dice.choice(["kelp", "sand", "foam"])
    world.are_params_new = True
    return world.params["topic"]


def change_items(world: World) -> str:
    """One more or one less."""
    if "x" not in world.sketch.items:
        return "no items"
    if "x" in world.sketch.made_by:
        world.params["n"] = str(world.dice.choice([1, 2, 3]))
        world.are_params_new = True
    else:
        items = world.sketch.items["x"]
        world.sketch.items["x"] = (
            items[:-1] if len(items) > 1 and world.dice.random() < 0.5 else [*items, f"d{len(items)}"]
        )
        world.write_pipeline()
    return f"{world.items()}"


def change_inbox(world: World) -> str:
    text = world.dice.choice(["the first letter\n", "another letter\n"])
    (world.root / "inbox" / "a.txt").write_text(text)
    return text.strip()


def raise_version(world: World) -> str:
    step = world.dice.choice(world.sketch.steps)
    step.version += 1
    world.write_pipeline()
    return f"{step.name} to {step.version}"


def rename(world: World) -> str:
    step = world.dice.choice(world.sketch.steps)
    renamed(world.sketch, step.name, f"{step.name}_anew" if step.now == step.name else step.name)
    world.write_pipeline()
    return step.name


def migrate(world: World) -> str:
    """A newer version, and a function that brings what was made before to it."""
    step = world.dice.choice(world.sketch.steps)
    step.version, step.migrated = step.version + 1, step.migrated + 1
    world.note("raised", step.name)
    world.note_whole()
    world.write_pipeline()
    return f"{step.name} to {step.version}"


def change_paths(world: World) -> str:
    """The files of a step belong elsewhere from now on."""
    step = world.dice.choice(world.sketch.steps)
    if ["lost", "record"] in world.log():  # nobody may know any more where they were
        for owner in world.owners().values():
            if owner.step.name == step.name:
                world.note("lost", "file", owner.task)
    step.folder = "" if step.folder else "elsewhere/"
    world.write_pipeline()
    return f"{step.name} {step.folder}"


def drop_step(world: World) -> str:
    """A step leaves the pipeline, or comes back."""
    sketch = world.sketch
    if sketch.dropped:
        sketch.steps += sketch.dropped
        sketch.dropped = []
    elif unneeded := sketch.unneeded():
        gone = world.dice.choice(unneeded)
        sketch.steps.remove(gone)
        sketch.dropped = [gone]
    world.write_pipeline()
    return f"{[step.name for step in sketch.dropped]}"


def lower_version(world: World) -> str:
    """Somebody runs an old copy of the pipeline: refused, if newer work is there."""
    step = world.dice.choice(world.sketch.steps)
    if step.version == 1 or step.migrated:
        return "there is no older one"
    step.version -= 1
    world.write_pipeline()
    said = world.go()
    step.version += 1
    world.write_pipeline()
    if said.code != 2:
        oracles.expect_code(world, said, (0, 3))
    return f"{step.name} {said.code}"


def let_fail(world: World) -> str:
    """A step that fails for now, or no longer."""
    names = ["checklist", *(step.name for step in world.sketch.steps)]
    world.let_fail(*([] if world.failing else [world.dice.choice(names)]))
    return " ".join(world.failing)


def stash(world: World) -> str:
    """A backup is made."""
    if world.stashed is None:
        world.stashed = world.folder / "stashed"
        shutil.copytree(world.root, world.stashed, symlinks=True)
    return ""


def put_back_artifact(world: World) -> str:
    """One file as it was."""
    names = [name for name in world.owners() if world.stashed and (world.stashed / name).is_file()]
    if not names:
        return "nothing there"
    name = world.dice.choice(names)
    assert world.stashed is not None
    return put_back(world, name, world.owners()[name].task)


def put_back_state(world: World) -> str:
    """All of Holdfast's own, as it was."""
    if world.stashed is None or not (world.stashed / ".holdfast").is_dir():
        return "nothing there"
    note_loss(world, world.state)
    world.are_params_new = True
    return put_back(world, ".holdfast", "")


def put_back(world: World, name: str, task: str) -> str:
    before = world.present_tokens()
    path = world.root / name
    assert world.stashed is not None
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    if task:
        shutil.copy(world.stashed / name, path)
        world.note("lost", "file", task)
    else:
        shutil.copytree(world.stashed / name, path, symlinks=True)
    world.destroyed |= before - world.present_tokens()
    return name


def put_back_view(world: World) -> str:
    """An old page."""
    name = world.dice.choice([*VIEWS, ".holdfast/todos.db"])
    if world.stashed is None or not (world.stashed / name).is_file() or not (world.root / name).parent.is_dir():
        return "nothing there"
    before = world.present_tokens()
    path = world.root / name
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    shutil.copy(world.stashed / name, path)
    world.destroyed |= before - world.present_tokens()
    return name


def lose_folder(world: World) -> str:
    """All files of a step, or everything that the pipeline made."""
    owners = world.owners()
    folders = sorted({name.partition("/")[0] for name in owners if "/" in name})
    chosen = world.dice.sample(folders, world.dice.randrange(len(folders) + 1))
    before = world.present_tokens()
    for name, owner in owners.items():
        if name.partition("/")[0] in chosen:
            world.note("lost", "file", owner.task)
    for name in chosen:
        shutil.rmtree(world.root / name, ignore_errors=True)
    world.destroyed |= before - world.present_tokens()
    return f"{chosen}"


def edit_half(world: World) -> str:
    """A person adds to a half-finished text."""
    parts = [path for path in world.files() if path.name.endswith(".part")]
    if not parts:
        return "nothing there"
    path = world.dice.choice(parts)
    with path.open("a") as text:
        text.write(f"{world.new_token()} this.\n")
    return path.name


def swap(world: World) -> str:
    """Two files in each other's place."""
    owners = world.owners()
    names = [name for name in owners if (world.root / name).is_file()]
    if len(names) < 2:
        return "too few"
    one, other = world.dice.sample(names, 2)
    held = (world.root / one).read_bytes()
    (world.root / one).write_bytes((world.root / other).read_bytes())
    (world.root / other).write_bytes(held)
    for name in (one, other):
        world.note("lost", "file", owners[name].task)
    return f"{one} {other}"


def move(world: World) -> str:
    to = world.folder / f"moved {world.dice.randrange(10**6)}"
    shutil.move(world.root, to)
    world.root = to
    return ""


ACTIONS: dict[Action, int] = {
    run: 7,
    run_killed: 9,
    run_interrupted: 2,
    run_foreseen: 4,
    redo: 1,
    recover: 3,
    recover_killed: 1,
    look: 3,
    approve: 1,
    reject: 1,
    decide: 1,
    retry: 1,
    note: 1,
    damage_artifact: 5,
    edit_artifact: 3,
    write_into_memory: 1,
    damage_state: 3,
    lose_all_state: 1,
    tear_journal: 1,
    lose_view: 1,
    turn_back_cell: 1,
    claim_cell: 1,
    change_topic: 2,
    change_items: 1,
    change_inbox: 1,
    raise_version: 1,
    rename: 1,
    move: 1,
    migrate: 1,
    change_paths: 1,
    drop_step: 1,
    lower_version: 1,
    run_meddled_with: 2,
    let_fail: 2,
    stash: 2,
    put_back_artifact: 1,
    put_back_state: 1,
    put_back_view: 1,
    lose_folder: 1,
    edit_half: 1,
    swap: 1,
}


def happen(world: World, *, skip: frozenset[int] = frozenset()) -> None:
    """Three to sixteen things, the first of them a run; those in `skip` are left out, to find what matters."""
    dice = world.dice
    chosen = [dice.choice([run, run_killed, run_killed])]
    chosen += dice.choices(list(ACTIONS), list(ACTIONS.values()), k=dice.randrange(2, 16))
    seeds = [dice.randrange(2**32) for _ in chosen]
    for number, (action, seed) in enumerate(zip(chosen, seeds, strict=True)):
        dice.seed(seed)
        if number in skip:
            continue
        world.told.append(f"{number}: {action.__name__}")
        world.note("action", str(number), action.__name__)
        world.told.append(f"   {action(world)}")
    dice.seed(seeds[-1] + 1)
