"""What this release cannot honour is refused with `not_supported_yet` and its path, never ignored."""

from __future__ import annotations

from typing import Any

import pytest

from engine import document
from engine.document import release
from tests.engine.documents import branch, refusals, scripted, workflow

LATER: list[tuple[dict[str, Any], str]] = [
    (workflow(schedules=[{"name": "daily"}]), "$.schedules"),
    (workflow(settings={"repair": "auto"}), "$.settings.repair"),
    (workflow(settings={"repair": "propose"}), "$.settings.repair"),
    (workflow(settings={"retention": {"runs": 10, "history_days": 90}}), "$.settings.retention"),
    (workflow(settings={"notify": {"rules": [{"on": "failed", "to": ["slack:#ops"]}]}}), "$.settings.notify"),
    (workflow(scripted("a", capabilities=["browser"])), "$.plan.steps[0].capabilities"),
    (workflow(branch("b", ("x", "end"), ("y", "end"), source="human")), "$.plan.steps[0].source"),
    (workflow(scripted("a", tools=["record_learning"])), "$.plan.steps[0].tools[0]"),
    *(
        (workflow({"id": "a", "kind": kind, "what": "ever"}), "$.plan.steps[0].kind")
        for kind in release.LATER_STEP_KINDS
    ),
    *((workflow(triggers=[{"kind": kind, "name": "t"}]), "$.triggers[0].kind") for kind in release.LATER_TRIGGER_KINDS),
]


@pytest.mark.parametrize(("raw", "path"), LATER)
def test_it_is_refused_with_its_path(raw: dict[str, Any], path: str):
    assert refusals(raw) == {path: "not_supported_yet"}


@pytest.mark.parametrize(
    "raw",
    [
        workflow(schedules=[]),
        workflow(settings={"repair": "off", "notify": {}, "retention": {}}),
        workflow(settings={"notify": {"rules": []}}),
        workflow(scripted("a", capabilities=[])),
        workflow(branch("b", ("x", "end"), ("y", "end"), source="file")),
    ],
)
def test_an_empty_key_asks_for_nothing(raw: dict[str, Any]):
    assert document.parse_workflow(raw)


def test_it_is_listed_together_with_everything_else():
    raw = workflow(scripted("a", capabilities=["browser"], tolls=1), schedules=[{}], colour="red")

    assert refusals(raw) == {
        "$.plan.steps[0].capabilities": "not_supported_yet",
        "$.plan.steps[0].tolls": "unknown_key",
        "$.schedules": "not_supported_yet",
        "$.colour": "unknown_key",
    }


def test_a_tool_that_nobody_knows_is_refused_with_those_there_are():
    assert refusals(workflow(scripted("a", tools=["drop_everything"]))) == {"$.plan.steps[0].tools[0]": "unknown_tool"}


@pytest.mark.parametrize(
    ("tool", "access", "fits"),
    [
        ("query_workflow_db", "none", False),
        ("query_workflow_db", "read", True),
        ("mutate_workflow_db", "read", False),
        ("mutate_workflow_db", "read-write", True),
        ("read_receipt", "none", True),
    ],
)
def test_a_tool_needs_the_access_that_it_works_with(tool: str, access: str, fits: bool):
    raw = workflow(scripted("a", tools=[tool], access={"db": access}))

    if fits:
        assert document.parse_workflow(raw)
    else:
        assert refusals(raw) == {"$.plan.steps[0].tools[0]": "tool_needs_access"}


def test_a_step_that_declares_hosts_is_refused_until_there_is_a_way_out():
    raw = workflow(scripted("a", network={"hosts": ["api.github.com:443"]}))

    assert refusals(raw) == {"$.plan.steps[0].network.hosts": "not_supported_yet"}
    assert document.parse_workflow(workflow(scripted("a", network={"hosts": []})))
    assert document.parse_workflow(workflow(scripted("a", network={})))


@pytest.mark.parametrize("notify", [{}, {"rules": []}, {"rules": [], "quiet_hours": ""}])
def test_notifications_that_say_nothing_are_as_none(notify: dict[str, Any]):
    assert document.parse_workflow(workflow(settings={"notify": notify}))


def test_every_kind_is_either_had_or_said_to_come():
    schema = document.json_schema()

    kinds = schema["$defs"]["Trigger"]["properties"]["kind"]["enum"]
    assert sorted(kinds) == sorted(release.TRIGGER_KINDS + release.LATER_TRIGGER_KINDS)
    steps = schema["$defs"]["Plan"]["properties"]["steps"]["items"]["discriminator"]["mapping"]
    assert sorted(steps) == sorted(release.STEP_KINDS + release.LATER_STEP_KINDS)


def test_the_tools_that_are_had_are_those_of_the_catalogue():
    from apps.tools import catalogue

    assert {name: catalogue.find(name).needs_db for name in catalogue.names()} == release.TOOL_NEEDS
    assert not release.TOOLS & release.LATER_TOOLS


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"retention": {"runs": 5}},
            "This release does not have retention (it keeps all runs) yet. Nothing was saved;",
        ),
        ({"repair": "auto"}, "This release does not have any repair but off yet. Nothing was saved;"),
    ],
)
def test_what_is_not_had_yet_is_said_in_a_sentence(settings: dict[str, Any], said: str):
    with pytest.raises(document.DocumentRefused) as refused:
        document.parse_workflow(workflow(settings=settings))

    assert refused.value.problems[0].message.startswith(said)
