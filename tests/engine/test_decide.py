"""What a run does next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import decide, document
from engine.decide import Decision, Fail, Finish, Hold, Inputs, RouteFileUnreadable, StartStep, StepView, TakeRoute
from engine.document import Plan
from engine.outcomes import Outcome
from engine.states import RunStatus, StepStatus
from tests.engine.documents import branch, parsed_plan, plan, scripted

GATE = scripted("gate", context_output=["route_selection.json"])
ROUTE = branch(
    "route",
    ("yes", "review"),
    ("no", "skip"),
    context_dependencies=["gate/route_selection.json"],
    default_route_id="no",
)
FORK = parsed_plan(GATE, ROUTE, scripted("review", next_step_id="end"), scripted("skip"))
NO_DEFAULT = parsed_plan(
    GATE, {**ROUTE, "default_route_id": ""}, scripted("review", next_step_id="end"), scripted("skip")
)
DONE = StepView(StepStatus.SUCCEEDED)


def after_gate(plan: Plan, text: str | None = None, **selections: str) -> Decision:
    given_ = Inputs(route_selections=selections, route_file=lambda _branch, _dependency: text)
    return decide.next_decision(plan, {"gate": DONE}, given_)


def test_the_first_step_starts():
    assert decide.next_decision(FORK, {}, Inputs()) == StartStep("gate")


def test_the_next_of_the_list_follows():
    chain = parsed_plan(scripted("a"), scripted("b"))

    assert decide.next_decision(chain, {"a": DONE}, Inputs()) == StartStep("b")


def test_after_the_last_step_the_run_ends():
    chain = parsed_plan(scripted("a"), scripted("b"))

    assert decide.next_decision(chain, {"a": DONE, "b": DONE}, Inputs()) == Finish(RunStatus.SUCCEEDED)


def test_end_ends_the_run_and_what_was_never_begun_is_skipped():
    states = {"gate": DONE, "route": StepView(StepStatus.SUCCEEDED, "review"), "review": DONE}

    assert decide.next_decision(FORK, states, Inputs()) == Finish(RunStatus.SUCCEEDED, skipped=("skip",))


def test_the_caller_decides_before_the_file_and_the_default():
    assert after_gate(FORK, '{"select_route": "no"}', route="yes") == TakeRoute(
        "route", "yes", "caller", "review", ("skip",)
    )


def test_the_file_decides_before_the_default():
    assert after_gate(FORK, '{"select_route": "yes"}') == TakeRoute("route", "yes", "file", "review", ("skip",))


def test_the_default_decides_when_nobody_else_did():
    assert after_gate(FORK) == TakeRoute("route", "no", "default", "skip", ("review",))


def test_without_any_decision_the_step_fails_and_lists_the_options():
    decision = after_gate(NO_DEFAULT)

    assert isinstance(decision, Fail)
    assert (decision.step_id, decision.outcome, decision.reason) == ("route", Outcome.HARNESS_REJECTED, "no_route")
    assert "yes (to review)" in decision.detail
    assert "gate/route_selection.json is not there" in decision.detail


@pytest.mark.parametrize(
    "text",
    [
        '{"select_route": "yes"}',
        '{"route_id": "yes"}',
        '{"selected_route_id": "yes", "reason": "large"}',
        '{"select_route": "review"}',
        '{"select_route": "yes", "route_id": "yes"}',
    ],
)
def test_the_file_may_name_a_route_or_its_only_target(text: str):
    assert after_gate(FORK, text) == TakeRoute("route", "yes", "file", "review", ("skip",))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yes",
        '"yes"',
        '["yes"]',
        "{}",
        "null",
        '{"select_route": null}',
        '{"select_route": true}',
        '{"select_route": ""}',
        '{"select_route": "maybe"}',
        '{"select_route": "YES"}',
        '{"select_route": " yes"}',
        '{"select_route": ["yes"]}',
        '{"select_route": "yes", "route_id": "no"}',
        '{"select_route": "yes", "select_route": "no"}',
        '{"route": "yes"}',
    ],
)
def test_a_file_that_is_there_but_invalid_fails_the_step_and_lists_the_options(text: str):
    decision = after_gate(FORK, text)

    assert isinstance(decision, Fail)
    assert decision.reason == "route_invalid"
    assert "Options: yes (to review), no (to skip)." in decision.detail


def test_a_file_that_must_not_be_read_fails_the_step():
    def unreadable(_branch: object, _dependency: object) -> str:
        raise RouteFileUnreadable("it is a link")

    decision = decide.next_decision(FORK, {"gate": DONE}, Inputs(route_file=unreadable))

    assert isinstance(decision, Fail)
    assert "it is a link" in decision.detail


def test_a_word_of_the_caller_that_names_no_route_fails_the_step_and_nothing_else_decides():
    decision = after_gate(FORK, '{"select_route": "yes"}', route="maybe")

    assert isinstance(decision, Fail)
    assert decision.reason == "route_invalid"


def test_a_target_that_two_routes_share_names_neither():
    shared = parsed_plan(branch("b", ("x", "a"), ("y", "a"), ("z", "end")), scripted("a"))

    assert isinstance(decide.next_decision(shared, {}, Inputs({"b": "a"})), Fail)
    assert decide.next_decision(shared, {}, Inputs({"b": "end"})) == TakeRoute("b", "z", "caller", "end", ("a",))


def test_the_id_of_a_route_wins_over_the_target_of_another():
    crossed = parsed_plan(branch("b", ("x", "a"), ("a", "end")), scripted("a"))

    assert decide.next_decision(crossed, {}, Inputs({"b": "a"})) == TakeRoute("b", "a", "caller", "end", ("a",))


def test_a_branch_goes_on_as_it_was_decided_even_if_its_routes_changed_since():
    changed = parsed_plan(
        GATE,
        {**branch("route", ("yes", "skip"), ("no", "review"))},
        scripted("review", next_step_id="end"),
        scripted("skip"),
    )
    states = {"gate": DONE, "route": StepView(StepStatus.SUCCEEDED, "review")}

    assert decide.next_decision(changed, states, Inputs()) == StartStep("review", skipped=("skip",))


def test_a_step_that_is_gone_from_the_plan_fails_the_run_with_its_name():
    changed = parsed_plan(GATE, branch("route", ("yes", "skip"), ("no", "end")), scripted("skip"))
    states = {"gate": DONE, "route": StepView(StepStatus.SUCCEEDED, "review")}

    decision = decide.next_decision(changed, states, Inputs())

    assert isinstance(decision, Finish)
    assert decision.status is RunStatus.FAILED
    assert "'review'" in decision.reason


def test_a_failed_step_fails_the_run():
    states = {"gate": StepView(StepStatus.FAILED)}

    decision = decide.next_decision(FORK, states, Inputs())

    assert decision == Finish(RunStatus.FAILED, "Step 'gate' failed.", ("route", "review", "skip"))


def test_a_cancelled_step_cancels_the_run():
    decision = decide.next_decision(FORK, {"gate": StepView(StepStatus.CANCELLED)}, Inputs())

    assert isinstance(decision, Finish)
    assert decision.status is RunStatus.CANCELLED


@pytest.mark.parametrize("status", [StepStatus.RUNNING, StepStatus.WAITING, StepStatus.NEEDS_ATTENTION])
def test_a_step_under_way_holds_the_run(status: StepStatus):
    assert decide.next_decision(FORK, {"gate": StepView(status)}, Inputs()) == Hold("gate", status)


def test_a_skipped_step_that_a_changed_plan_leads_back_to_is_not_taken_silently():
    decision = decide.next_decision(FORK, {"gate": StepView(StepStatus.SKIPPED)}, Inputs())

    assert isinstance(decision, Finish)
    assert decision.status is RunStatus.FAILED


def test_a_single_step_runs_alone():
    alone = Inputs(only_step="review")

    assert decide.next_decision(FORK, {}, alone) == StartStep("review")
    assert decide.next_decision(FORK, {"review": DONE}, alone) == Finish(RunStatus.SUCCEEDED)
    failed = decide.next_decision(FORK, {"review": StepView(StepStatus.FAILED)}, alone)
    assert failed == Finish(RunStatus.FAILED, "Step 'review' failed.")


def test_a_row_may_hold_its_status_as_plain_text():
    assert decide.next_decision(FORK, {"gate": StepView("running")}, Inputs()) == Hold("gate", StepStatus.RUNNING)  # type: ignore[arg-type]


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Whole plans of scripted and branch steps whose ways only lead down the list."""
    ids = [f"s{n}" for n in range(draw(st.integers(1, 7)))]
    steps, reached = [], {"s0"}
    for position, step_id in enumerate(ids):
        ahead = [*ids[position + 1 :], "end"]
        if step_id in reached:
            targets = [ahead[0], *draw(st.lists(st.sampled_from(ahead), min_size=0, max_size=2))]
            reached.update(targets)
            routes = [(f"r{n}", target) for n, target in enumerate([*targets, "end"])]
            steps.append(branch(step_id, *routes, default_route_id="r0") if len(targets) > 1 else scripted(step_id))
    return document.parse_plan(plan(*steps))


@given(plans(), st.data())
def test_any_run_comes_to_its_end_with_every_step_done_or_skipped_once(whole: Plan, data: st.DataObject):
    states: dict[str, StepView] = {}
    for _ in range(2 * len(whole.steps) + 1):
        decision = decide.next_decision(whole, states, Inputs())
        assert not isinstance(decision, Hold | Fail)
        for step_id in decision.skipped:
            assert step_id not in states
            states[step_id] = StepView(StepStatus.SKIPPED)
        if isinstance(decision, Finish):
            break
        assert decision.step_id not in states
        failed = isinstance(decision, StartStep) and data.draw(st.integers(0, 9)) == 0
        target = decision.next_step_id if isinstance(decision, TakeRoute) else ""
        states[decision.step_id] = StepView(StepStatus.FAILED if failed else StepStatus.SUCCEEDED, target)
    assert isinstance(decision, Finish)
    assert states.keys() == {step.id for step in whole.steps}
    failures = any(view.status is StepStatus.FAILED for view in states.values())
    assert decision.status is (RunStatus.FAILED if failures else RunStatus.SUCCEEDED)


@given(plans(), st.dictionaries(st.sampled_from([f"s{n}" for n in range(7)]), st.sampled_from(StepStatus)))
def test_whatever_the_rows_say_there_is_one_decision(whole: Plan, statuses: dict[str, StepStatus]):
    states = {step_id: StepView(status) for step_id, status in statuses.items()}

    assert decide.next_decision(whole, states, Inputs()) == decide.next_decision(whole, states, Inputs())
