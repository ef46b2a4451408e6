"""Nothing is paid for, or run, a second time without need; the rules say when there is one."""

from __future__ import annotations

from .world import BrokenError, World


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
    if f"kept {' '.join(call)}" not in said or is_wanted_anew(world, task, signature, since):
        return True
    step = world.step_of(task)
    if f"raised {step.name}" in said and not is_left_whole(task, said):
        return True
    losses = ["lost record"] + (["lost objects"] if step.traits.get("large_calls") else [])
    lost_at = [number for number, line in enumerate(said) if line in losses]
    after = said[lost_at[-1] :] if lost_at else []
    has_value_beside = step.kind in ("several", "folder") and "lost objects" in said
    return bool(lost_at) and (not is_left_whole(task, after) or has_value_beside)


def is_left_whole(task: str, said: list[str]) -> bool:
    """Whether its files were whole, and nothing happened to them."""
    return f"whole {task}" in said and f"lost file {task}" not in said


def check_cost(world: World) -> None:
    """`total_cost_usd` is all that was spent: never more, and without kills and losses never less."""
    if world.run_id.startswith("other"):  # found again in the place of ours; nobody has counted what it spent
        return
    lines = world.log()
    spent = 0.01 * sum(line[0] == "pay" for line in lines) + 0.001 * sum(line[0] == "spend" for line in lines)
    said = world.status()["total_cost_usd"]
    is_quiet = not any(line[0] in ("lost", "anew") or line[-1] in ("-9", "130", "6") for line in lines)
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
    if is_wanted_anew(world, task, signature, since):
        return True
    step = world.step_of(task)
    is_lost = "lost objects" in said or "lost record" in said
    if not step.paths() or step.kind in ("several", "folder"):
        has_lost_file = f"lost file {task}" in said and step.was_uncopied
        return is_lost or has_lost_file
    return f"lost file {task}" in said and (is_lost or step.was_uncopied)


def is_wanted_anew(world: World, task: str, signature: str, since: list[list[str]]) -> bool:
    """Whether a task was sent back, refused or asked for, or was made from something else meanwhile."""
    said = {" ".join(line) for line in since}
    if {f"rewind {task}", f"refused {task}", f"asked {task}", "asked *"} & said:
        return True
    if any(line[:2] == ["run", task] and line[2] != signature for line in since):
        return True
    # What one takes that says nothing of its inputs may have been others meanwhile, against which it was kept.
    step = world.step_of(task)
    taken = {task.replace(step.name, name, 1) for name in step.takes} if step.traits.get("blind") else set()
    return any(line[0] == "run" and line[1] in taken for line in since)
