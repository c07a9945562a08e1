"""What `run_workflow`, `demo` and `create_token` tell in a terminal: the end of the log, sentences for mistakes."""

from __future__ import annotations

import os
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from apps.runs import following, tails, tasks
from apps.runs.models import Run
from config import before, starting
from tests import factories
from tests.factories import make_team, make_workflow
from tests.runs.starts import start

pytestmark = pytest.mark.django_db(transaction=True)
PRINTS = "for n in range(12): print('row', n)\nprint('\\x1b[31mHello, \\x1b]0;title\\x07world!\\x1b[0m')\n"
WHO = {"who": {"type": "string", "description": "Whom to greet.", "required": True}}


@pytest.mark.sandbox
def test_the_end_of_the_log_is_told_without_what_a_terminal_obeys() -> None:
    cast = make_team()
    run = start(make_workflow(cast.team, cast.owner, files={"code/hello/main.py": PRINTS}))
    tasks.advance_run(str(run.pk))
    said: list[str] = []
    following.tell_result(Run.objects.get(pk=run.pk), said.append)
    text = "\n".join(said)
    assert "The last lines of the step hello:" in said
    assert "    Hello, �]0;title�world!" in said
    assert "    row 11" in said
    assert "    row 2" not in said
    assert "\x1b" not in text
    assert f"/runs/{run.pk}/" in text


def test_a_run_without_an_attempt_has_no_end_of_a_log() -> None:
    cast = make_team()
    assert tails.of_run(start(make_workflow(cast.team, cast.owner))) is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ('{"parameters": {"who": "you"}}', """--inputs '{"parameters": {"hello": {"who": "…"}}}'. No run"""),
        ('{"parameters": ["who"]}', "`parameters` of --inputs must be an object. No run"),
        ('{"variables": 5}', "`variables` of --inputs must be an object. No run"),
        ("{}", "'who' is required. No run"),
    ],
)
def test_inputs_in_another_shape_are_refused_with_the_right_form(given: str, said: str) -> None:
    cast = make_team()
    raw = factories.document("greet", steps=[factories.step(script_parameters=WHO)])
    make_workflow(cast.team, cast.owner, raw)
    with pytest.raises(CommandError) as refused:
        call_command("run_workflow", "greet", inputs=given)
    assert said in str(refused.value)
    assert ".." not in str(refused.value)
    assert not Run.objects.exists()


def test_a_wrong_scope_is_told_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises((CommandError, SystemExit)) as refused:
        call_command("create_token", "--team=x", "--user=y", "--scope=wrong")
    assert "'read', 'run', 'build', 'admin'" in str(refused.value) + capsys.readouterr().err


def test_a_demo_for_another_port_than_the_running_one_names_it(settings: Any, tmp_path: Path) -> None:
    settings.PULSE_DATA, settings.PULSE_PORT = tmp_path, 8123
    assert before.serving_port(tmp_path) is None
    with starting.claim_data():
        assert before.serving_port(tmp_path) == 8123
        settings.PULSE_PORT = 8124
        with pytest.raises(CommandError, match=r"port 8123, and PULSE_PORT is 8124\. Nothing was sent"):
            call_command("demo", stdout=StringIO())
    assert before.serving_port(tmp_path) is None


def test_the_links_of_a_run_lead_to_the_product_that_runs_on_the_data(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.PULSE_DATA, settings.PULSE_PORT = tmp_path, 8123
    monkeypatch.setenv("PULSE_DATA", str(tmp_path))
    monkeypatch.setenv("PULSE_PORT", "8124")
    before.take_port(tmp_path)
    assert os.environ["PULSE_PORT"] == "8124"
    with starting.claim_data():
        before.take_port(tmp_path)
        assert os.environ["PULSE_PORT"] == "8123"
