"""Kill, resume, and say what must hold afterwards."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forking import HUNG, KILLED, PATIENCE_S, processes
from harness import Harness

from . import victim


@dataclass
class Trial:
    """One project, its side log, and what the journal had promised before each kill."""

    folder: Path
    promised: list[tuple[int, set[str], set[str]]] = field(default_factory=list)

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def there(self) -> Harness:
        return Harness(self.project)

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def begin(self) -> Trial:
        self.project.mkdir(parents=True)
        self.log.touch()
        return self

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()

    def process(self, kill_at: str = "0", moment_s: float = PATIENCE_S) -> int:
        """Run the engine in a process of its own, killed at that operation or moment; gives its exit status."""
        status = run_process("crash.victim", self.project, self.log, kill_at, moment_s)
        if status == KILLED:
            self.promised.append((len(self.lines()), *self.recorded()))
        return status

    def resume(self, *, copy: bool = True) -> Any:
        """Run the engine here, to the end."""
        return victim.run(self.project, self.log, copy=copy)

    def journal(self) -> Path:
        return self.there.journal(victim.RUN_ID)

    def events(self) -> list[dict[str, Any]]:
        return self.there.events(run_id=victim.RUN_ID) if self.journal().exists() else []

    def recorded(self) -> tuple[set[str], set[str]]:
        """The tasks that the journal says are completed, and those whose paid call it has."""
        events = self.events()
        done = {e["step_id"] for e in events if e.get("status") == "completed" and "step_id" in e}
        paid = {e["step_id"] for e in events if e["event"] == "once_recorded"}
        return done, paid

    def artifacts(self) -> dict[str, bytes]:
        """Every file of the work tree but views and what was set aside."""
        return self.there.artifacts()

    # --- what must hold ------------------------------------------------------------------------------------

    def check(self, result: Any, expected: dict[str, bytes]) -> None:
        """Everything that is promised, after the last resume."""
        assert result.status == "completed" and result.exit_code == 0
        assert self.artifacts() == expected
        assert abs(result.cost_usd - victim.TOTAL_USD) < 1e-9, result.cost_usd
        assert self.events() and self.there.verify(victim.RUN_ID).findings == []
        self.check_promises()

    def check_promises(self) -> None:
        lines = self.lines()
        for position, done, paid in self.promised:
            told = {line[4:] for line in lines[:position] if line.startswith("ack ")}
            assert told <= done, f"reported done, but not in the journal: {told - done}"
            later = lines[position:]
            again = {line[4:] for line in later if line.startswith("run ")} & done
            assert not again, f"finished, and ran again: {again}"
            paid_again = {line[4:] for line in later if line.startswith("pay ")} & paid
            assert not paid_again, f"paid twice: {paid_again}"
        runs = Counter(line for line in lines if line.startswith("run "))
        extra = sum(runs.values()) - len(runs)
        assert extra <= victim.CONCURRENCY * len(self.promised), runs


def run_process(module: str, project: Path, log: Path, kill_at: str, moment_s: float = PATIENCE_S) -> int:
    """One process over that victim's pipeline, killed at that operation or moment; gives its exit status."""
    said = processes().module(module, str(project), str(log), trouble=kill_at, patience_s=moment_s)
    is_killed = said.code == KILLED or (said.code == HUNG and moment_s < PATIENCE_S)
    assert is_killed or said.code == 0, said.text
    return KILLED if is_killed else 0


def uninterrupted(folder: Path) -> dict[str, bytes]:
    """The artifacts of a run that nobody disturbs."""
    trial = Trial(folder).begin()
    assert trial.process() == 0
    trial.check_promises()
    return trial.artifacts()


def texts(artifacts: dict[str, bytes]) -> dict[str, bytes]:
    """The files without the end of their last line: a cut may take just that from a seal, which is forgiven."""
    return {name: data.rstrip(b"\n") for name, data in artifacts.items()}
