from __future__ import annotations

import pytest

from apps.workflows import definition, places
from tests.factories import make_team, make_workflow


@pytest.mark.django_db
def test_an_imported_workflow_has_a_plan_and_its_files():
    cast = make_team()
    workflow = make_workflow(cast.team, cast.editor)
    read = definition.load(workflow)
    assert read.revision == 1
    assert [step.id for step in read.plan.steps] == ["hello"]
    assert (places.places_of(workflow).code / "hello" / "main.py").read_text() == 'print("hello")\n'
