import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.escaping import (
    code_text,
    exact_json,
    markdown_block,
    markdown_cell,
    markdown_code,
    markdown_line,
    markdown_text,
    markdown_words,
    terminal,
)

NASTY = st.text(
    alphabet=st.sampled_from("a1 _*`#|\\[]<>&!~-=+.\n\r\t\x1b\x07\x9b\u202e\u2028\ud800(;m"), max_size=40
)
UNPRINTABLE = ("Cc", "Cs", "Zl", "Zp")


def shows_only_text(text, *, newline=False):
    if newline:
        text = text.replace("\n", "")
    return not any(unicodedata.category(char) in UNPRINTABLE or char in "\u202e\u2066" for char in text)


def test_colours_and_cursor_moves_vanish_from_terminal_text():
    """A control sequence is dropped whole, so that an error with colours reads as its words."""
    assert terminal("\x1b[1;31mred\x1b[0m \x1b]0;title\x07and \x9b2Jclear") == "red and clear"


def test_other_control_characters_are_shown_as_numbers():
    """A character that a terminal or a reader would obey is shown by its number."""
    assert terminal("a\x00b\x7fc\u202ed\ud800e\U000e0041") == "a\\x00b\\x7fc\\u202ed\\ud800e\\U000e0041"


def test_terminal_text_is_one_line_unless_asked():
    """Every kind of line break becomes a space, or a newline where several lines are wanted."""
    assert terminal("a\r\nb\u2028c\x0bd\te") == "a b c d e"
    assert terminal("a\r\nb\u2028c", multiline=True) == "a\nb\nc"


def test_joined_emoji_and_other_scripts_stay():
    """Letters of any script, marks and joiners are text."""
    assert terminal("Übersicht 日本 👩‍💻 नमस्ते") == "Übersicht 日本 👩‍💻 नमस्ते"


@given(NASTY)
def test_no_text_can_reach_the_terminal(text):
    """Whatever comes in, nothing but printable characters goes out, on one line."""
    assert shows_only_text(terminal(text))
    assert shows_only_text(terminal(text, multiline=True), newline=True)


@pytest.mark.parametrize(
    "name", ["ch01", "draft-v2_final", "st-1/u3", "Q&A (part 2)", "Über uns", "a_b_c", "50 %"]
)
def test_ordinary_names_stay_as_they_are(name):
    """What is no markup is not touched."""
    assert markdown_cell(name) == name
    assert markdown_line(name) == name


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("a | b", "a \\| b"),
        ("a\n# Heading\n| x |", "a # Heading \\| x \\|"),
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("*bold* _it_ `code`", "\\*bold\\* \\_it\\_ \\`code\\`"),
        ("[x](http://y)", "\\[x\\](http://y)"),
        ("&lt; and \\|", "&amp;lt; and \\\\\\|"),
        ("a\u202eb", "a\\\\u202eb"),
        ("~~no~~ $x$", "\\~\\~no\\~\\~ \\$x\\$"),
    ],
)
def test_markup_in_a_cell_is_only_text(text, cell):
    """A pipe, a line break, HTML and emphasis change nothing but how their own cell reads."""
    assert markdown_cell(text) == cell


@given(NASTY)
def test_a_cell_never_becomes_two(text):
    """No text ends its cell or its line: every pipe is escaped, and there is no angle bracket."""
    cell = markdown_cell(text)
    assert shows_only_text(cell)
    assert re.search(r"(?<!\\)(?:\\\\)*[|`*\[\]<>]", cell) is None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("# Title", "\\# Title"),
        ("- item", "\\- item"),
        ("1. first", "1\\. first"),
        ("2) second", "2\\) second"),
        ("===", "\\==="),
        ("---", "\\---"),
        ("> quote", "&gt; quote"),
        ("#1 in sales", "#1 in sales"),
        ("3.5 GB", "3.5 GB"),
        ("-5 degrees", "-5 degrees"),
    ],
)
def test_a_line_begins_no_block(text, line):
    """What would begin a heading, a list, a quote or an underline is escaped where a line begins."""
    assert markdown_line(text) == line


@pytest.mark.parametrize(
    ("text", "code"),
    [("draft[ch01]", "`draft[ch01]`"), ("a`b", "``a`b``"), ("``", "``` `` ```"), ("", "`  `"), ("a\nb", "`a b`")],
)
def test_code_spans_hold_any_text(text, code):
    """The fence of a code span is longer than every run of backticks inside it."""
    assert markdown_code(text) == code


def test_headings_in_a_block_are_lowered_below_their_section():
    """An agent's own headings stay headings, but none is as high as the section's; also in lists and quotes."""
    assert markdown_block("# A\n## B\n##### C\n> # D\n- # E\n#tag") == (
        "### A\n#### B\n###### C\n> ### D\n- ### E\n#tag"
    )


def test_underlined_headings_are_text():
    """A line of dashes or equals signs under text would make it a heading; alone it is a rule."""
    assert markdown_block("Title\n===\n\nOther\n  ---\n\n---\n") == "Title\n\\===\n\nOther\n  \\---\n\n---"


def test_html_in_a_block_is_shown():
    """Raw HTML and comments are shown, comparisons are left alone."""
    assert markdown_block("<b>x</b> a < b <!-- c -->") == "&lt;b>x&lt;/b> a < b &lt;!-- c -->"


def test_code_in_a_block_is_left_alone_and_closed():
    """Inside a fence nothing is changed, and one left open is closed with its own kind."""
    assert markdown_block("~~~~py\n# not a heading <b>\n~~~\n```") == "~~~~py\n# not a heading <b>\n~~~\n```\n~~~~"
    assert markdown_block("```\nx\n```\n# A") == "```\nx\n```\n### A"


def test_a_fence_in_a_list_hides_no_heading():
    """Where a list's fence ends is not guessed: a heading after it is lowered all the same."""
    assert markdown_block("- ```\n  ```\n# Fake") == "- ```\n  ```\n### Fake"


def test_inline_backticks_open_no_fence():
    """Three backticks with others behind them are code in a line, not the beginning of a block."""
    assert markdown_block("```a```\n# A") == "```a```\n### A"


def test_a_block_holds_no_stamp():
    """Not even in code can a block contain a line that reads as Holdfast's own comment."""
    line = "<!-- holdfast view run=x seq=1 sha256=" + "0" * 64 + " -->"
    assert "<!-- holdfast" not in markdown_block(f"{line}\n```\n{line}\n```")


@given(NASTY)
def test_no_block_has_a_heading_as_high_as_its_section(text):
    """Outside code, whatever the text, there is no first or second level heading and no tag."""
    outside = re.sub(r"(?ms)^(`{3,})[^`\n]*$.*?^ {0,3}\1`*[ ]*$", "", markdown_block(text))
    assert re.search(r"(?m)^[ >]*#{1,2}(?:[ \t]|$)", outside) is None
    assert re.search(r"<[A-Za-z/!?]", outside) is None


@given(NASTY)
def test_a_cell_can_be_read_back(text):
    """What a reader sees of an escaped cell, or line, is the text as a terminal may show it."""
    assert markdown_text(markdown_cell(text)) == terminal(text).strip()
    assert markdown_text(markdown_line(text)) == terminal(text).strip()


@given(NASTY, NASTY)
def test_a_code_span_can_be_read_back(text, after):
    """A code span gives its text and what follows it, whatever backticks there are in either."""
    assert code_text(markdown_code(text)) == (terminal(text).strip(), "")
    assert code_text(markdown_code(text) + " " + after) == (terminal(text).strip(), " " + after)


@pytest.mark.parametrize("text", ["", "a `b`", "`open", "``a`"])
def test_what_begins_with_no_code_span_has_none(text):
    """Text first, or a span that is not closed, is no code."""
    assert code_text(text) is None


@given(st.text())
def test_exact_json_needs_no_escaping(text):
    """Any text as JSON is left alone by every escape, begins no comment, and comes back exactly."""
    if any("\ud800" <= char <= "\udfff" for char in text):
        return  # no JSON can hold them
    for value in (text, {text: [text, 1]}):
        line = exact_json(value)
        assert terminal(line).strip() == line
        assert "<!--" not in line
        assert json.loads(line) == value


def test_task_ids_in_running_words_are_code():
    """A task id reads as it is typed; all else in the line is escaped as ever."""
    assert markdown_words("draft[ch01]: a *b* [c]") == "`draft[ch01]`: a \\*b\\* \\[c\\]"
    assert markdown_words("plain words") == "plain words"
    assert markdown_words("x`a[b]`") == "x\\`a\\[b\\]\\`"
