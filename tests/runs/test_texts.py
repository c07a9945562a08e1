"""What people read of a run's steps has the values that the run resolved."""

from __future__ import annotations

import pytest
from django.test import Client

from apps.runs import reading
from apps.workflows import actions as workflows
from apps.workflows.models import Workflow
from tests import factories
from tests.factories import Cast
from tests.runs.starts import start

pytestmark = pytest.mark.django_db


@pytest.fixture
def market(cast: Cast) -> Workflow:
    about = "Asks {{BASE_URL}} for {{MARKET}} ({{GROUP_NAME}}), not {{NOBODY}}."
    raw = factories.document(
        variables=[{"name": "MARKET", "value": "eu"}, {"name": "BASE_URL", "value": "https://example.test"}],
        groups=[{"name": "us", "values": {"MARKET": "us"}}],
        steps=[factories.step("ask", title="Ask {{MARKET}}", description=about)],
    )
    return factories.make_workflow(cast.team, cast.owner, raw)


def test_the_page_and_the_api_show_them_filled_in(market: Workflow, cast: Cast) -> None:
    run = start(market, variables={"BASE_URL": "https://once.test"})
    said = "Asks https://once.test for us (us), not {{NOBODY}}."
    (step,) = reading.run_json(run)["steps"]
    assert (step["title"], step["description"]) == ("Ask us", said)

    client = Client()
    client.force_login(cast.viewer)
    page = client.get(f"/runs/{run.pk}/").text
    assert said in page
    assert "Ask us" in page
    assert "Ask {{MARKET}}" not in page


def test_values_changed_later_and_later_plans_change_nothing(market: Workflow, cast: Cast) -> None:
    run = start(market)
    workflows.set_variable(market, name="MARKET", value="asia", by=cast.owner)
    workflows.save_plan(market, {"steps": [factories.step("ask", description="Other.")]}, by=cast.owner)
    (step,) = reading.run_json(run)["steps"]
    assert step["description"].startswith("Asks https://example.test for us")
