"""Following a run from the terminal: it ends with a reason, also when nobody takes the run."""

from __future__ import annotations

import pytest

from apps.runs import following
from tests.factories import make_team, make_workflow
from tests.runs.starts import start

pytestmark = [pytest.mark.django_db(transaction=True)]


def test_without_a_worker_the_follower_is_told_so_and_what_frees_the_run():
    cast = make_team()
    run = start(make_workflow(cast.team, cast.owner))
    with pytest.raises(following.NotTaken, match=r"The run stays queued. What frees it: The start of one"):
        following.follow(run.pk, print, patience_s=0)
