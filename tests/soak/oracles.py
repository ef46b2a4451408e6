"""What must hold, whatever happened; each function names the sentence that it holds the project to."""

from __future__ import annotations

import re
import shlex
import sqlite3
from contextlib import closing
from typing import Any

from holdfast import seals

from .bodies import digest
from .processes import Said
from .world import MEMORY, BrokenError, World, overrides

FILES = {
    "keep": ("to",),
    "set aside": ("path", "to"),
    "copy": ("to",),
    "cut": ("path", "to"),
    "rename": ("path", "to"),
}
"""Which of the two names an action of a dry run changes; of those not named here, `path`."""
ANSWERS_MAX = 25
CHANGES = ("change_topic", "change_inbox", "change_items", "raise_version")
_SECTION = re.compile(rb"<!-- holdfast section=(\S+) bytes=(\d+) -->\n")
_SEAL = re.compile(rb"<!-- [^\n]*?holdfast=1 task=(\S+) [^\n]*-->")


def expect_code(world: World, said: Said, codes: tuple[int, ...]) -> None:
    """Exit statuses, contract section 2; 1 is right only if something was made to fail."""
    if said.code in codes or is_fair_refusal(world, said) or (said.code == 1 and world.failing):
        return
    raise BrokenError(f"exit status {said.code}: {said.text[-2500:]}")


def is_fair_refusal(world: World, said: Said) -> bool:
    """A lost run's files are not taken over with other parameters; what is not there is not continued."""
    lost = ["lost", "record"] in world.log()
    return said.code == 2 and lost and bool(re.search(r"other parameters|No run|no run|parameter", said.text))


# --- after each command ------------------------------------------------------------------------------------------


def check_views(world: World) -> None:
    """`list`, `status`, RESUME.md, checkpoint.md, checkpoint.json and todos.db say the same."""
    if not world.journal.is_file():
        return
    status = world.status()
    done, total = status["totals"]["completed"], status["totals"]["tasks"]
    said = {"status": (done, total)}
    listed = next(one for one in world("list", "--json").json() if one["run_id"] == status["run_id"])
    said["list"] = (listed["done"], listed["total"])
    said["checkpoint.md"] = counts(world, "checkpoint.md", r"Progress: (\d+) of (\d+)")
    said["RESUME.md"] = counts(world, "RESUME.md", r"Finished: (\d+) of (\d+)")
    said["todos.db"] = (sum(row == "done" for row in rows(world, status)), total)
    cells = (world.root / "checkpoint.md").read_text().split("## Legend")[0]
    said["cells"] = (len(re.findall(r"\| ✅", cells)), total)
    if are_items_guessed(world, status):
        return
    if len(set(said.values())) != 1:
        raise BrokenError(f"views disagree: {said}")


def are_items_guessed(world: World, status: Any) -> bool:
    """After a loss, pages list the items that files suggest until the function that makes them has run."""
    is_open = any(task["id"] in ("xs", "ys") and task["status"] != "completed" for task in status["tasks"])
    return is_open and ["lost", "record"] in world.log()


def counts(world: World, name: str, pattern: str) -> tuple[int, int]:
    found = re.search(pattern, (world.root / name).read_text())
    return (int(found[1]), int(found[2])) if found else (-1, -1)


def rows(world: World, status: Any) -> list[str]:
    tasks = {task["id"] for task in status["tasks"]}
    with closing(sqlite3.connect(world.state / "todos.db")) as connection:
        return [row[1] for row in connection.execute("SELECT id, status FROM todos") if row[0] in tasks]


def check_recover(world: World) -> None:
    """`--dry-run` prints exactly what would be done; a second `recover` does nothing."""
    before = world.entries()
    foreseen = world("recover", "soak.py", "--dry-run", "--json")
    done = world("recover", "soak.py", "--json")
    expect_code(world, done, (0, 3))
    if foreseen.code != done.code:
        raise BrokenError(
            f"foreseen {foreseen.code}, done {done.code}: {foreseen.text[-1500:]} {done.text[-1500:]}"
        )
    if done.code not in (0, 3):
        return
    planned, carried_out = foreseen.json(), done.json()
    if planned["tasks"] != carried_out["tasks"]:
        differ = [pair for pair in zip(planned["tasks"], carried_out["tasks"], strict=False) if pair[0] != pair[1]]
        raise BrokenError(f"planned and done differ: {differ}")
    listed = {timeless(one[key]) for one in planned["actions"] for key in FILES.get(one["do"], ("path",))}
    after = world.entries()
    changed = {timeless(name) for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    if listed != changed:
        raise BrokenError(
            f"foreseen only: {listed - changed}, done only: {changed - listed}; {planned['actions']}"
        )
    if planned["run_id"] is None:
        return
    world.run_id = planned["run_id"]
    check_views(world)
    journal = world.journal.read_bytes()
    again = world("recover", "soak.py", "--json")
    if (again.code, again.json()["events"], world.journal.read_bytes()) != (done.code, 0, journal):
        raise BrokenError(f"a second recover recorded something: {again.out[-3000:]}")


def timeless(name: str) -> str:
    return re.sub(r"\.\d{8}T\d{6}Z(\.\d+)?", ".TIME", name)


# --- the end -----------------------------------------------------------------------------------------------------


def finish(world: World) -> None:
    """Every state has a command that leads out of it, and `status` prints it: 0 stuck runs."""
    world.let_fail()
    for _ in range(ANSWERS_MAX):
        said = world.go("--budget", "1000")
        expect_code(world, said, (0, 3))
        if said.code == 0:
            return
        if said.code == 2:
            start_over(world)
        else:
            answer(world)
    raise BrokenError(f"stuck: {world('status').text[-3000:]}")


def start_over(world: World) -> None:
    """What was refused for its parameters is wanted all the same."""
    world.note("asked", "*")
    world.run_id += "-anew"
    said = world("run", "soak.py", "--force", "--run-id", world.run_id, *world.param_words())
    expect_code(world, said, (0, 3))


def answer(world: World) -> None:
    """Carry out the commands that `status` shows."""
    text = world("status").text
    commands = re.findall(r"^ +holdfast ((?:approve|decide|retry|reject) [^\n]*)$", text, re.MULTILINE)
    if not commands:
        raise BrokenError(f"waits for a person, but names no command: {text}")
    for command in commands:
        words = shlex.split(command.split(" (")[0])
        if words[0] == "decide":
            words[2] = chosen(world, words[1], command, text)
        said = world(*words)
        if said.code != 0:
            raise BrokenError(f"the command that status names fails: {words} {said.text}")


def chosen(world: World, task: str, command: str, text: str) -> str:
    """Keep or restore what was edited; make anew whatever else is asked about."""
    offered = re.findall(r"\b(keep|restore|redo|continue)\b", command)
    was_changed = bool(re.search(rf"^  {re.escape(task)}: \S+ was changed after", text, re.MULTILINE))
    is_edit = was_changed and world.is_edited(world.oldest(task))
    choices = [one for one in offered if one != "keep" or is_edit]
    choice = world.dice.choice(choices)
    world.has_kept_edits |= choice == "keep"
    world.note("asked" if choice in ("redo", "continue") else "answered", world.oldest(task))
    return choice


def check_end(world: World, undisturbed: World) -> None:
    """Everything that is promised of a run that says it is complete."""
    check_views(world)
    said = world("verify", "--json")
    if said.code != 0:
        raise BrokenError(f"verify after the end: {said.text[-3000:]}")
    check_no_op(world)
    check_recover(world)
    check_words(world)
    check_progress(world)
    check_payments(world)
    check_cost(world)
    check_runs(world)
    check_artifacts(world, undisturbed)


def check_no_op(world: World) -> None:
    """Completed, it is verified and otherwise 'nothing to do': no body runs, nothing is paid."""
    before = world.log()
    said = world.go()
    expect_code(world, said, (0,))
    new = [line for line in world.log()[len(before) :] if line[0] not in ("did",)]
    if new or "othing to do" not in said.text:
        raise BrokenError(f"a complete run did something: {new} {said.text}")


def check_words(world: World) -> None:
    """Nothing is deleted that a person did not ask to delete."""
    lost = world.tokens - world.present_tokens() - world.destroyed
    if lost:
        raise BrokenError(f"words of a person are gone: {lost}")


def check_progress(world: World) -> None:
    """progress.md: one section per finished item, no duplicates after a redo."""
    text = (world.run_dir / "progress.md").read_text() if (world.run_dir / "progress.md").is_file() else ""
    told = re.findall(r"SECTION (\S+) ", text)
    if len(told) != len(set(told)):
        raise BrokenError(f"a section twice in progress.md: {sorted(told)}")


# --- artifacts ---------------------------------------------------------------------------------------------------


def check_artifacts(world: World, undisturbed: World) -> None:
    """Every artifact as an undisturbed run makes it, given the same words of people."""
    mine = artifacts(world)
    overrides(undisturbed, kept_words(world, mine))
    undisturbed.params, undisturbed.sketch = world.params, world.sketch
    undisturbed.write_pipeline()
    inbox = (world.root / "inbox" / "a.txt").read_text()
    (undisturbed.root / "inbox" / "a.txt").write_text(inbox)
    finish(undisturbed)
    theirs = artifacts(undisturbed)
    unknown = behind_lost_values(world)
    for name, content in theirs.items():
        if mine.get(name) != content and owner_of(world, name) not in unknown:
            raise BrokenError(f"{name} is wrong:\n{show(mine.get(name))}\nand should be\n{show(content)}")


def owner_of(world: World, name: str) -> str:
    owners = world.owners()
    return owners[name].step.name if name in owners else "memory"


def behind_lost_values(world: World) -> set[str]:
    """Steps whose files may be of older inputs and nobody can tell: contract 3.7, "an input whose value is lost
    is unknown, not different", and no task with an intact sealed artifact runs again after a loss."""
    lines = world.log()
    if ["lost", "record"] not in lines or not (world.has_kept_edits or any(line[-1] in CHANGES for line in lines)):
        return set()
    behind: set[str] = set()
    for step in world.sketch.steps:
        takes = {*step.takes, *step.sources, step.head} - {""}
        if takes & behind or any(not world.sketch.step(name).paths() for name in takes):
            behind.add(step.name)
    return behind


def show(content: bytes | None) -> str:
    return "missing" if content is None else content[:2000].decode(errors="backslashreplace")


def artifacts(world: World) -> dict[str, bytes]:
    """Path -> body of each file that the pipeline makes now; of a memory file, each section."""
    found = {}
    for name in world.owners():
        path = world.root / name
        if path.is_file() and not path.is_symlink():
            found[name] = authored(path.read_bytes()) if seals.is_inline(name) else path.read_bytes()
    return found | sections(world)


def authored(data: bytes) -> bytes:
    """What was returned: without the seal, and without a newline that only the seal needed."""
    parts = seals.take_apart(data)
    return seals.author_body(parts.body, parts.seal is not None and parts.seal.newline_added)


def sections(world: World) -> dict[str, bytes]:
    path = world.root / MEMORY
    data = path.read_bytes() if path.is_file() else b""
    return {
        f"{MEMORY} {world.oldest(opened[1].decode())}": data[opened.end() : opened.end() + int(opened[2])]
        for opened in _SECTION.finditer(data)
    }


def kept_words(world: World, mine: dict[str, bytes]) -> dict[str, str]:
    """What an undisturbed run has to be told: edits that were kept, and sections that stand although
    what they were made from has changed ("a section once accepted stands")."""
    wanted = {}
    owners = world.owners()
    made = {(line[1], line[2]) for line in world.log() if line[0] == "made"}
    for name, content in mine.items():
        text = content.decode(errors="replace")
        is_kept = world.has_kept_edits and name.endswith(".md") and name in owners
        if name in owners and "PERSON-" in text and not is_kept:
            raise BrokenError(f"an edit of {name} was trusted, and nobody said so")
        # A flipped bit in a text is an edit, too, as far as anybody can tell.
        if is_kept and ["lost", "file", owners[name].task] in world.log():
            wanted[f"{owners[name].task} {owners[name].key}"] = text
        task = name.removeprefix(f"{MEMORY} ")
        if name.startswith(MEMORY) and (task, digest(text)) in made:
            wanted[f"{task} "] = text
    return wanted


# --- money -------------------------------------------------------------------------------------------------------


def check_payments(world: World) -> None:
    """`once`: a record belongs to (task, round, key); a call that was paid for, and kept, is replayed.

    It may be made again only if, since it was kept,
    - the task was sent back, refused by `check`, or asked for again: another round;
    - its body began to run with other inputs: another round;
    - the version of its step was raised before it was finished: another round;
    - the record was lost, and the artifact too, or the task has none, or its value was lost with the copies.
    """
    lines = world.log()
    last: dict[tuple[str, ...], int] = {}
    for number, line in enumerate(lines):
        if line[0] == "pay":
            key = tuple(line[1:])
            if key in last and not may_pay_again(world, key, lines[last[key] : number]):
                raise BrokenError(f"paid twice: {line}, lines {last[key]} and {number} of the log")
            last[key] = number


def may_pay_again(world: World, call: tuple[str, ...], since: list[list[str]]) -> bool:
    task, _, signature = call
    said = [" ".join(line) for line in since]
    if f"kept {' '.join(call)}" not in said:
        return True
    if {f"rewind {task}", f"refused {task}", f"asked {task}", "asked *"} & set(said):
        return True
    if any(line[:2] == ["run", task] and line[2] != signature for line in since):
        return True
    step = world.sketch.step(task.partition("[")[0])
    if step.traits.get("blind") and any(line[0] == "rewind" for line in since):
        return True  # it was kept against other inputs, which changed again
    if f"raised {step.name}" in said and f"whole {task}" not in said:
        return True
    losses = ["lost record"] + (["lost objects"] if step.traits.get("large_calls") else [])
    lost_at = [number for number, line in enumerate(said) if line in losses]
    after = said[lost_at[-1] :] if lost_at else []
    is_whole = f"whole {task}" in after and f"lost file {task}" not in after
    has_value_beside = step.kind in ("several", "folder") and "lost objects" in said
    return bool(lost_at) and (not is_whole or has_value_beside)


def check_cost(world: World) -> None:
    """`total_cost_usd` is all that was spent: never more, and without kills and losses never less."""
    lines = world.log()
    spent = 0.01 * sum(line[0] == "pay" for line in lines)
    said = world.status()["total_cost_usd"]
    is_quiet = not any(line[0] == "lost" or line[-1] in ("-9", "130") for line in lines)
    if said > spent + 1e-9 or (is_quiet and said < spent - 1e-9):
        raise BrokenError(f"cost {said}, but {spent} was spent")


def check_runs(world: World) -> None:
    """Only what is needed is redone: a finished task runs again only if

    - it was sent back, refused or asked for again, or its body began to run with other inputs meanwhile;
    - a file of it was lost, and there is no copy: none was made, or the copies or the record were lost too;
    - it has no files, and its value was lost with the copies or with the record.
    """
    lines = world.log()
    made: dict[tuple[str, str], int] = {}  # in a run that has not ended yet
    finished: dict[tuple[str, str], int] = {}
    signatures: dict[str, str] = {}
    for number, line in enumerate(lines):
        if line[0] == "run":
            key = (line[1], line[2])
            signatures[line[1]] = line[2]
            if key in finished and not may_run_again(world, *key, lines[finished[key] : number]):
                raise BrokenError(
                    f"ran again: {line}, finished at line {finished[key]}, again at {number} of the log"
                )
            finished.pop(key, None)
        elif line[0] == "made":
            made[line[1], signatures[line[1]]] = number
        elif line[0] == "did" and line[1] in ("run", "resume"):
            finished |= made if line[2] in ("0", "3") else {}
            made = {}


def may_run_again(world: World, task: str, signature: str, since: list[list[str]]) -> bool:
    said = {" ".join(line) for line in since}
    step = world.sketch.step(task.partition("[")[0])
    if {f"rewind {task}", f"refused {task}", f"asked {task}", "asked *"} & said:
        return True
    if any(line[:2] == ["run", task] and line[2] != signature for line in since):
        return True
    if step.traits.get("blind") and any(line[0] == "rewind" for line in since):
        return True  # it was kept against other inputs, which changed again
    is_lost = "lost objects" in said or "lost record" in said
    if not step.paths() or step.kind in ("several", "folder"):
        has_lost_file = f"lost file {task}" in said and not step.copy
        return is_lost or has_lost_file
    return f"lost file {task}" in said and (is_lost or not step.copy)


def check_plan(world: World) -> None:
    """What `plan` says would run is what then runs, and nothing that it calls reused."""
    chosen_run = ["--resume", world.run_id] if world.run_dir.exists() else []
    said = world("plan", "soak.py", *chosen_run, *world.param_words(), "--json")
    if said.code != 0:
        expect_code(world, said, (0,))
        return
    plan = {world.oldest(task["id"]): task for task in said.json()["tasks"] if task["id"] in world.tasks()}
    before = len(world.log())
    done = world.go()
    expect_code(world, done, (0, 3))
    lines = world.log()[before:]
    ran = {line[1] for line in lines if line[0] == "run"}
    if any(line[0] == "rewind" for line in lines):
        return
    wrong = {
        task: plan[task]
        for task in ran & plan.keys()
        if plan[task]["action"] not in ("run", "redo", "continue") and not plan[task]["if_different"]
    }
    if wrong:
        raise BrokenError(f"ran, although plan said otherwise: {wrong}")
    left = {
        task
        for task, one in plan.items()
        if one["action"] in ("redo", "continue")
        and not one["if_different"]
        and task not in ran
        # A lost value is there again once another task has given the same one.
        and "objects/" not in one["reason"]
    }
    if left and done.code == 0:
        raise BrokenError(f"did not run, although plan said so: {[plan[task] for task in left]}")
