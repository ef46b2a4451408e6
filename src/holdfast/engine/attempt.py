"""One attempt of one task: its context and arguments, its body, and what its result is worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast import events as ev
from holdfast.artifacts.acceptance import Acceptance
from holdfast.artifacts.inputs import Inputs
from holdfast.artifacts.keeping import LostValueError
from holdfast.artifacts.offers import ObjectedError, Offer
from holdfast.artifacts.parts import shorten
from holdfast.artifacts.products import OutputRefusedError, part_path
from holdfast.context import Context
from holdfast.engine.host import StepHost, read_stream
from holdfast.engine.recorder import Recorder
from holdfast.engine.refused import Refused, refuse_others_files
from holdfast.errors import DefinitionError, HoldfastError, UsageError, ValueRefusedError
from holdfast.executors.protocol import Call, Handle, Outcome, RemoteError
from holdfast.host import Facts
from holdfast.pipeline.compiling import Check, CompiledPipeline
from holdfast.pipeline.names import normalise_items
from holdfast.pipeline.nodes import Node
from holdfast.pipeline.rewind import Rewind
from holdfast.state import COMPLETED, Accepted, OnceRecord, TaskState
from holdfast.values import digest
from holdfast.wording import message_of, raised_at, writable

QUICK_BYTES_MAX = 64 << 10


class Attempt(msgspec.Struct, eq=False):
    """What the engine knows of a body that runs, or is about to."""

    node: Node
    number: int
    round: int
    input_digest: str
    parts: dict[str, str]
    partial: str | None = None
    parent_id: str = ""  # the first producer
    host: StepHost | None = None  # what its body, and its checks, speak to
    ctx: Context | None = None
    call: Call | None = None  # made ready ahead of its time
    handle: Handle | None = None  # while its body runs
    outcome: Outcome | None = None
    spent_before: tuple[float, int] = (0.0, 0)  # the task's cost and tokens when this attempt began
    overran: bool = False  # declared dead by its timeout, or by the end of the run

    @property
    def has_stream(self) -> bool:
        """Whether it goes on from a half-finished text, or has written to one."""
        return self.partial is not None or (self.host is not None and self.host.streamed)


class Verdict(msgspec.Struct, eq=False):
    """What an attempt's outcome comes to: an output on offer, an objection, or a failure."""

    offer: Offer | None = None
    rewind: Rewind | None = None
    error: BaseException | None = None
    kind: str = "error"
    message: str = ""
    new_round: bool = False
    items: list[dict[str, Any]] = []
    set_aside: list[ev.Event] = []


class Attempts:
    """Prepares, runs and judges attempts. Called by worker threads, outside the commit."""

    def __init__(
        self,
        inputs: Inputs,
        compiled: CompiledPipeline,
        recorder: Recorder,
        looking: Recorder | None = None,
    ) -> None:
        self.state = inputs.state
        self.inputs = inputs
        self.artifacts = inputs.artifacts
        self.compiled = compiled
        self._recorder = recorder
        self._looking = looking or recorder  # of checks that are asked within a commit
        self.acceptance = Acceptance(inputs, may_overwrite=compiled.spec.overwrite)
        self._refused = Refused(inputs)

    def discard_rest(self, attempt: Attempt) -> None:
        """Remove what a step has left at `ctx.out`: no attempt is ever given that, and it may fill the disk."""
        if attempt.host is not None and attempt.host.given_out is not None:
            self.artifacts.tree.discard(attempt.host.given_out)

    # --- before --------------------------------------------------------------------------------------------

    def prepare(self, attempt: Attempt) -> Call:
        """The call, with its arguments read and verified. LostValueError if an input cannot be read back."""
        node = attempt.node
        spec = node.spec
        for path in self.inputs.paths(node).values():
            self.artifacts.tree.require_room(path)
        if "ctx" in spec.sources or self.compiled.checks.get(spec.name):
            attempt.host = self._host(attempt, self._recorder, self.state.once.get(node.id, {}))
            attempt.ctx = Context(attempt.host, attempt.host.facts)
        arguments = self.inputs.arguments(node, spec.sources, attempt.ctx)
        if node.material and "source" in spec.sources:
            self._note_source(attempt)
        settle = attempt.ctx.settle if attempt.ctx is not None and spec.is_async else None
        return Call(self.compiled.functions[spec.name], arguments, spec.timeout, spec.name, node.id, settle)

    def prepare_ahead(self, attempt: Attempt) -> None:
        """Prepare before its start is durable. What goes wrong is met again, and told, once it has begun."""
        try:
            attempt.call = self.prepare(attempt)
        except Exception:
            attempt.call = None

    def _note_source(self, attempt: Attempt) -> None:
        """Record of a section which of its sources it is made from: that is known only once one could be read."""
        name, _ = self.inputs.best_source(attempt.node)
        used = next(node for node in attempt.node.material if node.spec.name == name)
        attempt.parts = {**attempt.parts, f"source {name}": self.state.task(used.id).output_digest}
        attempt.input_digest = self.inputs.digest(attempt.node, attempt.parts)

    def _host(self, attempt: Attempt, recorder: Recorder, once: Mapping[str, OnceRecord]) -> StepHost:
        node = attempt.node
        record = self.state.task(node.id)
        paths = self.inputs.paths(node)
        previous = record.previous
        attempt.spent_before = (record.cost_usd, record.input_tokens + record.output_tokens)
        facts = Facts(
            run_id=self.state.run_id,
            task_id=node.id,
            dir=self.inputs.root,
            item=node.item or {},
            params=self.state.params,
            attempt=attempt.number,
            round=attempt.round,
            feedback=tuple(record.feedback),
            partial=attempt.partial,
            streams="" in paths,
        )
        return StepHost(
            recorder,
            facts,
            once=dict(once),
            previous=(lambda: self._previous(previous)) if previous is not None else None,
            part_path=part_path(paths[""]) if "" in paths else "",
            input_digest=attempt.input_digest,
        )

    def _previous(self, accepted: Accepted) -> Any:
        """What was sent back; None if it was not copied and has been set aside since."""
        try:
            return self.artifacts.load(accepted)
        except LostValueError:
            return None

    # --- after ---------------------------------------------------------------------------------------------

    def is_quick_to_judge(self, attempt: Attempt, outcome: Outcome) -> bool:
        """Whether judging writes small files and asks nobody else's code: then one thread may do it for all."""
        spec, output = attempt.node.spec, outcome.value
        if attempt.node.kind == "items" or spec.writes is None or spec.reads:
            return False
        if outcome.error is not None or self.compiled.checks.get(spec.name):
            return False
        return sum(map(_weight, output.values() if type(output) is dict else (output,))) <= QUICK_BYTES_MAX

    def judge_outcome(self, attempt: Attempt, outcome: Outcome) -> Verdict:
        """Offer the output, or say why not. Writes objects and stages files; records nothing."""
        if outcome.error is not None:
            return self._judge_error(attempt, outcome)
        if self.artifacts.files.has_large:
            for _, path in self.inputs.spoiled(attempt.node):
                return self._read_amiss(attempt, outcome.value, path)
        if attempt.node.kind == "step" and attempt.node.spec.reads:
            self._look_at_reads(attempt)
        try:
            return self._accept(attempt, outcome)
        except (OutputRefusedError, ValueRefusedError, DefinitionError, UsageError) as error:
            kind = "definition" if isinstance(error, DefinitionError) else "refused"
            return Verdict(error=error, kind=kind, message=message_of(error))
        except LostValueError as error:  # a check takes it, and the step does not: so nobody has looked at it
            return Verdict(error=error, message=describe(error))

    def _read_amiss(self, attempt: Attempt, output: Any, path: str) -> Verdict:
        """A file that the body was given to read was touched meanwhile: neither its output nor its calls count."""
        message = (
            f"{path} was changed while the step was at work: it may have read something else than was accepted"
        )
        try:
            refuse_others_files(attempt.node.spec, attempt.host, output)
            kept = self._refused.keep(attempt.node, attempt.round, output) if attempt.node.kind != "items" else []
        except (OutputRefusedError, DefinitionError):  # nothing that could be kept, or not ours to move
            kept = []
        error = OutputRefusedError(message)
        return Verdict(error=error, kind="refused", message=message, new_round=True, set_aside=kept)

    def _look_at_reads(self, attempt: Attempt) -> None:
        """If files from outside were changed while the body was at work, nobody knows which it has read.

        Its output then counts as made from neither: it is out of date, also if somebody takes the change back.
        """
        try:
            now = self.inputs.reads_digest(attempt.node)
        except OSError:
            return  # that is no change, and no reason to pay again: the next run looks, and sees one that is there
        if now != attempt.parts["reads"]:
            attempt.parts = {**attempt.parts, "reads": digest(f"{attempt.parts['reads']} {now}".encode())}
            attempt.input_digest = self.inputs.digest(attempt.node, attempt.parts)

    def _judge_error(self, attempt: Attempt, outcome: Outcome) -> Verdict:
        error = outcome.error
        assert error is not None
        if outcome.timed_out:
            timeout = attempt.node.spec.timeout or 0
            return Verdict(error=error, kind="timeout", message=f"timed out after {timeout:g} s")
        if issubclass(type(error), Rewind):
            return _sent_back(error)
        stopped = attempt.host.disk_failed(error) if attempt.host is not None else None
        if stopped is not None:
            raise stopped from error
        return Verdict(error=error, message=describe(error))

    def _accept(self, attempt: Attempt, outcome: Outcome) -> Verdict:
        node, items = attempt.node, list[dict[str, Any]]()
        if node.kind == "items":
            items = _items_made(outcome.value)
            output = list(outcome.value)
        else:
            output = outcome.value if outcome.value is not None else self._streamed_output(attempt)
        try:
            offer = self.acceptance.offer(
                node,
                output,
                self._made(attempt, outcome),
                check=lambda given: self._objection(attempt, given),
                is_streamed=attempt.has_stream,
                parent_id=attempt.parent_id,
            )
        except ObjectedError as error:
            kept = self._refused.keep(node, attempt.round, error.output)
            message = f"its output was refused: {error}"
            return Verdict(error=error, kind="refused", message=message, new_round=True, set_aside=kept)
        return Verdict(offer=offer, items=items)

    def _objection(self, attempt: Attempt, output: Any) -> str:
        """What speaks against an output that is in the form its step declares."""
        spec = attempt.node.spec
        if spec.writes is not None or spec.appends is not None:
            refuse_others_files(spec, attempt.host, output)
        checks = self.compiled.checks.get(spec.name)
        return self._checked(checks, attempt.node, attempt.host, attempt.ctx, output) if checks else ""

    def _made(self, attempt: Attempt, outcome: Outcome) -> TaskState:
        """The task as it is once this attempt's output is accepted, with its spend: of that the journal may not
        have heard all yet."""
        node = attempt.node
        (cost, tokens), host = attempt.spent_before, attempt.host
        record = self.state.task(node.id)
        if host is not None:
            cost, tokens = cost + host.booked_usd, tokens + host.booked_tokens
        else:
            cost, tokens = record.cost_usd, record.input_tokens + record.output_tokens
        return replace(
            record,
            round=attempt.round,
            attempt=attempt.number,
            version=node.spec.version if node.kind == "step" else 1,
            duration=round(outcome.duration, 6),
            input_digest=attempt.input_digest,
            inputs=shorten(attempt.parts),
            output_digest="",
            accepted=None,
            cost_usd=cost,
            input_tokens=tokens,
            output_tokens=0,
        )

    def _streamed_output(self, attempt: Attempt) -> Any:
        """What a step gave that returned nothing: its stream, if any; half-finished text may have been whole."""
        if not attempt.has_stream:
            return None
        size = attempt.host.stream_size if attempt.host is not None else None
        return read_stream(self.artifacts.tree, part_path(self.inputs.paths(attempt.node)[""]), size)

    def check_again(self, checks: tuple[Check, ...], node: Node, output: Any) -> str:
        """The checks of an output that was not made just now: adopted, or kept.

        What they paid for when the step was through is about the output as it was then.
        """
        record = self.state.task(node.id)
        once = self.state.once.get(node.id, {}) if record.status != COMPLETED else {}
        host = self._host(Attempt(node, record.attempt, record.round, "", {}), self._looking, once)
        return self._checked(checks, node, host, Context(host, host.facts), output)

    def _checked(
        self, checks: tuple[Check, ...], node: Node, host: StepHost | None, ctx: Context | None, output: Any
    ) -> str:
        """As `run_checks`; one that the machine, or the end of the run, kept from looking has not objected."""
        objection = self.run_checks(checks, node, ctx, output)
        if host is not None and (objection or host.hit is not None):
            host.require_whole()
        return objection

    def run_checks(self, checks: tuple[Check, ...], node: Node, ctx: Any, output: Any) -> str:
        """The first objection of these checks, or ""."""
        for check in checks:
            arguments = self.inputs.arguments(node, check.sources, ctx, output)
            objection = _objection(check, arguments)
            if objection:
                return objection
        return ""


def _weight(output: Any) -> int:
    return len(output) if type(output) in (str, bytes) else QUICK_BYTES_MAX + 1


def _sent_back(error: Any) -> Verdict:
    """A Rewind as one of ours says it: a class of somebody's own may have said nothing, or what is none."""
    try:
        return Verdict(rewind=Rewind(error.targets, rounds=error.rounds, keep=error.keep))
    except Exception as wrong:
        return Verdict(error=wrong, kind="definition", message=f"raised a Rewind that is none: {describe(wrong)}")


def _items_made(made: Any) -> list[dict[str, Any]]:
    try:
        return normalise_items(made, "the items it made")
    except HoldfastError:
        raise
    except Exception as error:  # of a class of somebody's own: nothing else is asked here
        raise OutputRefusedError(f"the items it made cannot be read: {describe(error)}") from error


def _objection(check: Check, arguments: dict[str, Any]) -> str:
    try:
        answer = check.fn(**arguments)
    except KeyboardInterrupt:
        raise  # a person's, where checks run in the main thread
    except BaseException as error:
        return f"{check.name}: {describe(error)}"
    if issubclass(type(answer), str):
        return writable(answer)
    return f"{check.name} said no" if answer is False else ""


def describe(error: BaseException) -> str:
    """One line: the exception's type and message, and which line of the pipeline led to it."""
    message, name = message_of(error), type(error).__name__
    words = f"{name}: {message}" if message else name
    if issubclass(type(error), HoldfastError | LostValueError | RemoteError):
        words = message
    return " ".join(words.split())[:1000] + raised_at(error)
