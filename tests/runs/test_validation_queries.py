"""Validation of a step on the workflow's own database: a refused rule is told from a failed check."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pydantic import JsonValue

from apps.runs import fragments, tasks
from apps.runs.models import Attempt
from apps.workflows import actions
from apps.workflows.models import Workflow
from tests.runs.starts import start

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sandbox]

NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400)"
MANY = f"{NUMBERS} SELECT i, zeroblob(20000) AS b FROM n"


def judged(workflow: Workflow, **rule: Any) -> tuple[str, list[str]]:
    """The outcome of a run whose step has this one rule, and what became of each check of it."""
    plan = workflow.revisions.get(number=workflow.revision).plan
    step = {**plan["steps"][0], "validation": {"db": [{"name": "rows", **rule}]}}
    actions.save_plan(workflow, cast("dict[str, JsonValue]", {"steps": [step, *plan["steps"][1:]]}), by=workflow.owner)
    run = start(Workflow.objects.get(pk=workflow.pk))
    tasks.advance_run(str(run.pk))
    attempt = Attempt.objects.get(step_run__run=run, step_run__step_id=step["id"])
    assert attempt.validation is not None, attempt.detail
    checks = [check["status"] for check in attempt.validation["checks"] if check["path"].startswith("db rows")]
    return attempt.outcome, checks


def test_rows_as_wanted_pass(workflow: Workflow) -> None:
    assert judged(workflow, sql="SELECT 1 AS n", min_rows=1) == ("succeeded", ["passed"])


def test_too_few_rows_fail_the_step(workflow: Workflow) -> None:
    assert judged(workflow, sql="SELECT 1 WHERE 0", min_rows=1) == ("validation_failed", ["failed"])


def test_a_table_that_is_not_there_is_a_fault_of_the_rule(workflow: Workflow) -> None:
    assert judged(workflow, sql="SELECT * FROM nothing", min_rows=1) == ("validation_failed", ["faulty"])
    attempt = Attempt.objects.get()
    assert attempt.reason == "rule_faulty"
    shown = fragments.render("notice", attempt.step_run.run)
    assert "A rule of the validation could not be applied" in shown
    assert "does not pass its checks" not in shown


def test_large_rows_are_all_counted(workflow: Workflow) -> None:
    assert judged(workflow, sql=MANY, min_rows=400, max_rows=400) == ("succeeded", ["passed", "passed"])
