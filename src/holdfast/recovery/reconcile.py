"""Each task: trust, heal, adopt, redo, continue, ask or run, with the reason. Pure.

Rule 1. The journal is the truth about decisions; an artifact about its own content.
Rule 2. A record is trusted only if its inputs are the ones that are there now and its files are intact.
Rule 3. Damaged is healed, else redone. Changed is a person's: it is asked about, unless they said before.
Rule 4. A whole sealed artifact without a record is adopted, unless the journal moved on to a later round. One of a
        later round than is on record has none: the record is an older copy that was put back.
Rule 5. Unknown is not different: an input whose value is lost makes nothing stale. Once it is known again and
        does not fit, that is asked about, never redone unasked.
Rule 6. What a person decided about this task comes before what the settings say of all tasks.

Here is finished work; `unfinished.py` has the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from holdfast.artifacts import looks as look
from holdfast.artifacts.looks import Look
from holdfast.artifacts.parts import UNKNOWN, changed_parts, shorten
from holdfast.decisions import (
    ADOPT,
    ASK,
    DAMAGED,
    HEAL,
    HOLD,
    KEEP,
    LEAVE,
    MIGRATE,
    MOVE,
    REDO,
    SKIP,
    STALE,
    TRUST,
    VALUE,
    WRITE,
    Decision,
)
from holdfast.recovery.evidence import KEPT_BY_PERSON, Evidence, Policy
from holdfast.recovery.unfinished import decide_unfinished, found_newer, words_for_changed, words_for_kept
from holdfast.state import COMPLETED, NEEDS_REVIEW, SKIPPED
from holdfast.wording import of_all

_INTACT = Decision(TRUST, "intact, and made from the inputs that are there now")


def decide(evidence: Evidence, policy: Policy) -> Decision:
    """The decision about one task whose producers are all through."""
    record = evidence.record
    if record.decided:
        policy = _as_decided(record.decided, policy)
    if record.status == COMPLETED:
        return _decide_completed(evidence, policy)
    if record.status == NEEDS_REVIEW:
        return _found_finished(evidence, policy) or Decision(HOLD, record.error or "needs review")
    if record.status == SKIPPED:
        return Decision(SKIP, record.error or "skipped")
    return decide_unfinished(evidence, policy)


def _found_finished(evidence: Evidence, policy: Policy) -> Decision | None:
    """What is whole on the disk after all counts, however often its step has failed; not if it was sent back."""
    if evidence.record.kind == "rounds":
        return None
    decision = decide_unfinished(evidence, policy)
    return decision if decision.action == ADOPT else None


def _as_decided(decided: str, policy: Policy) -> Policy:
    """The policy for one task, with a person's answer about it in place of the general rule."""
    if decided == "redo":  # then an edit is set aside, too
        return replace(policy, on_changed="restore", on_partial="redo")
    if decided in ("keep", "restore"):
        policy = replace(policy, on_changed=decided)
    return replace(policy, on_partial=decided) if decided in ("continue", "keep") else policy


# --- finished work ---------------------------------------------------------------------------------------


def _decide_completed(evidence: Evidence, policy: Policy) -> Decision:
    newer = found_newer(evidence) if policy.adopt and not evidence.record.decided else None
    overtaken = newer or _stale(evidence)
    if overtaken is not None:
        return overtaken
    changed = evidence.of_kind(look.CHANGED)
    is_asked = changed and policy.on_changed == "ask" and not evidence.wanted
    if evidence.value_lost and not is_asked and not _may_wait(evidence, policy):
        return _decide_value_lost(evidence)  # files alone, kept or put back, would not make up for it
    if changed and policy.on_changed != "restore":
        return _decide_changed(changed, policy)
    bad = tuple(path for path, found in evidence.files.items() if found.kind != look.SEALED)
    if bad:
        return _decide_damaged(evidence, bad, policy)
    if evidence.value_lost:
        return Decision(LEAVE, "its value is lost, and nothing unfinished needs it")
    return _decide_intact(evidence)


def _may_lack(evidence: Evidence, policy: Policy) -> bool:
    """Whether what is missing may stay missing: until a task that must run takes it."""
    return policy.only_needed and evidence.consumed and not evidence.wanted


def _may_wait(evidence: Evidence, policy: Policy) -> bool:
    """Whether a lost value concerns nobody yet. Lost with the record, it waits; else it is like a missing file."""
    return not evidence.wanted and (evidence.record.value_lost or _may_lack(evidence, policy))


def _decide_value_lost(evidence: Evidence) -> Decision:
    # What a person let stand is set aside where they find it, also if objects/ has it.
    is_persons = evidence.record.evidence in KEPT_BY_PERSON
    aside = tuple(evidence.files) if is_persons else evidence.not_kept_elsewhere()
    return Decision(REDO, _lost_words(evidence), aside, about=VALUE)


def _lost_words(evidence: Evidence) -> str:
    if evidence.record.value_lost:
        return "its value was lost with the record, and is needed"
    return "its value is missing from objects/ or damaged"


def _stale(evidence: Evidence) -> Decision | None:
    """What to do about inputs that are not the recorded ones; None if they are, or if nobody can tell."""
    record = evidence.record
    if evidence.has_same_inputs:
        return None
    then = {name: part[1:] for name, part in record.inputs.items() if part.startswith(UNKNOWN)}
    now = shorten(evidence.parts)
    unknown_now = {name for name, part in now.items() if part == UNKNOWN}
    changed = [n for n in changed_parts(record.inputs, evidence.parts) if n not in then and n not in unknown_now]
    differing = _differing(evidence)
    misfits = [name for name, part in differing.items() if part]
    # What a person kept is another than whatever the lost one was, also where no seal says which that was.
    changed += [name for name in differing if evidence.taken.get(name)]
    if evidence.kept_by:  # whatever became of the work that was sent back; parameter, version and files count
        changed = [name for name in changed if name not in evidence.taken]
    reason = _what_changed(evidence, changed)
    if evidence.kept_by and not reason:
        return None
    if reason or not (then or unknown_now):
        return Decision(REDO, reason or "its inputs changed", evidence.not_kept_elsewhere(), about=STALE)
    if record.decided == "keep" or not (misfits or _is_beyond_telling(record.input_digest, then, unknown_now)):
        return None
    listed = ", ".join(sorted(misfits or then))
    return Decision(ASK, f"it was made from another {listed} than the one that is there now", about="input")


def _differing(evidence: Evidence) -> dict[str, str]:
    """What was unknown when the work was adopted and is known now, but is not what its seal says, with that."""
    then, now = evidence.record.inputs, shorten(evidence.parts)
    unknown = {name: part[1:] for name, part in then.items() if part.startswith(UNKNOWN)}
    return {name: part for name, part in unknown.items() if now.get(name) not in (UNKNOWN, part)}


def _is_beyond_telling(recorded: str, then: Mapping[str, str], unknown_now: Collection[str]) -> bool:
    """Whether all inputs are known again and do not add up to what is recorded, and nothing says which differs."""
    return not unknown_now and recorded != UNKNOWN and not all(then.values())


def may_be_back(evidence: Evidence) -> bool:
    """Whether work that was out of date is so no longer, as far as its inputs are known."""
    stale = _stale(evidence)
    return stale is None or stale.action != REDO


def lacks_input(evidence: Evidence) -> bool:
    """Whether something is not known now that was known when the work was made."""
    then = evidence.record.inputs
    unknown = [name for name, part in evidence.parts.items() if part == UNKNOWN]
    return not all(then.get(name, "").startswith(UNKNOWN) for name in unknown)


def _what_changed(evidence: Evidence, names: list[str]) -> str:
    """Which of the known inputs differ, in words; "" if none does."""
    if names:
        return "what it was made from has changed: " + ", ".join(names)
    before = evidence.record.version
    is_raised = before != evidence.version and not evidence.migratable
    return f"its version was raised from {before} to {evidence.version}" if is_raised else ""


def _decide_changed(changed: tuple[str, ...], policy: Policy) -> Decision:
    if policy.on_changed == "keep":
        return Decision(KEEP, words_for_kept(changed), changed)
    return Decision(ASK, words_for_changed(changed), changed, about="changed")


def _decide_damaged(evidence: Evidence, bad: tuple[str, ...], policy: Policy) -> Decision:
    if bad == evidence.of_kind(look.MISSING) and _may_lack(evidence, policy):
        missing, it = of_all(bad, "is missing", "are missing"), "it" if len(bad) == 1 else "them"
        return Decision(LEAVE, f"{missing}, and nothing unfinished needs {it}", bad)
    words = ", ".join(f"{path} is {_described(evidence.files[path])}" for path in bad)
    if all(evidence.healable.get(path) for path in bad):
        return Decision(HEAL, words, bad)
    return Decision(REDO, f"{words}, and objects/ has no whole copy", bad, about=DAMAGED)


def _described(found: Look) -> str:
    return f"{found.kind} ({found.detail})" if found.detail else found.kind


def other_marker(evidence: Evidence) -> Decision | None:
    """What to do about whole files of a step whose marker is another by now; None if they have the right one."""
    wanted = evidence.marker or ""
    paths = [p for p, found in evidence.files.items() if found.seal is not None and found.seal.marker != wanted]
    words = f"sealed anew with the marker {wanted}" if wanted else "sealed anew without a marker"
    return Decision(MOVE, words, tuple(paths)) if paths else None


def _decide_intact(evidence: Evidence) -> Decision:
    record = evidence.record
    by = evidence.kept_by or ("a person" if record.decided == "keep" else "")
    is_known = UNKNOWN not in evidence.parts.values()
    is_misfit = record.decided == "keep" and any(_differing(evidence).values())  # that much is known
    if by and not evidence.has_same_inputs and (is_known or is_misfit):
        return Decision(KEEP, f"kept by {by} although its input changed", tuple(evidence.files))
    if evidence.migratable and record.version != evidence.version:
        return Decision(MIGRATE, f"its value is brought from version {record.version} to {evidence.version}")
    if evidence.moved:
        return Decision(MOVE, "the pipeline names another path", tuple(evidence.moved))
    if evidence.unwritten:
        return Decision(WRITE, f"its value is written to {', '.join(evidence.unwritten)}", evidence.unwritten)
    return _INTACT
