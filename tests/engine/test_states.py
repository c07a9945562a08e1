"""The one table of moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import states
from engine.states import RUN_MOVES, STEP_MOVES, STEP_TERMINAL, TERMINAL, RunStatus, StepStatus

MOVES_OF_RUNS = {
    "queued": "running cancelled failed",
    "running": "waiting queued needs_attention succeeded failed cancelled",
    "waiting": "queued needs_attention cancelled failed",
    "needs_attention": "queued succeeded failed cancelled",
    "succeeded": "",
    "failed": "",
    "cancelled": "",
}


def test_runs_move_as_the_product_says():
    assert {str(s): set(map(str, t)) for s, t in RUN_MOVES.items()} == {
        source: set(targets.split()) for source, targets in MOVES_OF_RUNS.items()
    }


def test_what_is_final_is_final():
    assert {"succeeded", "failed", "cancelled"} == TERMINAL
    assert {"succeeded", "failed", "cancelled", "skipped"} == STEP_TERMINAL


@pytest.mark.parametrize("status", [s for s in RunStatus if s not in TERMINAL])
def test_every_open_run_can_be_cancelled_and_can_fail(status: RunStatus):
    assert {RunStatus.CANCELLED, RunStatus.FAILED} <= RUN_MOVES[status]


@pytest.mark.parametrize("status", [s for s in StepStatus if s not in STEP_TERMINAL])
def test_every_open_step_can_be_cancelled(status: StepStatus):
    assert StepStatus.CANCELLED in STEP_MOVES[status]


@given(st.sampled_from([*RunStatus, *StepStatus]))
def test_sources_are_the_moves_read_backwards(target: RunStatus | StepStatus):
    moves = RUN_MOVES if isinstance(target, RunStatus) else STEP_MOVES

    assert states.sources_of(target) == {source for source in moves if target in moves[source]}


@given(st.lists(st.sampled_from(RunStatus), max_size=30))
def test_no_walk_along_the_table_leaves_a_final_state(wishes: list[RunStatus]):
    here, after_end = RunStatus.QUEUED, False
    for wish in wishes:
        if wish in RUN_MOVES[here]:
            assert not after_end
            here = wish
            after_end = here in TERMINAL


def test_a_state_never_moves_to_itself():
    assert not any(source in targets for source, targets in [*RUN_MOVES.items(), *STEP_MOVES.items()])
