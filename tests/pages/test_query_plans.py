"""Pages read what they show, however much there is beside it: how SQLite means to answer each of their queries.

Measured with 1,000,000 runs, 10,000,000 events and 1,000,000 deliveries (docs/decisions/0802-lists-that-grow.md); what
made a list slow there shows in the plan of its query with three rows as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import User
from apps.runs.forms import PILLS
from apps.runs.supervisor import sweeper
from apps.tools import closing
from apps.tools.models import ToolSession
from apps.webhooks.deliveries_page import VERDICTS
from tests.browser.demo import Demo
from tests.factories import make_token
from tests.pages.addresses import lists, objects

pytestmark = pytest.mark.django_db
if connection.vendor != "sqlite":
    pytest.skip("SQLite has a plan that can be read", allow_module_level=True)

GROWS = (
    "runs_run", "runs_runevent", "runs_steprun", "runs_attempt", "webhooks_delivery",
    "tools_toolsession", "tools_toolcall", "tools_ledgerseal", "tools_receipt",
)  # fmt: skip
SLOW = re.compile(rf"SCAN ({'|'.join(GROWS)})\b|USE TEMP B-TREE FOR ORDER BY")
FEW = re.compile(
    r"""WHERE .*"(id|run_id)" = '"""  # what one row or one run has
    r"""|"status" >= 400"""  # what was refused
    r"""|FROM "webhooks_trigger" WHERE"""  # the ways into one workflow
)
API = ("/runs", "/runs?status=failed", "/runs?workflow=pr-review", "/deliveries", "/sessions", "/workflows")


def slow(ask: Callable[[], object]) -> Iterator[str]:
    """The queries of what is asked that would look at every row of a table that grows, or sort them all."""
    ask()
    with CaptureQueriesContext(connection) as captured:
        ask()
    for query in captured.captured_queries:
        sql = query["sql"]
        if not sql.startswith("SELECT") or " LIMIT " not in sql or " GROUP BY " in sql:
            continue  # figures of a day, or of what has not ended, are counted
        with connection.cursor() as cursor:
            cursor.execute("EXPLAIN QUERY PLAN " + sql.replace("%", "%%"))
            plan = "; ".join(row[3] for row in cursor.fetchall())
        if SLOW.search(plan) and FEW.search(sql) is None and any(f'"{table}"' in sql for table in GROWS):
            yield f"{plan}\n    {sql}"


def test_the_search_finds_a_list_that_would_be_sorted_whole() -> None:
    from apps.runs.models import Run

    assert list(slow(lambda: list(Run.objects.order_by("reason")[:5])))


def test_no_page_sorts_or_looks_at_all_that_ever_happened(demo: Demo, as_user: Callable[[User], Client]) -> None:
    client = as_user(demo.cast.owner)
    pages = [*lists(demo), *(page for page in objects(demo) if "/files/" not in page)]
    pages += [f"/runs/?status={status}" for status, _ in PILLS]
    pages += ["/runs/?workflow=payments/pr-review", "/runs/?workflow=payments/pr-review&status=failed"]
    pages += [f"/deliveries/?verdict={verdict}" for verdict, _ in VERDICTS]
    found = {page: list(slow(lambda page=page: client.get(page))) for page in pages}
    assert {page: queries for page, queries in found.items() if queries} == {}


def test_no_list_of_the_api_does(demo: Demo) -> None:
    token = make_token(demo.cast.team, demo.cast.owner, "read")
    client = Client(headers={"Authorization": f"Bearer {token}"})
    found = {place: list(slow(lambda place=place: client.get(f"/api/v1{place}"))) for place in API}
    assert {place: queries for place, queries in found.items() if queries} == {}


def test_a_name_that_is_no_session_is_not_looked_for_among_all_there_ever_were(demo: Demo) -> None:
    assert list(slow(lambda: list(ToolSession.objects.live().filter(name="no such name")[:2]))) == []


@pytest.mark.parametrize("duty", [sweeper.sweep, sweeper.report_old, closing.finish_ended])
def test_no_duty_of_the_leader_does(demo: Demo, duty: Callable[[], object]) -> None:
    assert list(slow(duty)) == []
