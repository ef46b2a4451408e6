"""What people type: commands that run to their end, are killed or interrupted, and people's words."""

from __future__ import annotations

from . import oracles
from .pages import check_views
from .world import World

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


def run(world: World) -> str:
    more = world.dice.choice([[], [], *MANNERS])
    world.has_kept_edits |= "keep" in more
    said = world.go(*more)
    oracles.expect_code(world, said, (0, 1, 3) if "--no-retry" in more else (0, 3))
    check_views(world, said.code)
    if said.code == 0 and not {"--only-needed", "--quick"} & set(more):
        oracles.check_whole(world)
    return ""


def run_killed(world: World) -> str:
    """At an operation on the disk, or at a line that a body writes."""
    torn = world.dice.choice(["", ":torn"])
    if world.dice.random() < 0.6:
        said = world.go(trouble=f"{world.dice.randrange(1, 90)}{torn}")
    else:
        said = world.go(stop=f"{world.dice.randrange(1, 25)}:KILL")
    oracles.expect_code(world, said, (0, 3, -9))
    return ""


def run_interrupted(world: World) -> str:
    said = world.go(stop=f"{world.dice.randrange(1, 20)}:{world.dice.choice(['INT', 'TERM'])}")
    oracles.expect_code(world, said, (0, 3, 130))
    if said.code == 130:
        check_views(world, said.code)
    return ""


def run_foreseen(world: World) -> str:
    oracles.check_plan(world)
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
    said = world("recover", "soak.py", trouble=str(world.dice.randrange(1, 60)))
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


def approve(world: World) -> str:
    for gate in world.sketch.gates:
        world("approve", gate.name, trouble=moment(world))
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
    said = world("decide", task, choice, trouble=moment(world))
    world.has_kept_edits |= choice == "keep"
    return f"{task} {choice} -> {said.code}"


def retry(world: World) -> str:
    world("retry", "--all", trouble=moment(world))
    return ""


def note(world: World) -> str:
    return world.say("note").text


def moment(world: World) -> str:
    """When a short command is killed; mostly never."""
    return str(world.dice.randrange(1, 12)) if world.dice.random() < 0.2 else ""
