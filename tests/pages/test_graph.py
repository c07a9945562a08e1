"""The plan as a picture."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.workflows.graph_svg import NODE_HEIGHT, NODE_WIDTH, Picture, draw


def plan(*steps: tuple[str, list[str]]) -> list[dict[str, Any]]:
    """Steps with the ids of what follows: one is the next step, several are routes."""
    return [
        {"id": name, "title": name, "kind": "scripted", "next_step_id": ways[0]}
        if len(ways) == 1
        else {"id": name, "kind": "branch", "routes": [{"route_id": way, "next_step_id": way} for way in ways]}
        for name, ways in steps
    ]


def overlaps(picture: Picture) -> list[tuple[str, str]]:
    return [
        (a.step_id, b.step_id)
        for place, a in enumerate(picture.nodes)
        for b in picture.nodes[place + 1 :]
        if abs(a.x - b.x) < NODE_WIDTH and abs(a.y - b.y) < NODE_HEIGHT
    ]


def test_steps_in_order_stand_below_each_other() -> None:
    picture = draw([{"id": "a"}, {"id": "b"}, {"id": "c"}])
    assert [node.step_id for node in sorted(picture.nodes, key=lambda node: node.y)] == ["a", "b", "c"]
    assert [edge.pair for edge in picture.edges] == [("a", "b"), ("b", "c")]


def test_routes_are_drawn_with_their_names_and_end_has_no_line() -> None:
    picture = draw(plan(("gate", ["review", "skip"]), ("review", ["end"]), ("skip", ["end"])))
    assert {(edge.pair, edge.label) for edge in picture.edges} == {
        (("gate", "review"), "review"),
        (("gate", "skip"), "skip"),
    }


def test_two_routes_to_one_step_are_one_line_with_both_names() -> None:
    routes = [{"route_id": "yes", "next_step_id": "b"}, {"route_id": "maybe", "next_step_id": "b"}]
    picture = draw([{"id": "a", "kind": "branch", "routes": routes}, {"id": "b"}])
    assert [(edge.pair, edge.label) for edge in picture.edges] == [(("a", "b"), "yes / maybe")]


def test_an_empty_plan_is_an_empty_picture() -> None:
    assert draw([]) == Picture(20, 0, (), ())


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
