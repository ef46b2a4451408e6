"""All that is known of one task, and what the person said beforehand: what a decision is made from. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from holdfast.artifacts import looks as look
from holdfast.artifacts.looks import Look
from holdfast.pipeline.nodes import Node
from holdfast.state import TaskState

KEPT_BY_PERSON = ("exists", "kept")
"""How a task is said to be finished whose files a person let stand as they are."""

Checker = Callable[[Node, Callable[[], Any]], str]
"""What `check` objects to in a task's output, or ""; the output is loaded only if there is something to check."""


class Policy(msgspec.Struct, frozen=True):
    """What the person said beforehand."""

    on_changed: str = "ask"
    on_partial: str | None = None  # None: as the step says
    adopt: bool = True  # False for a forced new run: what is in its way is set aside
    in_the_way: frozenset[str] = frozenset()  # runs that this one was begun over: their files are set aside
    only_needed: bool = False  # what is missing and not needed by anything unfinished is left alone


class Evidence(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """All that is known of one task, gathered by the caller."""

    run_id: str
    record: TaskState
    recorded: bool  # whether the journal knows this task at all
    input_digest: str
    parts: Mapping[str, str]
    version: int
    migratable: bool = False
    old_version_digest: str = ""  # the input digest as the recorded version would give it
    earlier_digest: str = ""  # as earlier versions of Holdfast put it together; told where a seal's differs
    kept_by: str = ""  # the raiser of a Rewind that wants it kept
    files: Mapping[str, Look] = {}  # path -> look, for accepted files: as `check` gives it
    parts_files: Mapping[str, Look] = {}  # path -> look at NAME.part
    moved: Mapping[str, str] = {}  # old path -> new path
    unwritten: tuple[str, ...] = ()  # files that the pipeline names for what is a value on record
    healable: Mapping[str, bool] = {}
    uncopied: frozenset[str] = frozenset()  # accepted files of which objects/ has no copy
    value_lost: bool = False
    is_partial: bool = False  # some of its files, an earlier round's, are left out: the others are no set
    is_overtaken: bool = (
        False  # its files are whole, and of a later round: an older copy of the record was put back
    )
    marker: str | None = None
    living_runs: frozenset[str] = frozenset()
    consumed: bool = False  # other tasks take its output
    wanted: bool = False  # a task that must run needs what is lost of it
    taken: Mapping[str, bool] = {}  # input that is another task's output -> whether a person kept that as it is
    is_rebuilt: bool = False  # the record of the run was lost: whole files are not redone unasked
    lacks_lines: bool = False  # of the record of the run: it may have been sent back more often than is known
    behind: str = ""  # of half-finished work: a task behind it that left a file, made from what lies here
    was_done: str = ""  # of a lost run's task without files: what says that it had been done

    @property
    def has_same_inputs(self) -> bool:
        """Whether it was made from the inputs that are there now; a version that is migrated does not count."""
        made_from = self.record.input_digest
        return self.input_digest == made_from or (self.migratable and self.old_version_digest == made_from)

    def of_kind(self, *kinds: str) -> tuple[str, ...]:
        """The files that look like this."""
        return tuple(path for path, found in self.files.items() if found.kind in kinds)

    def at(self, path: str) -> Look:
        """How a file looks, or a half-finished NAME.part."""
        return self.files.get(path) or self.parts_files[path]

    def not_kept_elsewhere(self) -> tuple[str, ...]:
        """Files that a redo would write over although nothing else has their content: edits, uncopied outputs."""
        return tuple(
            path
            for path, found in self.files.items()
            if found.kind != look.MISSING and (found.kind != look.SEALED or path in self.uncopied)
        )
