"""Each task: trust, heal, adopt, redo, continue, ask or run, with the reason. Pure.

Rule 1. The journal is the truth about decisions; an artifact about its own content.
Rule 2. A record is trusted only if its inputs are the ones that are there now and its files are intact.
Rule 3. Damaged is healed, else redone. Changed is a person's: it is asked about, unless they said before.
Rule 4. A whole sealed artifact without a record is adopted, unless the journal moved on to another round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast import artifacts as look
from holdfast.artifacts import Look
from holdfast.decisions import (
    ADOPT,
    ASK,
    CONTINUE,
    HEAL,
    HOLD,
    KEEP,
    MIGRATE,
    MOVE,
    REDO,
    RUN,
    SKIP,
    TRUST,
    Decision,
)
from holdfast.inputs import UNKNOWN, changed_parts
from holdfast.state import COMPLETED, NEEDS_REVIEW, SKIPPED, TaskState

PARTIAL_MIN_CHARS = 100
"""Less half-finished text than this is not worth continuing."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What the person said beforehand."""

    on_changed: str = "ask"
    on_partial: str = "redo"
    adopt: bool = True  # False for a forced new run: what is in its way is set aside


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known of one task, gathered by the caller."""

    task: str
    run_id: str
    record: TaskState
    recorded: bool  # whether the journal knows this task at all
    input_digest: str
    parts: Mapping[str, str]
    version: int
    migratable: bool = False
    old_version_digest: str = ""  # the input digest as the recorded version would give it
    kept_by: str = ""  # the raiser of a Rewind that wants it kept
    files: Mapping[str, Look] = field(
        default_factory=dict
    )  # path -> look, for accepted files: as `check` gives it
    parts_files: Mapping[str, Look] = field(default_factory=dict)  # path -> look at NAME.part
    moved: Mapping[str, str] = field(default_factory=dict)  # old path -> new path
    healable: Mapping[str, bool] = field(default_factory=dict)
    uncopied: frozenset[str] = frozenset()  # accepted files of which objects/ has no copy
    value_lost: bool = False
    marker: str | None = None
    living_runs: frozenset[str] = frozenset()


def decide(evidence: Evidence, policy: Policy) -> Decision:
    """The decision about one task whose producers are all through."""
    record = evidence.record
    if record.status == COMPLETED:
        return _decide_completed(evidence, policy)
    if record.status == NEEDS_REVIEW:
        return Decision(HOLD, record.error or "needs review")
    if record.status == SKIPPED:
        return Decision(SKIP, record.error or "skipped")
    return _decide_open(evidence, policy)


# --- finished work ---------------------------------------------------------------------------------------


def _decide_completed(evidence: Evidence, policy: Policy) -> Decision:
    stale = _stale(evidence)
    if stale is not None:
        return stale
    if evidence.value_lost:
        return Decision(REDO, "its value is missing from objects/ or damaged", _not_kept_elsewhere(evidence))
    changed = tuple(path for path, found in evidence.files.items() if found.kind == look.CHANGED)
    if changed and policy.on_changed != "restore":
        return _decide_changed(evidence, changed, policy)
    bad = tuple(path for path, found in evidence.files.items() if found.kind != look.SEALED)
    if bad:
        return _decide_damaged(evidence, bad)
    return _decide_intact(evidence)


def _stale(evidence: Evidence) -> Decision | None:
    """What to do about inputs that are not the recorded ones; None if they are."""
    record = evidence.record
    if evidence.input_digest == record.input_digest or UNKNOWN in (
        record.input_digest,
        evidence.input_digest,
    ):
        return None
    if evidence.migratable and evidence.old_version_digest == record.input_digest:
        return None
    if evidence.kept_by:
        return None
    names = changed_parts(record.inputs, evidence.parts)
    aside = _not_kept_elsewhere(evidence)
    if not names and record.version != evidence.version:
        return Decision(REDO, f"its version was raised from {record.version} to {evidence.version}", aside)
    return Decision(REDO, "changed since: " + ", ".join(names) if names else "its inputs changed", aside)


def _not_kept_elsewhere(evidence: Evidence) -> tuple[str, ...]:
    """Files that a redo would write over although nothing else has their content: edits, and uncopied outputs."""
    return tuple(
        path
        for path, found in evidence.files.items()
        if found.kind != look.MISSING and (found.kind != look.SEALED or path in evidence.uncopied)
    )


def _decide_changed(evidence: Evidence, changed: tuple[str, ...], policy: Policy) -> Decision:
    listed = ", ".join(changed)
    if policy.on_changed == "keep":
        return Decision(KEEP, f"{listed} was edited, and the edit is kept", changed)
    return Decision(ASK, f"{listed} was changed after it was accepted", changed, about="changed")


def _decide_damaged(evidence: Evidence, bad: tuple[str, ...]) -> Decision:
    words = ", ".join(f"{path} is {_described(evidence.files[path])}" for path in bad)
    if all(evidence.healable.get(path) for path in bad):
        return Decision(HEAL, words, bad)
    return Decision(REDO, f"{words}, and objects/ has no whole copy", bad)


def _described(found: Look) -> str:
    return f"{found.kind} ({found.detail})" if found.detail else found.kind


def _decide_intact(evidence: Evidence) -> Decision:
    record = evidence.record
    if evidence.kept_by and evidence.input_digest != record.input_digest:
        return Decision(KEEP, f"kept by {evidence.kept_by} although its input changed", tuple(evidence.files))
    if evidence.migratable and record.version != evidence.version:
        return Decision(MIGRATE, f"its value is brought from version {record.version} to {evidence.version}")
    if evidence.moved:
        return Decision(MOVE, "the pipeline names another path", tuple(evidence.moved))
    return Decision(TRUST, "intact, and made from the inputs that are there now")


# --- open work -------------------------------------------------------------------------------------------


def _decide_open(evidence: Evidence, policy: Policy) -> Decision:
    kinds = {found.kind for found in evidence.files.values()}
    if evidence.files and policy.adopt:
        adopted = _adoptable(evidence, kinds)
        if adopted is not None:
            return adopted
    changed = tuple(path for path, found in evidence.files.items() if found.kind == look.CHANGED)
    if changed and policy.adopt and evidence.record.accepted is None and policy.on_changed != "restore":
        return _decide_changed_unrecorded(evidence, changed, policy)
    rivals = [path for path, found in evidence.files.items() if _is_rival(evidence, found)]
    if rivals:
        return Decision(ASK, f"{', '.join(rivals)} belongs to another run", tuple(rivals), about="path")
    half = _half_finished(evidence)
    if half:
        return _decide_half(evidence, half, policy)
    reason = evidence.record.redo_reason or _why_open(evidence)
    return Decision(RUN, reason)


def _decide_changed_unrecorded(evidence: Evidence, changed: tuple[str, ...], policy: Policy) -> Decision:
    """Sealed by this task, edited since, and the record lost: it is asked about, as it would be with a record."""
    listed = ", ".join(changed)
    if policy.on_changed == "keep" and len(changed) == len(evidence.files):
        return Decision(ADOPT, f"{listed} was edited, and the edit is kept", changed, about="exists")
    return Decision(ASK, f"{listed} was changed after it was accepted", changed, about="changed")


def _why_open(evidence: Evidence) -> str:
    if evidence.record.cut_off:
        return "an earlier attempt was cut off"
    if evidence.record.failures:
        return f"failed before: {evidence.record.error}"
    return "not started" if not evidence.recorded else "its attempts begin anew"


def _is_rival(evidence: Evidence, found: Look) -> bool:
    seal = found.seal
    return seal is not None and seal.run != evidence.run_id and seal.run in evidence.living_runs


def _adoptable(evidence: Evidence, kinds: set[str]) -> Decision | None:
    if kinds == {look.SEALED}:
        return _adopt_sealed(evidence)
    never = evidence.record.accepted is None and evidence.record.round == 0 and not evidence.record.cut_off
    if never and kinds == {look.MARKED}:
        return Decision(ADOPT, "ends in its plain completion marker", tuple(evidence.files), about="marker")
    if never and evidence.marker is None and kinds == {look.HALF}:
        return Decision(ADOPT, "is there, and no marker is expected", tuple(evidence.files), about="exists")
    return None


def _adopt_sealed(evidence: Evidence) -> Decision | None:
    found = [look_.seal for look_ in evidence.files.values() if look_.seal is not None]
    if any(seal.run != evidence.run_id and seal.run in evidence.living_runs for seal in found):
        return None
    if evidence.recorded and any(seal.round != evidence.record.round for seal in found):
        return None
    if len({(seal.set_digest, seal.value_digest) for seal in found}) > 1 or evidence.value_lost:
        return None
    if any(seal.input_digest != evidence.input_digest for seal in found) and not _unknown_inputs(evidence):
        return None
    return Decision(ADOPT, "whole and sealed, only the record was missing", tuple(evidence.files), about="sealed")


def _unknown_inputs(evidence: Evidence) -> bool:
    return UNKNOWN in evidence.parts.values()


def _half_finished(evidence: Evidence) -> Sequence[str]:
    """Files that hold something worth keeping before the step runs, though it proves nothing."""
    lying = (look.HALF, look.MARKED, look.FOREIGN, look.CHANGED, look.DAMAGED)
    found = [path for path, seen in evidence.files.items() if seen.kind in lying]
    found += [path for path, seen in evidence.files.items() if seen.kind == look.SEALED]
    return found + [path for path, seen in evidence.parts_files.items() if seen.kind != look.MISSING]


def _decide_half(evidence: Evidence, half: Sequence[str], policy: Policy) -> Decision:
    reason = f"{', '.join(half)} is there without proof"
    unfinished = [p for p in half if _look_at(evidence, p).kind in (look.HALF, look.MARKED)]
    if not unfinished or policy.on_partial == "redo":
        return Decision(REDO, reason, tuple(half))
    if policy.on_partial == "ask":
        return Decision(ASK, f"{', '.join(unfinished)} is half finished", tuple(half), about="partial")
    text = _continuable(_look_at(evidence, unfinished[-1]).body)
    if text is None:
        return Decision(REDO, f"{reason}, too little to continue", tuple(half))
    return Decision(CONTINUE, f"{unfinished[-1]} is half finished", tuple(half), partial=text)


def _look_at(evidence: Evidence, path: str) -> Look:
    return evidence.files.get(path) or evidence.parts_files[path]


def _continuable(body: bytes) -> str | None:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return text if len(text) >= PARTIAL_MIN_CHARS else None
