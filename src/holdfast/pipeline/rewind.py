"""`Rewind`: a step's message that work upstream of it has to be done again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.wording import writable

FEEDBACK_MAX = 1 << 20
"""Characters of feedback in one Rewind: all of it is one line of the journal."""


class Rewind(Exception):  # noqa: N818 - a message from a step, not an error
    """Raised by a step to send work back; it costs no retry.

    `to` is an upstream step (the same item's task), a task id, or `{task_id: feedback}`. The attributes are
    all that the engine reads: `targets` (what to redo -> why), `rounds` (how often this step may send that
    work back) and `keep` (steps whose acceptance stands all the same).
    """

    def __init__(
        self, to: str | Mapping[str, str], feedback: str = "", *, rounds: int = 2, keep: Iterable[str] = ()
    ) -> None:
        self.targets = _targets(to, feedback)
        if (size := sum(map(len, self.targets.values()))) > FEEDBACK_MAX:
            raise ValueError(
                f"Rewind: {size} characters of feedback are more than {FEEDBACK_MAX}; keep it in a file."
            )
        self.rounds = _checked_rounds(rounds)
        self.keep = _names(keep)
        super().__init__(", ".join(f"{name}: {why}" if why else name for name, why in self.targets.items()))


def _targets(to: object, feedback: object) -> dict[str, str]:
    if not isinstance(feedback, str):
        raise TypeError(f"Rewind: feedback must be text, not {type(feedback).__name__}.")
    if isinstance(to, str) and to:
        return {to: writable(feedback)}
    if not isinstance(to, Mapping) or not to:
        raise TypeError("Rewind: `to` must be a step, a task id, or {task_id: feedback}.")
    if feedback:
        raise TypeError("Rewind: with {task_id: feedback} the feedback stands in the dict, not beside it.")
    for name, why in to.items():
        if not isinstance(name, str) or not name or not isinstance(why, str):
            raise TypeError("Rewind: {task_id: feedback} must hold text for text.")
    return {name: writable(why) for name, why in to.items()}


def _checked_rounds(rounds: object) -> int:
    if not isinstance(rounds, int) or isinstance(rounds, bool) or rounds < 1:
        raise TypeError(f"Rewind: rounds must be a whole number from 1, not {rounds!r:.40}.")
    return rounds


def _names(keep: object) -> tuple[str, ...]:
    if isinstance(keep, str):
        return (keep,)
    if not isinstance(keep, Iterable):
        raise TypeError("Rewind: keep must be the name of a step, or several.")
    names = tuple(keep)
    if not all(isinstance(name, str) for name in names):
        raise TypeError("Rewind: keep must hold names of steps.")
    return names
