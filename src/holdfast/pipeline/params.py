"""Run parameters: what a pipeline declares, and values from text or from Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.errors import DefinitionError, UsageError, ValueRefusedError
from holdfast.pipeline.names import as_given, check_name, did_you_mean, printable
from holdfast.values import decode_json, encode_json
from holdfast.wording import message_of

_REQUIRED = object()
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


class _RefusedError(Exception):
    """A value that does not fit its parameter; the text says why."""


class ParamSet:
    """The declared parameters of a pipeline: `{"topic": str, "chapters": (int, 3)}`. Immutable."""

    __slots__ = ("_callables", "_defaults")

    def __init__(self, declared: Mapping[str, Any] | None = None) -> None:
        """DefinitionError lists every mistake in `declared`."""
        self._callables: dict[str, Callable[[Any], Any]] = {}
        self._defaults: dict[str, Any] = {}
        mistakes: list[str] = []
        if declared is not None and not isinstance(declared, Mapping):
            raise DefinitionError(["params must be a dict: {name: callable, or (callable, default)}."])
        for name, entry in (declared or {}).items():
            mistakes += self._declare(name, entry)
        if mistakes:
            raise DefinitionError(mistakes)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._callables)

    def parse(self, given: Mapping[str, Any], *, base: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """A value for every parameter, in declared order, as JSON holds it.

        Taken from `given`, else from `base` (the run being continued), else the default. UsageError lists
        every problem, one a line.
        """
        problems = [self._unknown(name) for name in given if name not in self._callables]
        values: dict[str, Any] = {}
        for name in self._callables:
            try:
                values[name] = self._value(name, given, base or {})
            except _RefusedError as refused:
                problems.append(str(refused))
        if problems:
            raise UsageError("\n".join(problems))
        return values

    def takes(self, name: str, text: str) -> list[Any]:
        """The value that a text gives this parameter, in a list; [] if it gives none."""
        try:
            return [self._value(name, {name: text}, {})]
        except _RefusedError:
            return []

    def _declare(self, name: object, entry: object) -> list[str]:
        problem = check_name(name)
        if problem or not isinstance(name, str):
            return [f"parameter '{printable(name)}' {problem}."]
        convert, default = entry if isinstance(entry, tuple) and len(entry) == 2 else (entry, _REQUIRED)
        if not callable(convert):
            return [f"parameter {name} must be a callable, or (callable, default), not {printable(entry)}."]
        self._callables[name] = convert
        if default is not _REQUIRED:
            try:
                self._defaults[name] = _as_json(default, f"the default of parameter {name}")
            except _RefusedError as refused:
                return [str(refused)]
        return []

    def _unknown(self, name: object) -> str:
        known = ", ".join(self._callables) or "none"
        hint = did_you_mean(name, self._callables)
        return f"Parameter {printable(name)}: there is none of that name.{hint} Known: {known}."

    def _value(self, name: str, given: Mapping[str, Any], base: Mapping[str, Any]) -> Any:
        if name in given:
            return _as_json(_convert(name, self._callables[name], given[name]), f"Parameter {name}: the value")
        if name in base:
            return base[name]
        if name in self._defaults:
            return decode_json(encode_json(self._defaults[name]))
        raise _RefusedError(
            f'Parameter {name}: a value is needed: -p {name}=VALUE, or params={{"{name}": VALUE}}.'
        )


def _convert(name: str, convert: Callable[[Any], Any], value: Any) -> Any:
    if convert is bool and isinstance(value, str):
        return _parse_bool(name, value)
    if isinstance(value, str):
        try:
            return convert(value)
        except Exception as error:  # other people's code: an Enum's KeyError is as good a refusal as a ValueError
            raise _RefusedError(_not_valid(name, convert, value, error)) from error
    if not isinstance(convert, type):
        raise _RefusedError(f"Parameter {name}: {printable(value)} must be given as text.")
    if isinstance(value, bool) and convert is not bool:
        raise _RefusedError(_not_valid(name, convert, value))
    if convert is float and isinstance(value, int):
        return _float_of(name, value)
    if not isinstance(value, convert):
        raise _RefusedError(_not_valid(name, convert, value))
    return value


def _parse_bool(name: str, text: str) -> bool:
    word = text.strip().lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise _RefusedError(f"{_not_valid(name, bool, text)} Give true or false.")


def _float_of(name: str, value: int) -> float:
    try:
        return float(value)
    except OverflowError as error:
        raise _RefusedError(_not_valid(name, float, value)) from error


def _not_valid(name: str, convert: Callable[[Any], Any], value: object, error: Exception | None = None) -> str:
    shown = as_given(value)
    kind = printable(getattr(convert, "__name__", "value"))
    said = message_of(error) if error is not None else ""
    if isinstance(convert, type) or not said:
        return f"Parameter {name}: {shown} is not a valid {kind}."
    # A converter of the pipeline's own says in its ValueError what it wants; the built-in types add nothing.
    words = said if isinstance(error, ValueError | TypeError) else f"{type(error).__name__}: {said}"
    return f"Parameter {name}: {shown} is refused: {printable(words, 200)}."


def _as_json(value: Any, where: str) -> Any:
    try:
        return decode_json(encode_json(value, where))
    except ValueRefusedError as error:
        raise _RefusedError(printable(str(error), 300)) from error
