"""A person's decision on a step of unknown end: one wins, and it is carried out."""

from __future__ import annotations

import threading

import pytest
from django.db import connection

from apps.accounts.errors import Refused
from apps.runs import actions, tasks
from apps.runs.models import Attempt, Run
from apps.runs.supervisor.reaper import Reaper
from apps.tools.models import ToolSession
from apps.workflows.models import Workflow
from tests.factories import Cast
from tests.runs.starts import fresh
from tests.runs.test_reaping import held_run

pytestmark = [pytest.mark.databases]


@pytest.fixture
def lost(workflow: Workflow) -> Run:
    run = held_run(workflow)
    Reaper().look()
    return fresh(run)


@pytest.mark.sandbox
@pytest.mark.django_db(transaction=True)
def test_run_again_starts_the_step_once_more(lost: Run, cast: Cast) -> None:
    actions.settle_attention(lost, by=cast.operator, choice="run_again", step_id="hello")
    assert ToolSession.objects.get(pk=lost.session_id).state == "live"
    tasks.advance_run(str(lost.pk))
    assert fresh(lost).status == "succeeded"
    assert list(Attempt.objects.order_by("number").values_list("outcome", flat=True)) == ["worker_lost", "succeeded"]


@pytest.mark.django_db
def test_marked_succeeded_the_run_goes_on_behind_it(lost: Run, cast: Cast) -> None:
    actions.settle_attention(lost, by=cast.operator, choice="mark_succeeded", step_id="hello")
    tasks.advance_run(str(lost.pk))
    assert fresh(lost).status == "succeeded"
    assert cast.operator.username in lost.steps.get(step_id="hello").reason
    assert Attempt.objects.get().outcome == "worker_lost", "the evidence stays"


@pytest.mark.django_db
def test_marked_failed_the_run_ends(lost: Run, cast: Cast) -> None:
    actions.settle_attention(lost, by=cast.operator, choice="mark_failed", step_id="hello")
    assert fresh(lost).status == "failed"
    assert not ToolSession.objects.exclude(state="ended").exists()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("choice", "step", "code"),
    [("shrug", "hello", "unknown_choice"), ("run_again", "nowhere", "nothing_to_settle")],
)
def test_it_refuses_what_is_no_decision(lost: Run, cast: Cast, choice: str, step: str, code: str) -> None:
    with pytest.raises(Refused) as refused:
        actions.settle_attention(lost, by=cast.operator, choice=choice, step_id=step)
    assert refused.value.code == code
    assert fresh(lost).status == "needs_attention"


@pytest.mark.django_db(transaction=True)
def test_of_two_decisions_at_once_one_wins(lost: Run, cast: Cast) -> None:
    answers: list[str] = []

    def decide(choice: str) -> None:
        try:
            actions.settle_attention(lost, by=cast.operator, choice=choice, step_id="hello")
            answers.append(choice)
        except Refused:
            pass
        connection.close()

    threads = [threading.Thread(target=decide, args=(one,)) for one in ("mark_failed", "run_again", "mark_succeeded")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 1
    expected = {"mark_failed": "failed", "run_again": "queued", "mark_succeeded": "queued"}
    assert fresh(lost).status == expected[answers[0]]


@pytest.mark.django_db
def test_cancelling_a_run_that_needs_attention_ends_it(lost: Run) -> None:
    assert actions.cancel_run(lost, by="a person").status == "cancelled"
    with pytest.raises(Refused) as refused:
        actions.cancel_run(lost, by="a person")
    assert (refused.value.status, refused.value.code) == (409, "run_ended")
