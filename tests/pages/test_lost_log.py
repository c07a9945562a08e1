"""What a log lacks is said beside its seal, and an empty log is not called that of a step that printed nothing."""

from __future__ import annotations

from collections.abc import Callable

from django.test import Client

from apps.accounts.models import User
from apps.runs import reading
from apps.runs.models import Attempt
from engine.logs.store import Lost
from tests.browser.demo import Demo

LOST = Lost(lines=3, bytes=15, row=1, why="No space left on device").record()


def page(demo: Demo, client: Client, seal: dict[str, object] | None) -> str:
    attempt = Attempt.objects.get(step_run__run=demo.runs["good"], step_run__step_id="review")
    attempt.seal = seal
    attempt.save()
    assert reading.attempt_json(attempt)["log"]["lost"] == (seal or {}).get("lost")
    return client.get(f"/runs/{demo.runs['good']}/?step=review&tab=log").text


def test_the_page_says_what_could_not_be_written(demo: Demo, as_user: Callable[[User], Client]) -> None:
    client = as_user(demo.cast.viewer)
    seal = {"lines": 2, "bytes": 9, "sha256": "0" * 64}
    assert "could not be written" not in page(demo, client, seal)
    assert "3 lines (15 bytes) are missing" in page(demo, client, {**seal, "lost": LOST})


def test_an_attempt_without_a_seal_is_not_said_to_have_printed_nothing(
    demo: Demo, as_user: Callable[[User], Client]
) -> None:
    client = as_user(demo.cast.viewer)
    assert "printed nothing" in page(demo, client, {"lines": 0, "bytes": 0, "sha256": "0" * 64})
    assert "printed nothing" not in page(demo, client, None)
    assert "could be written" in page(demo, client, {"lines": 0, "bytes": 0, "sha256": "0" * 64, "lost": LOST})
