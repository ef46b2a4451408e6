"""What can be decided about a task, and done: the words in which `plan`, the engine and recovery speak of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from holdfast import events as ev
from holdfast.artifacts.looks import Look

TRUST = "trust"  # finished, intact, made from the inputs that are there now
HEAL = "heal"  # finished, but a file is damaged: put back from objects/
ADOPT = "adopt"  # whole on disk, only the record was missing
REDO = "redo"  # run again, for the reason given
CONTINUE = "continue"  # run, with the half-finished text
ASK = "ask"  # a person must decide
RUN = "run"  # not done yet
KEEP = "keep"  # finished; stays accepted against other inputs, or with a person's edit
MIGRATE = "migrate"  # finished; its value is brought to the step's version
MOVE = "move"  # finished; the pipeline names another path, or another marker
WRITE = "write"  # finished; the pipeline names a file for what was only a value
SKIP = "skip"  # left out on purpose
HOLD = "hold"  # waits for a person already
LEAVE = "leave"  # finished; what is lost of it is not needed by anything unfinished

AGAIN = frozenset({REDO, CONTINUE})
"""Begun or finished before, and going to run."""

RUNS = AGAIN | {RUN}
"""Going to run."""

WAITS = frozenset({ASK, HOLD})
"""Nothing is done before a person has spoken."""


class Decision(msgspec.Struct, frozen=True, gc=False):
    """What is to be done about one task, and why."""

    action: str
    reason: str
    paths: tuple[str, ...] = ()  # the files it is about
    about: str = ""  # of a question: as in `events`; of an adoption: its proof; or as below
    partial: str | None = None
    # The files as they were read: whoever acts need not read them again. Not to be kept, for the bodies are in it.
    looks: Mapping[str, Look] = {}


SEALED_WHOLE = Decision(ADOPT, "whole and sealed, only the record was missing", about="sealed")
"""About nearly every file of a run whose record is lost."""

DAMAGED, VALUE = "damaged", "value"
"""What a redo is about if nothing is wrong with the work but that its files, or its value, are lost."""

UNRECORDED = "unrecorded"
"""What a healing, or a question about an edit, is about if only a seal names the version that objects/ has."""


def is_unrecorded(decision: Decision) -> bool:
    """Whether files are put back, and adopted then, of which there is no record."""
    return decision.action == HEAL and decision.about == UNRECORDED


STALE = "stale"
"""What a redo is about if nothing is wrong with the work but that its inputs, or its version, are others."""

BEHIND = "behind"
"""What a decision is about that holds only if what the task was made from comes out differently."""


PUBLIC = {LEAVE: TRUST, KEEP: TRUST, MIGRATE: TRUST, MOVE: TRUST, WRITE: TRUST, SKIP: TRUST, HOLD: ASK}
"""The words of `plan --json` are fewer: each of ours as one of them."""


BACK_AGAIN = "what it was made from is there again"
"""Why finished work is trusted that was to run again, and has not begun to."""


RUNNING = "it is running now"
"""What is said of a task whose step an engine is carrying out at this moment."""


REFUSED = "refused by its check"
"""What a redo is about of which everything is there, but its `check` objects to it."""


MADE_FROM_IT = "what was made from it"
"""The evidence for a task that left no file and is on no record."""


class Planned(msgspec.Struct, frozen=True, gc=False):
    """One task of a plan; `action` is one of trust heal adopt redo continue ask run."""

    id: str
    action: str
    reason: str
    expected_cost_usd: float | None = None
    evidence: str = ""  # what was believed: journal | sealed artifact | plain marker | file | ...
    problem: str = ""  # which file is not as it should be, and how
    if_different: bool = False  # only if what it was made from comes out differently
    told_as: str = ""  # what people are told where `action` says too little: skip, or one of these

    @property
    def group(self) -> str:
        """The word for it where people read."""
        return self.told_as or self.action


WAIT = "wait"
"""Told of finished work behind a question: nobody has looked at it, so it may yet be healed or done again."""

NEVER = "never"
"""Told of what the next run cannot start: it waits for itself, or for something that does."""

PERHAPS = "perhaps"
"""Told of finished work that stands if what comes out before it fits, and is asked about if not."""


def public_action(action: str) -> str:
    return PUBLIC.get(action, action)


# --- actions ---------------------------------------------------------------------------------------------


class Step(msgspec.Struct, frozen=True):
    """One line of what a dry run lists; paths are relative to the project."""

    do: str
    path: str
    to: str = ""


class Foretold(msgspec.Struct, frozen=True):
    """What an action would record, and how files would look after it."""

    events: Sequence[ev.Event] = ()
    looks: Mapping[str, Look] = {}
    steps: Sequence[Step] = ()


class Action(msgspec.Struct):
    """One thing that is done about a task."""

    def foretell(self) -> Foretold:
        """What it would do. Touches nothing."""
        raise NotImplementedError

    def perform(self) -> Iterable[ev.Event]:
        """Do it; gives the events that record it, each to be recorded at once."""
        raise NotImplementedError
