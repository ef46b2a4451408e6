"""What a step gives to the methods of its `ctx`, looked at before anything is recorded. Pure."""

from __future__ import annotations

from typing import Any

from holdfast.errors import HoldfastError, ValueRefusedError
from holdfast.pipeline.names import words_of

TOKENS_MAX = 10**15  # of one report: any sum of them is still exact in every reader of JSON
USD_MAX = 1e12


def refuse_no_text(method: str, **given: Any) -> None:
    for name, value in given.items():
        if not issubclass(type(value), str):
            raise refused(method, f"{name} must be text, not {shown(value)}")


def refused(method: str, problem: str) -> ValueRefusedError:
    return ValueRefusedError(f"ctx.{method}: {problem}.", where=method)


def shown(value: Any) -> str:
    return f"{words_of(value):.40}"


def count(value: int, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= TOKENS_MAX:
        raise HoldfastError(f"ctx.usage: {name} must be a whole number of tokens, not {shown(value)}.")
    return value


def amount(value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= USD_MAX:
        raise HoldfastError(f"ctx.usage: cost_usd must be an amount, not {shown(value)}.")
    return float(value)
