"""What a step left behind is sent as a download from the one safe reader, or not at all (attacks 8, 9, 109)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from django.test import Client

from apps.accounts.models import User
from apps.runs.artifacts import PIECE_BYTES
from apps.runs.models import Attempt, Run
from apps.workflows.places import places_of
from tests.browser.demo import Demo
from tests.pages.downloads import sent


@pytest.fixture
def folder(demo: Demo) -> Path:
    """Where the outputs of the good run's review lie."""
    run = Run.objects.select_related("workflow").get(pk=demo.runs["good"])
    return places_of(run.workflow).attempt(str(run.pk), "review", 1).out


def collect(demo: Demo, **said: object) -> None:
    attempt = Attempt.objects.get(step_run__run=demo.runs["good"], step_run__step_id="review")
    attempt.outputs = [{"path": "report.md", "bytes": 130, "sha256": "", **said}]
    attempt.save()


def address(demo: Demo, path: str) -> str:
    return f"/runs/{demo.runs['good']}/steps/review/1/files/{path}"


def test_an_output_is_a_download_in_a_sandbox_of_its_own(demo: Demo, as_user: Callable[[User], Client]) -> None:
    response = as_user(demo.cast.viewer).get(address(demo, "report.md"))
    body = sent(response)
    assert body.startswith(b"# Review of #2")
    assert response["Content-Length"] == str(len(body))
    assert response["Content-Disposition"] == 'attachment; filename="report.md"'
    assert response["Content-Type"] == "application/octet-stream"
    assert response["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in response["Content-Security-Policy"]


def test_half_a_surrogate_pair_in_an_output_does_not_break_the_result(
    demo: Demo, as_user: Callable[[User], Client], folder: Path
) -> None:
    (folder / "odd.json").write_text(r'{"said": "\ud800"}')
    collect(demo, path="odd.json")
    page = as_user(demo.cast.viewer).get(f"/runs/{demo.runs['good']}/?tab=result")
    assert page.status_code == 200
    assert r"\ud800" in page.text


def test_a_large_output_goes_out_in_pieces(demo: Demo, as_user: Callable[[User], Client], folder: Path) -> None:
    data = os.urandom(3 * PIECE_BYTES + 1)
    (folder / "report.md").write_bytes(data)
    assert sent(as_user(demo.cast.viewer).get(address(demo, "report.md"))) == data


def test_outputs_that_retention_removed_are_gone(demo: Demo, as_user: Callable[[User], Client]) -> None:
    Run.objects.filter(pk=demo.runs["good"]).update(artifacts_expired=True)
    assert as_user(demo.cast.viewer).get(address(demo, "report.md")).status_code == 410
    assert as_user(demo.cast.outsider).get(address(demo, "report.md")).status_code == 404


@pytest.mark.parametrize(
    "path", ["../../../../db/workflow.sqlite3", "/etc/passwd", "none.txt", "report.md/../review.json"]
)
def test_only_what_was_collected_is_sent(demo: Demo, as_user: Callable[[User], Client], path: str) -> None:
    assert as_user(demo.cast.owner).get(address(demo, path)).status_code == 404


def test_a_link_in_place_of_an_output_is_not_followed(
    demo: Demo, as_user: Callable[[User], Client], folder: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the platform's own")
    (folder / "report.md").unlink()
    (folder / "report.md").symlink_to(secret)
    client = as_user(demo.cast.owner)
    assert client.get(address(demo, "report.md")).status_code == 404
    assert "the platform's own" not in client.get(f"/runs/{demo.runs['good']}/?step=review&tab=result").text


def test_a_pipe_in_place_of_an_output_holds_nothing_up(
    demo: Demo, as_user: Callable[[User], Client], folder: Path
) -> None:
    (folder / "report.md").unlink()
    os.mkfifo(folder / "report.md")
    assert as_user(demo.cast.owner).get(address(demo, "report.md")).status_code == 404


def test_an_output_with_a_secret_is_marked_and_neither_shown_nor_sent(
    demo: Demo, as_user: Callable[[User], Client]
) -> None:
    collect(demo, contains_secret=True)
    client = as_user(demo.cast.owner)
    page = client.get(f"/runs/{demo.runs['good']}/?step=review&tab=result").text
    assert "it contains a secret" in page
    assert "3 files, 42 lines" not in page
    assert client.get(address(demo, "report.md")).status_code == 404


def test_expired_outputs_answer_that_they_are_gone(demo: Demo, as_user: Callable[[User], Client]) -> None:
    Run.objects.filter(pk=demo.runs["good"]).update(artifacts_expired=True)
    client = as_user(demo.cast.viewer)
    assert client.get(address(demo, "report.md")).status_code == 410
    assert "deleted by retention" in client.get(f"/runs/{demo.runs['good']}/?step=review&tab=result").text


def test_a_huge_json_result_is_offered_and_not_drawn(
    demo: Demo, as_user: Callable[[User], Client], folder: Path
) -> None:
    (folder / "report.md").unlink()
    (folder / "huge.json").write_text("[" + "1," * 400_000 + "1]")
    collect(demo, path="huge.json", bytes=(folder / "huge.json").stat().st_size)
    page = as_user(demo.cast.viewer).get(f"/runs/{demo.runs['good']}/?step=review&tab=result").text
    assert "800.0 KB" in page
    assert len(page) < 60_000
