"""Small things a step says and writes through the library."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pulse


@pytest.fixture(autouse=True)
def out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("STEP_OUTPUT_DIR", str(tmp_path))
    return tmp_path


def test_parameters_come_as_they_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEP_PARAMS_JSON", '{"limit": 5}')
    assert pulse.params() == {"limit": 5}
    monkeypatch.delenv("STEP_PARAMS_JSON")
    assert pulse.params() == {}


def test_json_is_written_in_one_stroke_below_the_output_folder(out: Path) -> None:
    path = pulse.write_json("deep/report.json", {"name": "Ünal"})
    assert path == pulse.output_dir / "deep" / "report.json"
    assert json.loads(path.read_text(encoding="utf-8")) == {"name": "Ünal"}
    assert [entry.name for entry in (out / "deep").iterdir()] == ["report.json"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}])
def test_what_is_no_json_is_not_written(out: Path, value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        pulse.write_json("x.json", value)
    assert list(out.iterdir()) == []


def test_a_refusal_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        pulse.refuse("no\nbudget", "the transfer", "ask Ann")
    assert raised.value.code == 2
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    assert json.loads(line.removeprefix("PULSE_REFUSAL: ")) == {
        "reason": "no\nbudget",
        "blocked_action": "the transfer",
        "resolution": "ask Ann",
    }


def test_a_concern_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    pulse.concern("two\nlines")
    assert capsys.readouterr().out == "CONCERN: two lines\n"


def test_all_that_is_documented_is_there() -> None:
    documented = ["params", "trigger", "call", "tools", "output_dir", "write_json", "refuse", "concern", "read_receipt"]
    errors = ["ToolError", "ToolBoundaryError", "MutationUnknown", "TriggerUnreadable"]
    assert [name for name in [*documented, *errors] if not hasattr(pulse, name)] == []
    assert not hasattr(pulse, "browser")  # comes with the capability
