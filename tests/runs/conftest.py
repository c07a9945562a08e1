from __future__ import annotations

import pytest

from apps.workflows.models import Workflow
from tests import factories
from tests.factories import Cast


@pytest.fixture
def cast(db: None) -> Cast:
    return factories.make_team()


@pytest.fixture
def workflow(cast: Cast) -> Workflow:
    """One scripted step `hello` that prints hello; two slots."""
    return factories.make_workflow(cast.team, cast.owner, factories.document(settings={"max_concurrent_runs": 2}))
