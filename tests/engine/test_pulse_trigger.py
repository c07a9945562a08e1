"""A step reads its trigger the same way on every road, and an unreadable delivery is never an ordinary value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import pulse

PULL = {
    "action": "opened",
    "number": 7,
    "pull_request": {"number": 7, "head": {"sha": "abc"}, "user": {"login": "ann"}, "title": "Mend it"},
    "repository": {"name": "tool", "full_name": "acme/tool", "owner": {"login": "acme"}},
}


def on_road(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, road: str, document: dict[str, Any] | bytes | None
) -> None:
    monkeypatch.setenv("RUN_ENTRY_PATH", road)
    monkeypatch.delenv("WORKFLOW_TRIGGER_INPUT_FILE", raising=False)
    if document is not None:
        path = tmp_path / "trigger.json"
        path.write_bytes(document if isinstance(document, bytes) else json.dumps(document).encode())
        monkeypatch.setenv("WORKFLOW_TRIGGER_INPUT_FILE", str(path))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("owner", "acme"),
        ("repo", "tool"),
        ("full_name", "acme/tool"),
        ("pull_number", 7),
        ("head_sha", "abc"),
        ("author", "ann"),
        ("title", "Mend it"),
        ("action", "opened"),
        ("pull_request.head.sha", "abc"),
        ("nothing", None),
    ],
)
def test_a_github_event_is_read_by_short_names_and_paths(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, value: object
) -> None:
    on_road(monkeypatch, tmp_path, "github", {"entry_path": "github", "event": "pull_request", "payload": PULL})
    assert pulse.trigger().value(name) == value


@pytest.mark.parametrize(
    ("road", "document"),
    [
        ("bearer", {"payload": {"owner": "acme"}}),
        ("bearer", {"variables": {"owner": "acme"}, "payload": {"owner": "other"}}),
        ("function", {"variables": {}, "payload": {"function": "f", "args": {"owner": "acme"}, "owner": "other"}}),
        ("mcp", {"payload": {"args": {"owner": "acme"}}}),
        ("slack", {"payload": {"event": {"owner": "acme"}}}),
        ("standard", {"payload": {"owner": "acme"}}),
        ("github", {"entry_path": "github", "payload": {"repository": {"owner": {"login": "acme"}}}}),
        ("internal", {"payload": []}),
        ("manual", None),
        ("api", None),
        ("builder", None),
        ("schedule", None),
    ],
)
def test_one_call_reads_it_on_every_road(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, road: str, document: dict[str, Any] | None
) -> None:
    on_road(monkeypatch, tmp_path, road, document)
    monkeypatch.setenv("VAR_OWNER", "acme")
    assert pulse.trigger().value("owner") == "acme"


@pytest.mark.parametrize("road", ["github", "standard", "bearer", "function", "internal", "slack", "mcp", ""])
def test_a_delivery_that_was_not_named_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, road: str) -> None:
    on_road(monkeypatch, tmp_path, road, None)
    monkeypatch.setenv("VAR_OWNER", "acme")
    with pytest.raises(pulse.TriggerUnreadable) as raised:
        pulse.trigger()
    assert (raised.value.path, raised.value.variable_set) == ("", False)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'"text"', b"\xff\xfe", b"[" * 100_000])
def test_a_delivery_that_cannot_be_parsed_is_an_error_with_its_text(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes
) -> None:
    on_road(monkeypatch, tmp_path, "github", content)
    with pytest.raises(pulse.TriggerUnreadable) as raised:
        pulse.trigger()
    assert raised.value.variable_set
    assert raised.value.path in str(raised.value)
    assert raised.value.cause


def test_a_delivery_that_is_gone_is_an_error_on_a_manual_run_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    on_road(monkeypatch, tmp_path, "manual", None)
    monkeypatch.setenv("WORKFLOW_TRIGGER_INPUT_FILE", str(tmp_path / "gone.json"))
    with pytest.raises(pulse.TriggerUnreadable, match="No such file"):
        pulse.trigger()
