"""What people type: commands that run to their end, are killed or interrupted, and people's words."""

from __future__ import annotations

import json

from forking import Said

from . import oracles
from .mishaps import note_loss
from .pages import check_views
from .pipelines import FILE
from .world import BrokenError, World

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
    if said.code == 2:  # nothing was touched: the views may be those of a run that is lost
        return "refused"
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


def run_on_failing_disk(world: World) -> str:
    """Once, or for good from some operation on."""
    how = world.dice.choice(["ENOSPC", "ENOSPC+", "EIO", "EMFILE", "EROFS"])
    said = world.go(trouble=f"{world.dice.randrange(1, 90)}:{how}")
    oracles.expect_code(world, said, (0, 3, 6))
    return how


def storm(world: World) -> str:
    """Killed again and again, early."""
    for _ in range(world.dice.randrange(2, 6)):
        said = world.go(trouble=str(world.dice.randrange(1, 40)))
        oracles.expect_code(world, said, (0, 3, -9))
    return ""


def run_spoken_to(world: World) -> str:
    """Somebody says or asks something while an engine is at work."""
    words, codes = something_said(world)
    spoken = world.outside / "spoken"
    spoken.unlink(missing_ok=True)
    said = world.go(stop=f"{world.dice.randrange(1, 25)}:say {json.dumps(words)}")
    oracles.expect_code(world, said, (0, 3))
    if not spoken.exists():
        world.destroyed |= {word for word in words if word in world.tokens}
        return "not said"
    answered = Said(*json.loads(spoken.read_text()))
    (world.said if answered.code == 0 else world.destroyed).update(word for word in words if word in world.tokens)
    if answered.code not in codes or "Traceback" in answered.text:
        raise BrokenError(f"{words} beside an engine gave {answered.code}: {answered.text[-2000:]}")
    return f"{words} -> {answered.code}"


def something_said(world: World) -> tuple[list[str], tuple[int, ...]]:
    """Words of a command, and the exit statuses that are right while an engine runs."""
    kind = world.dice.choice(["say", "say", "engine", "look"])
    if kind == "look":
        words = world.dice.choice(["status", "list", "plan", "verify", "events", "scan"])
        return [words, *world.dice.choice([[], ["--json"]])], (0, 4)
    if kind == "engine":
        words = world.dice.choice(["run soak.py", "resume", "recover", "clean"])
        return words.split(), (5,)
    task = world.dice.choice(world.tasks())
    token = world.new_token()
    choices = [
        ["note", token],
        ["reject", task, "--to", task, "--feedback", token],
        ["decide", task, "redo"],
        ["retry", "--all"],
        *(["approve", gate.name] for gate in world.sketch.gates),
    ]
    words = world.dice.choice(choices)
    if words[0] in ("reject", "decide"):
        world.note("asked", world.oldest(task))
    if token not in words:
        world.destroyed.add(token)
    return words, (0,) if words[0] in ("note", "retry") else (0, 2)


def run_anew(world: World) -> str:
    """The same from the beginning; what the run before made is set aside."""
    before, world.run_id = world.run_id, f"soak{world.dice.randrange(10**6)}"
    world.note("asked", "*")
    world.note("anew")
    words = ["run", FILE, "--force", "--run-id", world.run_id, *world.param_words()]
    said = world(*words, trouble=moment(world, within=90))
    oracles.expect_code(world, said, (0, 3, 6, -9))
    world.are_params_new = said.code not in (0, 3)
    if not world.is_begun():
        world.run_id = before
    return world.run_id


def clean(world: World) -> str:
    """Records of completed runs are removed: theirs are files of a lost run from now on."""
    dry = world.dice.random() < 0.2
    if not dry and world.journal.is_file() and world.status().get("status") == "completed":
        note_loss(world, world.state)
    before = world.present_tokens()
    said = world("clean", "--max-runs", "0", *(["--dry-run"] if dry else []), trouble="" if dry else moment(world))
    world.destroyed |= before - world.present_tokens()
    oracles.expect_code(world, said, (0, 6, -9))
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
    if world.dice.random() < 0.3:
        task = task.partition("[")[0]
    for one in world.tasks():
        if task in (one, one.partition("[")[0]):
            world.note("asked", world.oldest(one))
    said = world.go("--redo", task)
    if "there is no step or task" not in said.text:  # of items that nobody knows yet
        oracles.expect_code(world, said, (0, 3))
    return task


def recover(world: World) -> str:
    """Foreseen, done, and done once more."""
    oracles.check_recover(world)
    return ""


def recover_killed(world: World) -> str:
    how = world.dice.choice(["", "", ":torn", ":ENOSPC", ":ENOSPC+", ":EIO"])
    said = world("recover", "soak.py", trouble=f"{world.dice.randrange(1, 60)}{how}")
    oracles.expect_code(world, said, (0, 2, 3, 6, -9))
    return ""


def recover_storm(world: World) -> str:
    """Killed again and again."""
    for _ in range(world.dice.randrange(2, 6)):
        said = world("recover", "soak.py", trouble=str(world.dice.randrange(1, 25)))
        oracles.expect_code(world, said, (0, 3, -9))
    return ""


def answer(world: World) -> str:
    """What `status` asks for is answered, perhaps with a kill in the middle, and what is left stays open."""
    if not world.is_begun():
        return "nothing there"
    told = []
    for words in oracles.wanted_commands(world)[: world.dice.randrange(1, 4)]:
        said = world(*words, trouble=moment(world))
        oracles.expect_code(world, said, (0, 6, -9))
        told.append(f"{words} -> {said.code}")
    return "; ".join(told)


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
    whose = world.dice.choice([task, *(gate.name for gate in world.sketch.gates)])
    return f"{task} {world.say('reject', whose, '--to', task, '--feedback').text}"


def decide(world: World) -> str:
    """Beforehand, unasked."""
    task, choice = (
        world.dice.choice(world.tasks()),
        world.dice.choice(["redo", "restore", "keep", "skip", "continue"]),
    )
    if choice == "keep" and not world.is_edited(world.oldest(task)):
        return "nothing to keep"  # something out of date would stand, and rightly
    world.note("asked", "*" if choice == "skip" else world.oldest(task))  # what needs it is left out, too
    said = world("decide", task, choice, trouble=moment(world))
    world.has_kept_edits |= choice == "keep"
    return f"{task} {choice} -> {said.code}"


def retry(world: World) -> str:
    world("retry", "--all", trouble=moment(world))
    return ""


def note(world: World) -> str:
    return world.say("note").text


def moment(world: World, within: int = 12) -> str:
    """When a command is killed, or the disk fails it; mostly never."""
    if world.dice.random() < 0.75:
        return ""
    return f"{world.dice.randrange(1, within)}{world.dice.choice(['', '', ':torn', ':ENOSPC', ':EIO'])}"
