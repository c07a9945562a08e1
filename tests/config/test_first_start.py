"""The first start lays out account and demonstration once, and goes on where an earlier one was cut short."""

from __future__ import annotations

import pytest
from django.utils import timezone

from apps.accounts.models import Team, User
from apps.webhooks.models import Delivery
from apps.workflows import actions as workflows
from apps.workflows.models import Workflow
from config import starting
from config.up import Up
from tests.factories import make_team

pytestmark = pytest.mark.django_db


def first_time() -> tuple[bool, str]:
    """Whether the sample is to be sent, and what was said."""
    said: list[str] = []
    trigger = Up(said.append, with_demo=True)._first_time()
    return trigger is not None, "\n".join(said)


def deliver() -> None:
    workflow = Workflow.objects.get(slug="pr-review")
    Delivery.objects.create(
        team=workflow.team, workflow=workflow, verdict="accepted", status=202, body=b"", body_bytes=0, body_sha256="",
        received_at=timezone.now(),
    )  # fmt: skip


def test_a_fresh_database_gets_an_admin_and_the_demonstration() -> None:
    sends, said = first_time()
    assert sends
    assert "Sign in as admin with the password" in said
    assert Workflow.objects.filter(team__slug="demo").count() == 3


def test_a_start_cut_short_is_gone_on_with() -> None:
    starting.first_admin(lambda line: None)
    sends, said = first_time()
    assert (sends, said) == (True, ""), "cut before the team: the password was said then, and is not made again"
    Workflow.objects.get(slug="noisy").delete()
    assert first_time() == (True, ""), "cut in the middle of the workflows"
    assert Workflow.objects.filter(team__slug="demo").count() == 3
    assert User.objects.count() == Team.objects.count() == 1
    deliver()
    assert first_time() == (False, ""), "the sample came: nothing is left to do"


def test_a_workflow_that_somebody_deleted_does_not_come_back() -> None:
    first_time()
    workflows.delete_workflow(Workflow.objects.get(slug="noisy"), by=User.objects.get())
    assert first_time() == (False, "")
    assert Workflow.objects.count() == 2


def test_where_people_are_at_work_nothing_is_laid_out() -> None:
    make_team()
    assert first_time() == (False, "")
    assert not Workflow.objects.exists()


def test_a_password_that_could_not_be_said_makes_no_account() -> None:
    def broken(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        starting.first_admin(broken)
    assert not User.objects.exists()
