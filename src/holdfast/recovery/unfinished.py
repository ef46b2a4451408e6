"""Work that is not on record as finished: adopt what proves itself, judge what is half there, else run. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.artifacts import looks as look
from holdfast.artifacts.looks import Look
from holdfast.artifacts.parts import UNKNOWN, differing
from holdfast.artifacts.products import part_path
from holdfast.decisions import ADOPT, ASK, CONTINUE, HEAL, REDO, RUN, SEALED_WHOLE, UNRECORDED, Decision
from holdfast.recovery.evidence import Evidence, Policy
from holdfast.recovery.seeing import NOT_JSON
from holdfast.seals import Seal
from holdfast.state import COMPLETED, IN_PROGRESS
from holdfast.values import is_json
from holdfast.wording import of_all

_WHOLE = {look.SEALED}

PARTIAL_MIN_CHARS = 100
"""Less half-finished text than this is not worth continuing."""


def decide_unfinished(evidence: Evidence, policy: Policy) -> Decision:
    """The decision about a task that is not on record as finished."""
    if evidence.was_done and not evidence.wanted:
        return Decision(ADOPT, f"its value is lost, but {evidence.was_done}", about="lost")
    believed = _adoptable(evidence) if evidence.files and policy.adopt else None
    if believed is not None:
        return believed
    healed = _healable(evidence) if evidence.files and policy.adopt else None
    if healed is not None and (policy.on_changed == "restore" or not evidence.of_kind(look.CHANGED)):
        return healed
    changed = tuple(
        path for path in evidence.of_kind(look.CHANGED) if not _is_in_the_way(evidence.at(path), policy)
    )
    if changed and policy.adopt and evidence.record.accepted is None and policy.on_changed != "restore":
        return _decide_changed_unrecorded(evidence, changed, policy, may_restore=healed is not None)
    foreign = [path for path, found in evidence.files.items() if _is_rival(evidence, found)]
    rivals = tuple(path for path in foreign if not _is_in_the_way(evidence.at(path), policy))
    if rivals:
        words = of_all(rivals, "belongs to another run", "belong to other runs")
        return Decision(ASK, words, rivals, about="path")
    half = _half_finished(evidence)
    return _decide_half(evidence, half, policy) if half else Decision(RUN, _why_open(evidence))


def _healable(evidence: Evidence) -> Decision | None:
    """How to heal files without a record: by the hashes that their seals name; None if not all can be had so."""
    bad = tuple(path for path, found in evidence.files.items() if found.kind != look.SEALED)
    if not bad or not all(evidence.healable.get(path) for path in bad) or _adopt_sealed(evidence) is None:
        return None
    words = ", ".join(f"{path} is {evidence.at(path).kind}" for path in bad)
    return Decision(HEAL, f"{words}; objects/ has the version that its seal names", bad, about=UNRECORDED)


def _decide_changed_unrecorded(
    evidence: Evidence, changed: tuple[str, ...], policy: Policy, *, may_restore: bool
) -> Decision:
    """Sealed by this task, edited since, and the record lost: it is asked about, as it would be with a record."""
    about = UNRECORDED if may_restore else "changed"
    whole = evidence.of_kind(look.CHANGED, look.SEALED)
    lacking = [path for path in evidence.files if path not in whole]
    if lacking:
        words = _words_for_lacking(words_for_changed(changed), lacking, "restore" if may_restore else "redo")
        return Decision(ASK, words, changed, about=about)
    if policy.on_changed == "keep":
        return Decision(ADOPT, words_for_kept(changed), whole, about="kept")
    return Decision(ASK, words_for_changed(changed), changed, about=about)


def _words_for_lacking(words: str, lacking: Sequence[str], choice: str) -> str:
    bad = of_all(lacking, "is not whole", "are not whole")
    return f"{words}, and cannot be kept, for {bad}: {choice} is recommended"


def words_for_kept(edited: Sequence[str]) -> str:
    return of_all(edited, "was edited, and the edit is kept", "were edited, and the edits are kept")


def words_for_changed(edited: Sequence[str]) -> str:
    return of_all(edited, "was changed after it was accepted", "were changed after they were accepted")


def _why_open(evidence: Evidence) -> str:
    if evidence.record.claimed:
        return f"{evidence.record.claimed} says that it is done, but there is nothing that proves it"
    record = evidence.record
    if record.redo_reason:
        return record.redo_reason
    if record.cut_off or record.status == IN_PROGRESS:
        return "an earlier attempt was cut off"
    if record.error and not record.question:
        return f"failed before, and is tried again: {record.error}"
    return "not started" if not evidence.recorded else "its attempts begin anew"


def _is_rival(evidence: Evidence, found: Look) -> bool:
    seal = found.seal
    return seal is not None and seal.run != evidence.run_id and seal.run in evidence.living_runs


def _is_in_the_way(found: Look, policy: Policy) -> bool:
    return found.seal is not None and found.seal.run in policy.in_the_way


def _adoptable(evidence: Evidence) -> Decision | None:
    kinds = {found.kind for found in evidence.files.values()}
    if kinds == _WHOLE:
        return _adopt_sealed(evidence)
    never = evidence.record.accepted is None and evidence.record.round == 0
    if never and kinds == {look.MARKED}:
        return Decision(ADOPT, "ends in its plain completion marker", tuple(evidence.files), about="marker")
    is_meant = evidence.marker is None and not evidence.record.cut_off and not _is_cut(evidence)
    if never and is_meant and kinds == {look.HALF}:
        return Decision(ADOPT, "is there, and no marker is expected", tuple(evidence.files), about="exists")
    return None


def _is_cut(evidence: Evidence) -> bool:
    """Whether a file is certainly not whole, whoever says so."""
    looks = [*evidence.files.values(), *evidence.parts_files.values()]
    return any(found.detail == NOT_JSON for found in looks)


def _adopt_sealed(evidence: Evidence) -> Decision | None:
    found = [look_.seal for look_ in evidence.files.values() if look_.seal is not None]
    if evidence.is_partial or (evidence.value_lost and _is_value_due(evidence)):
        return None
    if len(found) > 1 and len({(seal.set_digest, seal.value_digest) for seal in found}) > 1:
        return None
    for seal in found:
        if seal.run != evidence.run_id and seal.run in evidence.living_runs:
            return None
        if evidence.recorded and not _is_of_round(evidence, seal):
            return None
        if not _may_fit(evidence, seal):
            return None
    # An answer that was carried out, but for the record of it, holds: whose edit it was is not forgotten.
    about = "kept" if evidence.record.decided == "keep" else "sealed"
    return replace(SEALED_WHOLE, paths=tuple(evidence.files), about=about)


def _is_of_round(evidence: Evidence, seal: Seal) -> bool:
    """Whether the record has not gone past this. Of another run's rounds, none is known to be a later one.

    Nor of this run's, if it has lost lines: what sent the work back may have come after rounds that are gone.
    """
    counts = evidence.record.status == COMPLETED or not evidence.lacks_lines
    is_later = seal.round > evidence.record.round and seal.run == evidence.run_id and counts
    return is_later or seal.round == evidence.record.round


def found_newer(evidence: Evidence) -> Decision | None:
    """What to do about whole files of a later round than is on record; None if there are none that fit."""
    believed = _adopt_sealed(evidence) if evidence.is_overtaken else None
    return believed and replace(believed, reason="whole and sealed in a later round than is on record")


def _is_value_due(evidence: Evidence) -> bool:
    """Whether a lost value is made again at once: something takes it, or the record says that it was there."""
    is_on_record = evidence.record.accepted is not None and not evidence.is_overtaken
    return evidence.wanted or is_on_record


def _may_fit(evidence: Evidence, seal: Seal) -> bool:
    """Whether a sealed file may have been made from the inputs there are now: unknown is not different.

    In a run whose record was lost, another version of what it was made from does not count against it either: the
    file is believed, and then asked about.
    """
    if seal.input_digest in (evidence.input_digest, evidence.earlier_digest, UNKNOWN):
        return True
    if seal.step_version != evidence.version and not evidence.migratable:
        return False
    if seal.input_digest == evidence.old_version_digest:
        return True
    if not seal.inputs:
        return UNKNOWN in evidence.parts.values()
    others = differing(seal.made_from, evidence.parts)
    return all(name in evidence.taken for name in others) and (not others or evidence.is_rebuilt)


def _half_finished(evidence: Evidence) -> Sequence[str]:
    """Files that hold something worth keeping before the step runs, though it proves nothing."""
    lying = (look.HALF, look.MARKED, look.FOREIGN, look.CHANGED, look.DAMAGED)
    found = [path for path, seen in evidence.files.items() if seen.kind in lying]
    found += [path for path, seen in evidence.files.items() if seen.kind == look.SEALED]
    return found + [path for path, seen in evidence.parts_files.items() if seen.kind != look.MISSING]


def _decide_half(evidence: Evidence, half: Sequence[str], policy: Policy) -> Decision:
    unfinished = [p for p in half if evidence.at(p).kind in (look.HALF, look.MARKED)]
    reason = _why_not_believed(evidence, half)
    may_keep = policy.on_partial == "keep" and not _lacking(evidence) and not _is_cut(evidence)
    if unfinished and may_keep:
        words = of_all(unfinished, "is kept as it is", "are kept as they are")
        return Decision(ADOPT, words, tuple(unfinished), about="kept")
    is_claimed = evidence.record.claimed and not evidence.record.decided  # who answers has seen that claim
    is_upstream = evidence.behind and not evidence.record.decided
    if unfinished and (policy.on_partial in ("ask", "keep") or is_claimed or is_upstream):
        return Decision(ASK, _half_words(evidence, unfinished), tuple(half), about="partial")
    if not unfinished or policy.on_partial != "continue":
        return Decision(REDO, reason, tuple(half))
    text = _continuable(evidence.at(unfinished[-1]).body)
    if text is None:
        return Decision(REDO, f"{reason}, too little to continue", tuple(half))
    return Decision(CONTINUE, f"{unfinished[-1]} is half finished", tuple(half), partial=text)


def _why_not_believed(evidence: Evidence, half: Sequence[str]) -> str:
    if all(evidence.at(path).kind == look.SEALED for path in half):
        whole = of_all(half, "is whole", "are whole")
        if evidence.value_lost:
            return f"{whole}, but the value that belongs to it is missing from objects/ or damaged"
        if missing := evidence.of_kind(look.MISSING):
            return of_all(missing, "is missing", "are missing")
        return f"{whole}, but made from other inputs or in another round"
    return of_all(
        half,
        "is there, but nothing proves that it is complete",
        "are there, but nothing proves that they are complete",
    )


def _lacking(evidence: Evidence) -> list[str]:
    """The files of the task that nobody could keep, neither under their own names nor as NAME.part."""
    missing = look.Look(look.MISSING)
    return [
        path
        for path, found in evidence.files.items()
        if not _is_usable(found) and not _is_usable(evidence.parts_files.get(part_path(path), missing))
    ]


def _is_usable(found: Look) -> bool:
    return found.kind in (look.HALF, look.MARKED, look.SEALED) and found.detail != NOT_JSON


def _half_words(evidence: Evidence, unfinished: Sequence[str]) -> str:
    """What a person needs to decide: what is there, who says it is done, and what it looks like."""
    words = of_all(unfinished, "is half finished", "are half finished")
    if evidence.record.claimed:
        without = of_all(unfinished, "has no marker", "have no marker")
        words = f"{evidence.record.claimed} says that it is done, but {without}"
    if lacking := _lacking(evidence):
        return _words_for_lacking(words, lacking, "redo")
    last = unfinished[-1]
    return f"{words}; {recommendation(evidence.at(last).body, is_stream=last in evidence.parts_files)}"


def recommendation(body: bytes, *, is_stream: bool) -> str:
    """What the looks of a half-finished text recommend; a stream was never returned, so it is not complete."""
    text = _continuable(body)
    if text is None:
        return "too little, or no text: redo is recommended"
    lines = text.rstrip().splitlines()
    fences = sum(1 for line in lines if line.lstrip().startswith(("```", "~~~")))
    if fences % 2:
        return "a code block is left open: continue is recommended"
    if text.lstrip().startswith(("{", "[")) and not is_json(body):
        return "its JSON is left open: redo is recommended"
    if lines[-1].rstrip()[-1:] not in ".!?:;)]}\"'`*_|>-#" and not lines[-1].lstrip().startswith(("#", "|", "-")):
        return "it is cut in mid-sentence: continue is recommended"
    if is_stream:
        return "a stream that was cut off: continue is recommended"
    return "it looks complete, only the marker is missing: keep is recommended"


def _continuable(body: bytes) -> str | None:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return text if len(text) >= PARTIAL_MIN_CHARS else None
