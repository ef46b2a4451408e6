"""holdfast.toml, HOLDFAST_* and options as one frozen Settings: the later wins."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import fields, replace

from holdfast.errors import StorageError, UsageError
from holdfast.layout import SETTINGS_FILE
from holdfast.stores import readable


class Settings(msgspec.Struct, frozen=True):
    """What a run may be told beforehand."""

    concurrency: int = 8
    budget_usd: float | None = None
    on_partial: str | None = None  # None: as the step says, else redo
    on_changed: str = "ask"
    grace_s: float = 10.0
    snapshots: int = 5
    max_age_days: float = 30.0
    max_runs: int = 50


def _whole(least: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        number = int(value) if isinstance(value, str) else value
        if isinstance(number, bool) or not isinstance(number, int) or number < least:
            raise ValueError(f"a whole number from {least}")
        return number

    return read


def _amount(value: Any) -> float:
    number = float(value) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < float("inf"):
        raise ValueError("a number from 0")
    return float(number)


def _one_of(*words: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in words:
            raise ValueError("one of " + ", ".join(words))
        return str(value)

    return read


_READERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "concurrency": ("run", _whole(1)),
    "budget_usd": ("run", _amount),
    "on_partial": ("run", _one_of("redo", "continue", "ask")),
    "on_changed": ("run", _one_of("ask", "restore", "keep")),
    "grace_s": ("run", _amount),
    "snapshots": ("keep", _whole(2)),
    "max_age_days": ("keep", _amount),
    "max_runs": ("keep", _whole(0)),
}


_VARIABLE = "HOLDFAST_"
_NEAR = 0.7  # BUDGET is near BUDGET_USD; DEBUG and what a step may be told are near nothing


def load_settings(
    root: Path, options: Mapping[str, Any] | None = None, environ: Mapping[str, str] = os.environ
) -> Settings:
    """The settings in force; UsageError names every file, variable and option that is wrong."""
    reading = _Reading()
    reading.take_file(root / SETTINGS_FILE)
    for variable in environ:
        if variable.startswith(_VARIABLE):
            reading.take_variable(variable, environ[variable])
    for name, value in (options or {}).items():
        if value is not None:
            reading.take(name, value, f"{name} (--{name.replace('_usd', '').replace('_', '-')})")
    if reading.mistakes:
        raise UsageError("\n".join(reading.mistakes))
    return replace(Settings(), **reading.values)


class _Reading:
    """What was found so far, and what is wrong with it: all mistakes are told at once."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.mistakes: list[str] = []

    def take(self, name: str, value: Any, where: str) -> None:
        try:
            self.values[name] = _READERS[name][1](value)
        except (ValueError, TypeError) as error:
            wanted = str(error) if str(error).startswith(("a ", "one ")) else "a number"
            self.mistakes.append(f"{where}: {value!r:.60} is not {wanted}.")

    def take_variable(self, variable: str, value: str) -> None:
        """A setting, or nothing of ours; one that is nearly a setting would else be a limit that does not hold."""
        names = {f"{_VARIABLE}{name.upper()}": name for name in _READERS}
        if variable in names:
            self.take(names[variable], value, variable)
            return
        from difflib import get_close_matches

        known = [name.upper() for name in _READERS]
        near = get_close_matches(variable.removeprefix(_VARIABLE), known, n=1, cutoff=_NEAR)
        self.mistakes += [
            f"{variable}: there is no such setting. Did you mean {_VARIABLE}{name}?" for name in near
        ]

    def take_file(self, path: Path) -> None:
        for section, entries in _parsed(path).items():
            if not isinstance(entries, dict):
                self.mistakes.append(
                    f"{path.name}: {section!r:.60} stands in no section. There are [run] and [keep]."
                )
            elif section not in ("run", "keep"):
                self.mistakes.append(f"{path.name}: unknown section [{section}]. There are [run] and [keep].")
            else:
                self._take_section(path.name, section, entries)

    def _take_section(self, file: str, section: str, entries: Mapping[str, Any]) -> None:
        known = [name for name, (where, _) in _READERS.items() if where == section]
        for name, value in entries.items():
            if name in known:
                self.take(name, value, f"{file}: [{section}] {name}")
            else:
                there_are = f"There are {', '.join(known)}."
                self.mistakes.append(f"{file}: unknown setting {name} in [{section}]. {there_are}")


def _parsed(path: Path) -> dict[str, Any]:
    try:
        with readable.naming(path), open(readable.open_followed(path), "rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        if os.path.islink(path):  # somebody has settings, and they do not hold
            raise UsageError(f"{path.name} is a link, and what it leads to is not there.") from None
        return {}
    except ValueError as error:  # also what is no UTF-8, and a number of very many digits
        raise UsageError(f"{path.name}: not valid TOML: {error}.") from None
    except RecursionError:
        raise UsageError(f"{path.name}: not valid TOML: it is nested too deeply.") from None
    except OSError as error:
        raise StorageError.from_os(error, "read") from error


assert {field.name for field in fields(Settings)} == set(_READERS)
