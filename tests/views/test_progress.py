import re

from holdfast import events as ev
from holdfast.views.progress import render
from holdfast.views.stamp import read_stamp

from .runs import Story, book, half_written_book, items


def section(task, text, title="", sources=()):
    return ev.SectionWritten(step_id=task, title=title, text=text, sources=sources)


def headings(text):
    return re.findall(r"(?m)^## (.*)$", text)


def three_chapters():
    story = Story(book()).finish("outline")
    return story.finish("chapters", value=items("ch01", "ch02", "ch03"))


def test_sections_stand_in_the_order_of_items():
    """Whichever chapter is finished first, the sections follow the items."""
    story = three_chapters()
    for chapter in ("ch03", "ch01"):
        story.finish(f"draft[{chapter}]").tell(section(f"draft[{chapter}]", "text", title=f"On {chapter}"))
    assert headings(render(story.picture())) == ["On ch01", "On ch03", "Still missing"]


def test_the_order_holds_when_the_run_is_complete():
    """A finished run is drawn from its record alone, and its sections still follow the items."""
    story = three_chapters()
    for chapter in ("ch03", "ch02", "ch01"):
        story.finish(f"draft[{chapter}]").tell(section(f"draft[{chapter}]", "text", title=f"On {chapter}"))
    story.tell(ev.RunStopped(status="completed"))
    assert headings(render(story.picture())) == ["On ch01", "On ch02", "On ch03"]


def test_a_section_names_its_task_and_sources():
    """Under the title stand the task that wrote it and what it is based on, then the text."""
    story = three_chapters().finish("draft[ch01]")
    story.tell(section("draft[ch01]", "Some *text*.", title="Tides", sources=("notes.md", "http://x/`y`")))
    text = render(story.picture())
    assert "## Tides\n\nFrom `draft[ch01]`. Sources: `notes.md`, `` http://x/`y` ``\n\nSome *text*.\n" in text


def test_a_section_without_title_is_called_by_its_task():
    """Every section has a heading."""
    story = three_chapters().finish("draft[ch01]").tell(section("draft[ch01]", "text"))
    assert headings(render(story.picture()))[0] == "draft\\[ch01\\]"


def test_work_sent_back_leaves_and_returns_once():
    """While a chapter is redone its old section is not shown; afterwards there is one, the new."""
    story = three_chapters().finish("draft[ch01]").tell(section("draft[ch01]", "old words", title="One"))
    story.tell(ev.TaskRewound(step_id="draft[ch01]", feedback=("again",)))
    assert "old words" not in render(story.picture())
    story.finish("draft[ch01]").tell(section("draft[ch01]", "new words", title="One"))
    text = render(story.picture())
    assert headings(text).count("One") == 1
    assert "new words" in text
    assert "old words" not in text


def test_what_is_missing_is_said():
    """Unfinished tasks of the steps that write sections are listed with their state."""
    story = half_written_book().tell(section("draft[ch01]", "text", title="One"))
    assert "## Still missing\n\n- `draft[ch02]`: blocked\n- `draft[ch03]`: pending\n" in render(story.picture())


def test_before_the_first_section():
    """An empty result says that it is empty, and that the items are not known."""
    text = render(Story(book()).picture())
    assert "No section has been written yet." in text
    assert "- the items of `chapter` are not all known yet" in text


def test_a_section_cannot_pretend_to_be_another():
    """Titles and texts with headings, HTML and open fences give no further section and hide none."""
    story = three_chapters().finish("draft[ch01]", "draft[ch02]")
    story.tell(
        section("draft[ch01]", "# Top\n## Still missing\nA\n---\n<!-- x -->\n```", title="One\n## Two <b>"),
        section("draft[ch02]", "text", title="Last"),
    )
    text = render(story.picture())
    assert headings(text) == ["One ## Two &lt;b&gt;", "Last", "Still missing"]
    assert "### Top\n#### Still missing\nA\n\\---\n&lt;!-- x -->\n```\n```\n" in text
    assert read_stamp(text).fits
