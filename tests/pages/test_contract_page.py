"""The contract of an attempt as a page shows it: names as they are, and what differs from another attempt's."""

from __future__ import annotations

from collections.abc import Callable

from django.test import Client

from apps.accounts.models import User
from apps.runs.models import Attempt
from tests.browser.demo import Demo

AsUser = Callable[[User], Client]


def test_names_stand_as_they_are(demo: Demo, as_user: AsUser) -> None:
    text = as_user(demo.cast.viewer).get(f"/runs/{demo.runs['good']}/?step=review").text
    for name in ("VAR_GROUP_NAME", "SECRET_GITHUB_TOKEN", "timeout_s", "memory_mb", "entry_path"):
        assert f'<dt class="mono">{name}</dt>' in text, name


def test_contracts_that_differ_in_inputs_alone_are_said_to_be_the_same(demo: Demo, as_user: AsUser) -> None:
    mine = Attempt.objects.get(step_run__run=demo.runs["good"], step_run__step_id="review")
    other = Attempt.objects.get(step_run__run=demo.runs["running"], step_run__step_id="review")
    for attempt in (mine, other):
        attempt.contract |= {"inputs_digest": attempt.inputs_digest}
        attempt.save()
    assert mine.inputs_digest != other.inputs_digest

    def compared() -> str:
        address = f"/runs/{demo.runs['good']}/steps/review/1/contract/?with={other.pk}"
        return as_user(demo.cast.viewer).get(address).text

    assert "The two contracts are the same in every part. Inputs and code are no part of them" in compared()
    other.contract |= {"cwd": "/pulse/code/elsewhere"}
    other.save()
    assert "The two contracts are the same" not in compared()
    assert '<td class="mono cell-main">cwd</td>' in compared()
    assert '<td class="mono cell-main">inputs_digest</td>' not in compared()
