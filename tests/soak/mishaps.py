"""What happens to files: artifacts, state and pages that are lost, damaged, swapped, or put back from a backup."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from scenarios.damages import cut, delete, empty, flip, folder, garbage, link, tail_lost, zeros

from .world import VIEWS, BrokenError, World

DAMAGES = (delete, delete, empty, cut, cut, flip, zeros, garbage, tail_lost, folder, link)


def damage_artifact(world: World) -> str:
    owners = world.owners()
    every = (*owners, *(f"{name}.seal" for name in owners), world.sketch.memory)
    names = [name for name in every if (world.root / name).is_file()]
    if not names:
        return "nothing there"
    name = world.dice.choice(names)
    if name == world.sketch.memory:
        world.note("lost", "file", "memory")
    else:
        world.note("lost", "file", owners[name.removesuffix(".seal")].task)
    is_watched = world.dice.random() < 0.2 and is_whole(world)
    before = (world.root / name).read_bytes()
    told = destroy(world, world.root / name, world.dice.choice(DAMAGES))
    path = world.root / name
    is_same = path.is_file() and not path.is_symlink() and path.read_bytes() == before
    if is_watched and not is_same and world("verify", world.run_id).code != 4:
        raise BrokenError(f"verify does not see it: {told}")
    return told


def is_whole(world: World) -> bool:
    """Whether the run is complete, and nothing is wrong with it."""
    if not world.is_begun() or world.status().get("status") != "completed":
        return False
    return world("verify", world.run_id).code == 0


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


def destroy(world: World, path: Path, how: Callable[..., None]) -> str:
    """Damage a file or a folder; people's words that only it had are gone with it."""
    before = world.present_tokens()
    how(path, world.dice)
    world.destroyed |= before - world.present_tokens()
    return f"{how.__name__} {path.relative_to(world.root)}"


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
    if "record" in lost:  # a file that was to be moved first lies where nobody looks any more
        for task in sorted({owner.task for owner in world.owners().values()} - world.whole_tasks()):
            world.note("lost", "file", task)


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
