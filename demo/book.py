"""A small book, written by a simulated model: outline, research, drafts, three reviews each, one file at the end.

holdfast run book.py -p topic="kelp forests"
"""

from generator import generate, themes
from holdfast import Context, Pipeline, Rewind

pipe = Pipeline("book", params={"topic": (str, "kelp forests")}, limits={"model": 3})


async def ask(ctx: Context, key: str, theme: str, prompt: str, paragraphs: int = 2) -> str:
    """One paid call: its result is kept the moment it arrives, and so is what it cost."""
    reply = await ctx.once(key, generate, ctx.params["topic"], theme, prompt, paragraphs)
    ctx.usage(**reply["usage"])
    return str(reply["text"])


@pipe.step(phase="Planning", writes="outline.md", limit="model")
async def outline(ctx: Context, topic: str) -> str:
    premise = await ask(ctx, "premise", "the whole book", f"What is a short book about {topic} for?", 1)
    titles = themes(topic)
    ctx.decision("Six chapters", "one for each theme that the premise carries", "the last rests on the first")
    return f"# {topic.capitalize()}\n\n{premise}\n\n" + "".join(f"- {title}\n" for title in titles)


@pipe.items("chapter")
def chapters(outline: str) -> list[dict[str, object]]:
    titles = [line[2:] for line in outline.splitlines() if line.startswith("- ")]
    items: list[dict[str, object]] = [{"id": f"ch{n:02}", "title": title} for n, title in enumerate(titles, 1)]
    items[-1]["after"] = ["ch01"]
    return items


@pipe.step(each="chapter", phase="Research", writes="research/{chapter}.md", limit="model", retries=2)
async def research(ctx: Context, chapter: str, outline: str) -> str:
    theme = ctx.item["title"]
    found = await ask(ctx, "search", theme, f"Find what is known for {chapter}", 1)
    return f"# Notes on {theme}\n\n{found}\n"


@pipe.step(
    each="chapter",
    phase="Writing",
    writes="drafts/{chapter}-draft.md",
    marker="DRAFT_COMPLETE",
    limit="model",
    retries=3,
)
async def draft(ctx: Context, chapter: str, research: str) -> str:
    theme = ctx.item["title"]
    wish = " ".join(ctx.feedback)
    beginning = await ask(ctx, "beginning", theme, f"Begin {chapter} from these notes: {research} {wish}")
    ending = await ask(ctx, "ending", theme, f"End {chapter}, which begins: {beginning} {wish}")
    if ctx.feedback:
        ctx.note(f"{chapter} was drafted again: {wish}", impact="its reviews ran again, but for one")
    # One chapter forgets its sources at first, so that there is something to send back.
    sources = "" if chapter == "ch03" and not ctx.feedback else f"\nSources: notes on {theme}.\n"
    return f"# {theme}\n\n{beginning}\n\n{ending}\n{sources}"


# Whoever keeps another's review comes after it: else what is kept would depend on who was quicker.
@pipe.step(
    each="chapter", phase="Writing", writes="reviews/{chapter}-accuracy.md", limit="model", after=["language"]
)
async def accuracy(ctx: Context, chapter: str, draft: str) -> str:
    if "Sources:" not in draft:
        raise Rewind("draft", feedback="Name your sources.", keep=["language"])
    return await ask(ctx, "review", ctx.item["title"], f"Is {chapter} accurate? {draft}", 1)


@pipe.step(each="chapter", phase="Writing", writes="reviews/{chapter}-language.md", limit="model")
async def language(ctx: Context, chapter: str, draft: str) -> str:
    return await ask(ctx, "review", ctx.item["title"], f"Does {chapter} read well? {draft}", 1)


@pipe.step(each="chapter", phase="Writing", writes="reviews/{chapter}-structure.md", limit="model")
async def structure(ctx: Context, chapter: str, draft: str) -> str:
    return await ask(ctx, "review", ctx.item["title"], f"Is {chapter} in the right order? {draft}", 1)


@pipe.step(each="chapter", phase="Writing", writes="chapters/{chapter}.md")
def merge(ctx: Context, draft: str, accuracy: str, language: str, structure: str) -> str:
    ctx.section(draft.split("\n\n")[1], title=ctx.item["title"], sources=[f"research on {ctx.item['title']}"])
    remarks = [review.split(". ")[0] for review in (accuracy, language, structure)]
    return draft + "\nReviewers' remarks:\n\n" + "".join(f"- {remark}.\n" for remark in remarks)


@pipe.step(phase="Binding", writes="book.md")
def final(topic: str, outline: str, merge: dict[str, str]) -> str:
    return f"{outline}\n" + "\n".join(text.replace("# ", "## ", 1) for text in merge.values())
