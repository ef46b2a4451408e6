"""A text generator for the demo: no network, no key, and the same prompt always gives the same prose.

It behaves like a paid model where that matters: a call takes a moment, counts tokens and has a price. The
prices are simulated. Every call is also written to a side log (HOLDFAST_DEMO_CALLS), which plays the part of
the provider's own bill: the demo counts there, not in Holdfast's books, what was asked for twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
from typing import TypedDict

MODEL = "offline-1 (simulated prices)"
INPUT_USD_PER_1K = 0.003
OUTPUT_USD_PER_1K = 0.015
CALL_S = (0.05, 0.2)

CALLS_LOG = "HOLDFAST_DEMO_CALLS"
SPEED = "HOLDFAST_DEMO_SPEED"


class Usage(TypedDict):
    """What a call is billed at, in the words of `ctx.usage`."""

    input_tokens: int
    output_tokens: int
    cost_usd: float
    model: str


class Reply(TypedDict):
    text: str
    usage: Usage


_OPENINGS = (
    "Anyone who has watched {subject} for a whole year stops asking for a short answer.",
    "The first surprise about {subject} is how much of it cannot be seen from above.",
    "Old harbour books mention {subject} only in passing, between the weather and the price of rope.",
    "It is easiest to begin where {subject} begins: with something small that refused to let go.",
    "There are two ways to describe {subject}, and both of them are incomplete.",
    "Before anything was measured, people who lived near {subject} had already named its moods.",
)
_MIDDLES = (
    "What looks like stillness is traffic: light going down, salt going past, and patient trade in between.",
    "A storm takes the loose and leaves the fastened, which is a rule with more uses than one.",
    "The numbers agree with the stories here, although they were collected by people who never met.",
    "Growth is quick in spring and careful afterwards; nothing here spends what it has not yet earned.",
    "Every count so far has been a little too low, because the counters had to come up for air.",
    "Where one patch fails, its neighbours reach into the gap before the season is over.",
    "The grip matters more than the height, and it is the part that nobody photographs.",
    "Repairs are made from what is at hand, and the joins are visible only to those who know.",
)
_TURNS = (
    "That is the pattern, but {theme} asks a harder question.",
    "Seen through {theme}, the same facts fall into another order.",
    "This is where {theme} earns its place in the story.",
    "None of this would matter much without {theme}.",
)
_CLOSINGS = (
    "What was held on to is still there in the morning, and so the work can go on.",
    "The next storm will settle it; until then, both readings stand.",
    "It is a modest conclusion, and it has survived longer than the bold ones.",
    "Whoever comes after us will find the same stones, and, with luck, the same grip on them.",
)
_THEMES = (
    "Light and Depth",
    "The Grip on the Rock",
    "Neighbours and Lodgers",
    "Storm Season",
    "What Grows Back",
    "The Long Count",
)


async def generate(subject: str, theme: str, prompt: str, paragraphs: int = 2) -> Reply:
    """Prose about `theme` in `subject`. The same arguments give the same reply, whoever asks."""
    text = f"{subject}\n{theme}\n{prompt}\n{paragraphs}"
    chance = random.Random(hashlib.sha256(text.encode()).digest())
    prose = "\n\n".join(_paragraph(chance, subject, theme) for _ in range(paragraphs))
    _write_on_bill(prose)
    await asyncio.sleep(chance.uniform(*CALL_S) / speed())
    return {"text": prose, "usage": _usage(text, prose)}


def themes(subject: str) -> list[str]:
    """Chapter titles for a book about `subject`."""
    chance = random.Random(hashlib.sha256(subject.encode()).digest())
    return chance.sample(_THEMES, len(_THEMES))


def speed() -> float:
    """How many times faster than usual the simulated calls are."""
    return max(0.01, float(os.environ.get(SPEED, "1")))


def _paragraph(chance: random.Random, subject: str, theme: str) -> str:
    sentences = [
        chance.choice(_OPENINGS),
        *chance.sample(_MIDDLES, 3),
        chance.choice(_TURNS),
        chance.choice(_CLOSINGS),
    ]
    return " ".join(sentences).format(subject=subject, theme=theme.lower())


def _usage(asked: str, answered: str) -> Usage:
    """Tokens at four characters each, roughly as models count English."""
    input_tokens, output_tokens = -(-len(asked) // 4), -(-len(answered) // 4)
    cost = input_tokens / 1000 * INPUT_USD_PER_1K + output_tokens / 1000 * OUTPUT_USD_PER_1K
    return {
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "cost_usd": round(cost, 6),
        "model": MODEL,
    }


def fingerprint(text: str) -> str:
    """What a reply is known by on the bill."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _write_on_bill(reply: str) -> None:
    """One line per call, written before the answer is given: whoever is killed meanwhile has been billed."""
    path = os.environ.get(CALLS_LOG)
    if not path:
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, f"{fingerprint(reply)}\n".encode())
    finally:
        os.close(descriptor)
