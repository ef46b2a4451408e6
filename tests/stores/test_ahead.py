"""Files read ahead by a second process: the same bytes, the right hash, and no answer where there is any doubt."""

from __future__ import annotations

import errno
import hashlib
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

from holdfast.seals import Seal, Sealed, name_inputs, seal_of, take_apart, write_seal
from holdfast.stores import ahead as ahead_module
from holdfast.stores import reader
from holdfast.stores.ahead import Fetched, Read, ReadAhead, records_of
from holdfast.stores.packs import encode_record


class Start(Protocol):
    def __call__(self, paths: Sequence[str], sign: str = "") -> ReadAhead: ...


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    monkeypatch.setattr(ahead_module, "_FRESH_S", math.inf)  # however busy this machine is
    root = os.open(tmp_path, os.O_RDONLY)
    started: list[ReadAhead] = []

    def start(paths: Sequence[str], sign: str = reader.INSIDE) -> ReadAhead:
        started.append(ReadAhead(root))
        started[-1].send(paths, sign * len(paths))
        started[-1].send_no_more()
        return started[-1]

    yield start
    for ahead in started:
        ahead.close()
    os.close(root)


def told(ahead: ReadAhead, path: str) -> tuple[bytes, str] | None:
    found = read(ahead, path)
    return None if found is None else (found.data, found.sha256)


def fetch(ahead: ReadAhead, path: str) -> Fetched | None:
    """The file as it came, waited for."""
    (found,) = ahead.fetch_all([path])
    return found


def read(ahead: ReadAhead, path: str) -> Read | None:
    """The file, waited for."""
    found = fetch(ahead, path)
    return found.read() if found is not None else None


def hashed(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sealed(text: bytes, **facts: Any) -> bytes:
    """A text with a seal below it."""
    return text + write_seal(Seal("draft[ch05]", "ID", 0, "IN", "SUM", "DONE", 0.5, 7, **facts))


def test_a_sealed_file_comes_without_its_seal_and_hashed(tmp_path: Path, start: Start) -> None:
    """What stands above the seal, and the hash of that. Where no seal is, it is all of the file."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out/a.md").write_bytes(sealed(b"text\nmore\n"))
    (tmp_path / "out/b.md").write_bytes(b"one line")
    ahead = start(["out/a.md", "out/b.md"])
    assert told(ahead, "out/a.md") == (b"text\nmore\n", hashed(b"text\nmore\n"))
    assert told(ahead, "out/b.md") == (b"one line", hashed(b"one line"))


@pytest.mark.parametrize("below", [b"", b"\n \n", b"more\n", b"\0"], ids=["nothing", "blanks", "text", "a zero"])
def test_a_seal_is_found_as_the_judging_process_finds_it(tmp_path: Path, start: Start, below: bytes) -> None:
    """Body and seal are the same, whoever takes the file apart; what is no seal here is none there."""
    data = sealed(b"text\n", inputs=name_inputs({"a,b": "c:d", "item": "x"})) + below
    (tmp_path / "a.md").write_bytes(data)
    found = read(start(["a.md"]), "a.md")
    assert found is not None
    assert Sealed(found.data, seal_of(found.seal)) == take_apart(data)
    assert (found.seal != b"") == (not below.strip())


@pytest.mark.parametrize("below", [b"", b"\n \n", b"more\n"], ids=["nothing", "blanks", "text"])
def test_a_seal_may_be_told_as_it_stands(tmp_path: Path, start: Start, below: bytes) -> None:
    """For whoever knows how it should be; a line that is damaged is no seal here, either."""
    whole = sealed(b"text\n")
    line = whole.removeprefix(b"text\n").strip()
    (tmp_path / "a.md").write_bytes(whole + below)
    (tmp_path / "b.md").write_bytes(whole.replace(b"cost=0.5", b"cost=0.4") + below)
    ahead = start(["a.md", "b.md"], reader.AS_IT_STANDS)
    text = b"text\n" if not below.strip() else whole + below
    assert read(ahead, "a.md") == Read(text, hashed(text), b"" if below.strip() else line)
    damaged = (tmp_path / "b.md").read_bytes()
    assert read(ahead, "b.md") == Read(damaged, hashed(damaged), b"")


def test_a_file_with_its_seal_beside_it_is_hashed_whole(tmp_path: Path, start: Start) -> None:
    """There is no last line to be left out."""
    (tmp_path / "a.csv").write_bytes(b"1,2\n3,4\n")
    assert told(start(["a.csv"], reader.WHOLE), "a.csv") == (b"1,2\n3,4\n", hashed(b"1,2\n3,4\n"))


@pytest.mark.parametrize("sign", ["=", "-", "+"])
def test_no_name_is_taken_for_another_by_its_first_character(tmp_path: Path, start: Start, sign: str) -> None:
    """A file is named with a sign before it: one whose own name begins like that is itself."""
    (tmp_path / f"{sign}a.md").write_bytes(sealed(b"text\n"))
    (tmp_path / "a.md").write_bytes(b"another\n")
    assert told(start([f"{sign}a.md", "a.md"]), f"{sign}a.md") == (b"text\n", hashed(b"text\n"))


def test_what_is_no_plain_file_is_left_to_whoever_asks(tmp_path: Path, start: Start) -> None:
    """Missing, a link, a folder, a pipe, behind a linked folder, too large: each is None, and the next is read."""
    (tmp_path / "whole.md").write_bytes(b"text\n")
    (tmp_path / "link.md").symlink_to("whole.md")
    (tmp_path / "folder.md").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe.md")
    (tmp_path / "large.md").write_bytes(bytes(reader.SIZE_MAX + 1))
    odd = ["missing.md", "link.md", "folder.md", "linked/whole.md", "pipe.md", "large.md", "whole.md/x.md"]
    ahead = start([*odd, "whole.md"])
    assert [fetch(ahead, path) for path in odd] == [None] * len(odd)
    assert told(ahead, "whole.md") == (b"text\n", hashed(b"text\n"))


def test_files_may_be_asked_for_in_another_order(tmp_path: Path, start: Start) -> None:
    """Those that were passed over are kept for later; each is given once, and what was not expected never."""
    names = [f"{number}.md" for number in range(20)]
    for name in names:
        (tmp_path / name).write_bytes(name.encode())
    ahead = start(names)
    for name in ("7.md", "3.md", "19.md", "0.md", "12.md"):
        found = read(ahead, name)
        assert found is not None
        assert found.data == name.encode()
        assert fetch(ahead, name) is None
    assert fetch(ahead, "other.md") is None


def test_more_is_sent_than_a_pipe_holds(tmp_path: Path, start: Start) -> None:
    """The process waits for its reader and loses nothing."""
    names = [f"{number}.md" for number in range(40)]
    for number, name in enumerate(names):
        (tmp_path / name).write_bytes(bytes([number]) * 100_000)
    ahead = start(names)
    found = [read(ahead, name) for name in names]
    assert [one.data for one in found if one] == [bytes([number]) * 100_000 for number in range(40)]


def test_a_process_that_was_killed_answers_nothing(tmp_path: Path, start: Start) -> None:
    """Whoever asks then reads for themselves."""
    names = [f"{number}.md" for number in range(100)]
    for name in names:
        (tmp_path / name).write_bytes(bytes(100_000))
    ahead = start(names)
    assert fetch(ahead, "0.md") is not None
    assert ahead._process is not None
    os.kill(ahead._process.pid, signal.SIGKILL)
    assert None in [fetch(ahead, name) for name in names[1:]]
    assert ahead._process is None


def test_where_no_process_can_be_started_nothing_is_read_ahead(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interpreter inside another program, or one that is gone, is no reason to fail."""
    (tmp_path / "a.md").write_bytes(b"text\n")
    for executable in ("", "/nowhere/python"):
        monkeypatch.setattr(sys, "executable", executable)
        assert fetch(start(["a.md"]), "a.md") is None


def test_a_program_that_brings_its_interpreter_along_is_not_started_again(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What such a program calls its interpreter is itself: it would do all over again what it does."""
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    (tmp_path / "a.md").write_bytes(b"text\n")
    ahead = start(["a.md"])
    assert ahead._process is None
    assert fetch(ahead, "a.md") is None


def test_where_pipes_may_not_hold_more_they_hold_what_they_do(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux gives the pipes of a user so much memory in all; somebody else may have had it."""
    fcntl = pytest.importorskip("fcntl")
    ask = fcntl.fcntl

    def ask_for_no_more(fd: int, command: int, argument: int = 0) -> Any:
        if command == getattr(fcntl, "F_SETPIPE_SZ", None):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        return ask(fd, command, argument)

    monkeypatch.setattr(fcntl, "fcntl", ask_for_no_more)
    (tmp_path / "a.md").write_bytes(b"text\n")
    assert told(start(["a.md"]), "a.md") == (b"text\n", hashed(b"text\n"))


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"not what we wait for" * 100,
        reader.MESSAGE.pack(reader.NOWHERE, 1) + b"\xc1",
        reader.MESSAGE.pack(reader.NOWHERE, 3) + b"\x92\xc0\xc0",
        b"\xff" * 100,
    ],
    ids=["nothing", "words", "no array", "too many", "too much"],
)
def test_a_process_of_another_version_is_not_understood(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    """An upgrade while we run may put another program in its place: then everybody reads for themselves."""
    program = tmp_path / "program.py"
    program.write_text(f"import os\nos.read(0, 100)\nos.write(1, {said!r})\n")
    monkeypatch.setattr(ahead_module, "_program", lambda: str(program))
    (tmp_path / "a.md").write_bytes(b"text\n")
    ahead = start(["a.md"])
    assert fetch(ahead, "a.md") is None
    ahead.make_room()
    assert ahead._process is None


def test_the_process_ends_when_nobody_listens(tmp_path: Path) -> None:
    """It outlives nobody who was killed: its first write into a pipe without a reader ends it, without a word."""
    (tmp_path / "a.md").write_bytes(b"text\n")
    root = os.open(tmp_path, os.O_RDONLY)
    command = [sys.executable, "-I", "-S", reader.__file__, str(root), str(root)]  # it comes to share nothing
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, pass_fds=(root,), **pipes) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdout.close()
        process.stdin.write(b"-a.md\0")
        process.stdin.close()
        assert process.stderr.read() == b""
    os.close(root)
    assert process.returncode == -signal.SIGPIPE


def test_nobody_waits_for_an_answer_that_has_not_come(tmp_path: Path, start: Start) -> None:
    """A file that was read by whoever asked is not given to them a second time, when its answer comes at last."""
    names = [f"{number}.md" for number in range(10)]
    for name in names:
        (tmp_path / name).write_bytes(name.encode())
    ahead = start(names)
    assert ahead._process is not None
    os.kill(ahead._process.pid, signal.SIGSTOP)
    first = ahead.take("0.md")
    os.kill(ahead._process.pid, signal.SIGCONT)
    last = read(ahead, "9.md")
    assert first is None or first.data == b"0.md"
    assert last is not None
    assert last.data == b"9.md"
    assert fetch(ahead, "0.md") is None


def test_a_process_that_hangs_is_not_waited_for_for_ever(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From then on everybody reads for themselves."""
    monkeypatch.setattr(ahead_module, "_PATIENCE_S", 0.01)
    (tmp_path / "a.md").write_bytes(b"text\n")
    root = os.open(tmp_path, os.O_RDONLY)
    ahead = ReadAhead(root)  # it waits to be told which files
    ahead._paths = ["a.md"]  # though it is told nothing
    assert fetch(ahead, "a.md") is None
    assert ahead._process is None
    os.close(root)


def test_what_has_come_is_taken_in_before_it_is_wanted(tmp_path: Path, start: Start) -> None:
    """So the process goes on, though nobody has asked yet; nothing of it is lost."""
    names = [f"{number}.md" for number in range(300)]
    for name in names:
        (tmp_path / name).write_bytes(bytes(20_000))
    ahead = start(names)
    assert fetch(ahead, names[0]) is not None
    while ahead._process is not None:
        ahead.make_room()
    assert [len(one.read().data) for name in names[1:] if (one := fetch(ahead, name))] == [20_000] * 299


def test_what_nobody_asks_for_is_let_go_of(tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of large files those that were passed over are forgotten, the oldest first: memory has an end."""
    monkeypatch.setattr(ahead_module, "_HELD_MAX", 2)
    names = [f"{number}.md" for number in range(reader.STRETCH)]
    for name in names:
        (tmp_path / name).write_bytes(bytes(reader.PLACE_BYTES // 5))  # four to a place
    ahead = start(names)
    assert fetch(ahead, names[-1]) is not None
    assert [name for name in names if fetch(ahead, name)] == names[-8:-1]
    assert not ahead._taken_places


def test_more_comes_than_the_shared_memory_holds(tmp_path: Path, start: Start) -> None:
    """Its places are used again and again, as long as somebody gives them back."""
    names = large_files(tmp_path, reader.PLACES + 100)
    ahead = start(names)
    for number, name in enumerate(names):
        found = fetch(ahead, name)
        assert found is not None
        if found.header:  # on a busy machine it may have waited for a place in vain
            content = bytes([number % 256]) * LARGE
            assert found.read() == Read(content, hashed(content), b"")
        del found
    assert not ahead._taken_places


def test_files_for_which_no_place_was_free_come_without_their_bytes(tmp_path: Path, start: Start) -> None:
    """The process waits for a place, but not for ever: what it says of these files is true all the same."""
    names = large_files(tmp_path, reader.PLACES + 2)
    ahead = start(names)
    assert ahead._process is not None
    ahead._process.wait()  # it has said all that it has to say, and nobody has listened
    came = []
    for number, name in enumerate(names):
        found = fetch(ahead, name)
        assert found is not None
        assert found.sha256 == hashed(bytes([number % 256]) * LARGE)
        came.append(found.read() is not None)
    assert came == [True] * reader.PLACES + [False] * 2


def test_whoever_gives_no_place_back_gets_no_more(tmp_path: Path, start: Start) -> None:
    """What somebody still has is not written over; the rest they read for themselves."""
    names = large_files(tmp_path, reader.PLACES + 2)
    ahead = start(names)
    found = ahead.fetch_all(names)
    most = ahead_module._HELD_MAX
    assert [one is not None for one in found] == [True] * most + [False] * (len(names) - most)
    for number, one in enumerate(found[:most]):
        assert one is None or not one.header or one.read().data == bytes([number % 256]) * LARGE


LARGE = reader.PLACE_BYTES * 2 // 3


def large_files(folder: Path, count: int) -> list[str]:
    """Files of which no two have room in one place."""
    names = [f"{number}.md" for number in range(count)]
    for number, name in enumerate(names):
        (folder / name).write_bytes(bytes([number % 256]) * LARGE)
    return names


def test_so_many_files_may_be_open_that_numbers_of_others_are_large(tmp_path: Path, start: Start) -> None:
    """A program around us may have thousands of connections."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1200:
        pytest.skip("this machine allows no more than a few open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    (tmp_path / "a.md").write_bytes(b"text\n")
    opened = [os.open(tmp_path / "a.md", os.O_RDONLY) for _ in range(1100)]
    try:
        assert told(start(["a.md"]), "a.md") == (b"text\n", hashed(b"text\n"))
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_bytes_come_as_a_pack_has_them(tmp_path: Path, start: Start) -> None:
    """Whoever keeps copies need not put them together: of neighbours they are one piece."""
    names = [f"{number:02}.md" for number in range(reader.STRETCH + 3)]
    texts = {name: f"text\n{name}\n".encode() for name in names}
    for name, text in texts.items():
        (tmp_path / name).write_bytes(sealed(text))
    ahead = start(names)
    found = [one for name in names if (one := fetch(ahead, name)) is not None]
    assert [one.read().data for one in found] == [*texts.values()]
    chosen = [*found[:4], *found[5:8], found[9], found[8], *found[10:]]
    pieces = [bytes(piece) for piece in records_of(chosen)]
    wanted = [names[found.index(one)] for one in chosen]
    assert b"".join(pieces) == b"".join([encode_record(hashed(texts[name]), texts[name]) for name in wanted])
    assert len(pieces) == 6


def test_what_was_read_long_ago_is_not_told(tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever judges may have been held up: somebody may have changed the file since."""
    for name in ("a.md", "b.md", "c.md"):
        (tmp_path / name).write_bytes(b"text\n")
    ahead = start(["a.md", "b.md", "c.md"])
    assert fetch(ahead, "b.md") is not None
    monkeypatch.setattr(ahead_module, "_FRESH_S", -1.0)
    assert fetch(ahead, "a.md") is None
    assert fetch(ahead, "c.md") is None


def test_files_that_are_fetched_all_at_once_say_the_same(tmp_path: Path) -> None:
    """On a slow disk all files of a stretch are asked for before the first is read; none stays open."""
    (tmp_path / "out").mkdir()
    for name, data in (("a.md", b"text\nlast\n"), ("empty.md", b""), ("large.md", b"x" * (reader.SIZE_MAX + 1))):
        (tmp_path / "out" / name).write_bytes(data)
    (tmp_path / "out/link.md").symlink_to("a.md")
    os.mkfifo(tmp_path / "out/pipe.md")
    paths = [f"-out/{name}.md" for name in ("a", "empty", "large", "link", "pipe", "missing")] + [
        "=out/a.md",
        "-out",
    ]
    root = os.open(tmp_path, os.O_RDONLY)
    before = sorted(os.listdir("/dev/fd"))
    plain, advised = (list(reader._contents(root, paths, advise=advise)) for advise in (False, True))
    assert plain == advised == [b"text\nlast\n", b"", None, None, None, None, b"text\nlast\n", None]
    assert sorted(os.listdir("/dev/fd")) == before
    os.close(root)
