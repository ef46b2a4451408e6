"""A finished output brought to its step's version by the migrations that its pipeline declares. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.errors import DefinitionError

Migration = Callable[[Any], Any]


def migrated(task: str, version: int, rungs: Sequence[Migration], output: Any) -> Any:
    """The output of version `version`, as consumers receive it, brought up rung by rung."""
    for number, rung in enumerate(rungs, version):
        was_nothing = output is None
        try:
            output = rung(output)
        except Exception as error:  # whatever the user's code raises is a mistake in it
            raise mistake(task, number, f"raised {type(error).__name__}: {error}") from error
        if output is None and not was_nothing:  # it has changed its argument, and forgets to give it back
            raise mistake(task, number, "returned nothing, where there was a value")
    return output


def mistake(task: str, version: int, problem: str) -> DefinitionError:
    """What is wrong with a migration; nothing of the task was changed."""
    words = " ".join(f"{task}: its migration from version {version} to {version + 1} {problem}".split())
    return DefinitionError([f"{words}."], fix="Mend it, then run the same command: what was made is untouched.")
