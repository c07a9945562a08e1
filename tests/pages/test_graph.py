"""The plan as a picture."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.workflows.graph_svg import NODE_HEIGHT, NODE_WIDTH, Picture, draw, of_revision
from engine.document import Plan
from engine.ids import uuid7


def made(*steps: dict[str, Any]) -> Plan:
    """A plan whose graph nobody has checked."""
    return Plan.model_validate({"steps": list(steps)})


def branch(step_id: str, **routes: str) -> dict[str, Any]:
    ways = [{"route_id": route, "next_step_id": target} for route, target in routes.items()]
    return {"id": step_id, "kind": "branch", "question": "?", "routes": ways}


def plan(*steps: tuple[str, list[str]]) -> Plan:
    """Steps with the ids of what follows: one is the next step, several are routes."""
    return made(
        *(
            {"id": name, "title": name, "kind": "scripted", "next_step_id": ways[0]}
            if len(ways) == 1
            else branch(name, **{way: way for way in ways})
            for name, ways in steps
        )
    )


def overlaps(picture: Picture) -> list[tuple[str, str]]:
    return [
        (a.step_id, b.step_id)
        for place, a in enumerate(picture.nodes)
        for b in picture.nodes[place + 1 :]
        if abs(a.x - b.x) < NODE_WIDTH and abs(a.y - b.y) < NODE_HEIGHT
    ]


def test_steps_in_order_stand_below_each_other() -> None:
    picture = draw(made(*({"id": name, "kind": "scripted"} for name in "abc")))
    assert [node.step_id for node in sorted(picture.nodes, key=lambda node: node.y)] == ["a", "b", "c"]
    assert [edge.pair for edge in picture.edges] == [("a", "b"), ("b", "c")]


def test_routes_are_drawn_with_their_names_and_end_has_no_line() -> None:
    picture = draw(plan(("gate", ["review", "skip"]), ("review", ["end"]), ("skip", ["end"])))
    assert {(edge.pair, edge.label) for edge in picture.edges} == {
        (("gate", "review"), "review"),
        (("gate", "skip"), "skip"),
    }


def test_two_routes_to_one_step_are_one_line_with_both_names() -> None:
    picture = draw(made(branch("a", yes="b", maybe="b"), {"id": "b", "kind": "scripted"}))
    assert [(edge.pair, edge.label) for edge in picture.edges] == [(("a", "b"), "yes / maybe")]


def test_answers_of_a_person_are_ways_with_their_names() -> None:
    asks = {"id": "a", "kind": "human_input", "question": "?", "next_step_id": "end", "routes": {"yes": "b"}}
    picture = draw(made(asks, {"id": "b", "kind": "scripted"}))
    assert [(edge.pair, edge.label) for edge in picture.edges] == [(("a", "b"), "yes")]


@pytest.mark.django_db
def test_a_plan_that_is_not_kept_is_an_empty_picture() -> None:
    assert of_revision(uuid7(), 1) == Picture(0, 0, (), ())


@pytest.mark.parametrize("loop", [[("a", ["b"]), ("b", ["a"])], [("a", ["a"])]])
def test_a_plan_that_goes_round_is_drawn_all_the_same(loop: list[tuple[str, list[str]]]) -> None:
    assert len(draw(plan(*loop)).nodes) == len(loop)


@given(st.data())
def test_no_two_nodes_overlap_and_all_lie_inside(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    names = [f"s{number}" for number in range(count)]
    later = lambda place: st.lists(st.sampled_from([*names[place + 1 :], "end"]), min_size=1, max_size=4, unique=True)  # noqa: E731
    picture = draw(plan(*[(name, data.draw(later(place))) for place, name in enumerate(names)]))
    assert overlaps(picture) == []
    for node in picture.nodes:
        assert 0 <= node.x <= picture.width - NODE_WIDTH
        assert 0 <= node.y <= picture.height - NODE_HEIGHT
