"""A disk that is full while a step runs: the step goes on, and its ending says what its log lacks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.contract import Contract
from engine.runner import Stop, execute
from engine.sandbox import launch
from tests.engine.test_log_lost import files_of_at_most
from tests.runner.stage import Silent, Stage

pytestmark = pytest.mark.sandbox

CODE = """
import os, time
out = os.environ["STEP_OUTPUT_DIR"]
def until(name):
    while not os.path.exists(f"{out}/{name}"):
        time.sleep(0.01)
print("before", flush=True)
until("full")
print("lost", "lost", "lost", sep="\\n", flush=True)
open(f"{out}/said", "w").close()
until("room")
print("after")
"""


class Filling(Silent):
    """Once the step has said something nothing can be written, until more was said; the step is told of both."""

    def __init__(self, contract: Contract) -> None:
        super().__init__()
        self.places = contract.ask.attempt
        self.full = files_of_at_most(1)
        self.todo: list[tuple[Path, Callable[[], None]]] = [
            (self.places.log, self.fill),
            (self.places.out / "said", lambda: None),  # what was said before is taken out of the pipe by the next time
            (self.places.out / "said", self.free),
        ]

    def fill(self) -> None:
        self.full.__enter__()
        (self.places.out / "full").touch()

    def free(self) -> None:
        self.full.__exit__(None, None, None)
        (self.places.out / "room").touch()

    def stop_wanted(self) -> Stop | None:
        if self.todo and self.todo[0][0].exists() and self.places.log.stat().st_size:
            self.todo.pop(0)[1]()
        return None


def test_the_step_goes_on_and_its_ending_says_what_its_log_lacks(stage: Stage) -> None:
    stage.write({"work/main.py": CODE})
    contract = stage.resolve()
    ending = execute(contract, Filling(contract))
    assert ending.outcome == "succeeded", ending.detail
    assert "3 lines (15 bytes) are missing, the first behind row 1" in ending.detail
    assert contract.ask.attempt.log.read_text() == "before\nafter\n"
    assert ending.seal is not None
    assert (ending.seal["lines"], ending.seal["lost"]["lines"]) == (2, 3)
    assert ending.seal["produced"] == {"lines": 5, "bytes": 28}


def test_a_log_that_cannot_be_begun_starts_nothing_and_says_why(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.write({"work/main.py": "open('/pulse/run/out/ran', 'w')\n"})
    contract = stage.resolve()
    full, start = files_of_at_most(1), launch.start

    def start_and_fill(*arguments: Any, **options: Any) -> launch.Sandbox:
        sandbox = start(*arguments, **options)
        full.__enter__()
        return sandbox

    monkeypatch.setattr(launch, "start", start_and_fill)
    try:
        heard = Silent()
        ending = execute(contract, heard)
    finally:
        full.__exit__(None, None, None)
    assert (ending.outcome, ending.reason) == ("harness_rejected", "log_unwritable")
    assert "cannot be written: File too large. Nothing was run." in ending.detail
    assert (heard.said, ending.tree_gone) == ([], True)
    assert not (contract.ask.attempt.out / "ran").exists()
