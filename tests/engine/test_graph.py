"""The order of a plan's steps."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import graph
from engine.graph import Edge, Graph, Need, Node
from tests.engine.documents import branch, parsed_plan, refusals, scripted, workflow

FORK = (
    scripted("gate", context_output=["route_selection.json", "pull.json"]),
    branch("route", ("review", "review"), ("skip", "skip"), context_dependencies=["gate/route_selection.json"]),
    scripted("review", "gate/pull.json", next_step_id="report"),
    scripted("skip", next_step_id="report"),
    scripted("report", "gate/pull.json", {"path": "review/review.json", "optional": True}),
)


def faults(*steps: dict[str, Any], code_packages: tuple[str, ...] = ()) -> dict[str, str]:
    found = refusals(workflow(*steps), code_packages=code_packages)
    return {path.replace("$.plan", "$", 1): code for path, code in found.items()}


def test_a_fork_that_joins_again_is_whole():
    assert len(parsed_plan(*FORK).steps) == 5


def test_ids_are_unique_and_no_words_of_the_platform():
    assert faults(scripted("a"), scripted("a"), scripted("shared"), scripted("end"), scripted("pulse")) == {
        "$.steps[1].id": "duplicate_id",
        "$.steps[2].id": "reserved_id",
        "$.steps[3].id": "reserved_id",
        "$.steps[4].id": "reserved_id",
    }


def test_an_id_is_no_package_of_the_code_tree():
    assert faults(scripted("helpers"), scripted("b"), code_packages=("helpers",)) == {
        "$.steps[0].id": "package_collision"
    }


def test_the_code_tree_tells_its_packages():
    files = [
        "shared/__init__.py",
        "shared/util.py",
        "gate/main.py",
        "both/__init__.py",
        "both/main.py",
        "tools.py",
        "x/y/__init__.py",
    ]

    assert graph.top_level_packages(files) == {"shared", "tools"}


def test_each_dangling_field_is_listed():
    assert faults(
        scripted("a", "ghost/x.json", next_step_id="nowhere"),
        branch("b", ("x", "gone"), ("y", "end"), context_dependencies=["phantom/route_selection.json"]),
        scripted("c"),
    ) == {
        "$.steps[0].context_dependencies[0]": "dangling_dependency",
        "$.steps[0].next_step_id": "dangling_target",
        "$.steps[1].routes[0].next_step_id": "dangling_target",
        "$.steps[1].context_dependencies[0]": "dangling_dependency",
        "$.steps[1]": "unreachable",
        "$.steps[2]": "unreachable",
    }


def test_a_step_that_no_way_leads_to_is_refused():
    assert faults(scripted("a", next_step_id="c"), scripted("b"), scripted("c")) == {"$.steps[1]": "unreachable"}


@pytest.mark.parametrize("producer", ["b", "c"])
def test_dependencies_point_backwards_only(producer: str):
    assert faults(scripted("a"), scripted("b", f"{producer}/x.json"), scripted("c")) == {
        "$.steps[1].context_dependencies[0]": "not_earlier"
    }


def test_backwards_means_along_the_way_not_up_the_list():
    steps = parsed_plan(
        scripted("a", next_step_id="c"), scripted("b", "c/x.json", next_step_id="end"), scripted("c", next_step_id="b")
    ).steps

    assert [step.id for step in steps] == ["a", "b", "c"]


def test_a_producer_on_another_route_is_not_earlier():
    assert faults(*FORK[:3], scripted("skip", "review/review.json", next_step_id="report"), FORK[4]) == {
        "$.steps[3].context_dependencies[0]": "not_earlier"
    }


def test_an_optional_dependency_points_backwards_too():
    later = {"path": "b/x.json", "optional": True}

    assert faults(scripted("a", later), scripted("b")) == {"$.steps[0].context_dependencies[0]": "not_earlier"}


def test_a_producer_on_some_paths_only_must_be_marked_optional():
    assert faults(*FORK[:4], scripted("report", "review/review.json")) == {
        "$.steps[4].context_dependencies[0]": "not_on_every_path"
    }


def test_a_branch_makes_no_files():
    assert faults(*FORK[:4], scripted("report", "route/decision.json")) == {
        "$.steps[4].context_dependencies[0]": "producer_writes_nothing"
    }


@pytest.mark.parametrize(
    ("steps", "path"),
    [
        ((scripted("a", next_step_id="a"),), "$.steps[0].next_step_id"),
        ((scripted("a"), scripted("b", next_step_id="a")), "$.steps[1].next_step_id"),
        ((scripted("a"), branch("b", ("again", "a"), ("on", "end"))), "$.steps[1].routes[0].next_step_id"),
    ],
)
def test_a_circle_is_refused_where_it_closes(steps: tuple[dict[str, Any], ...], path: str):
    assert faults(*steps) == {path: "circle"}


def test_paths_of_a_whole_document_begin_at_its_root():
    assert refusals(workflow(scripted("a", next_step_id="nowhere"))) == {
        "$.plan.steps[0].next_step_id": "dangling_target"
    }


def test_without_next_step_id_the_next_of_the_list_follows_and_after_the_last_the_end():
    whole = parsed_plan(scripted("a"), scripted("b"))

    assert (whole.next_of("a"), whole.next_of("b")) == ("b", "end")


def test_a_plan_of_five_hundred_steps_is_judged():
    steps = [scripted(f"s{n}", *([f"s{n - 1}/x.json", "s0/x.json"] if n else [])) for n in range(500)]

    assert len(parsed_plan(*steps).steps) == 500


IDS = [f"s{n}" for n in range(7)]


@st.composite
def graphs(draw: st.DrawFn, *, forward_only: bool) -> Graph:
    nodes = []
    for position, step_id in enumerate(IDS):
        ahead = [*IDS[position + 1 :], "end"] if forward_only else [*IDS, "end", "nowhere"]
        targets = draw(st.lists(st.sampled_from(ahead), min_size=1, max_size=3))
        nodes.append(
            Node(step_id, f"$[{position}]", tuple(Edge(t, f"$[{position}].{i}") for i, t in enumerate(targets)))
        )
    return Graph(nodes)


def paths_to(whole: Graph, goal: str) -> list[list[str]]:
    """Every way from the start to a step, by trying them all: the slow truth."""
    found: list[list[str]] = []
    waiting = [[whole.start]]
    while waiting:
        path = waiting.pop()
        if path[-1] == goal:
            found.append(path)
        waiting.extend([*path, target] for target in whole.successors(path[-1]) if target not in path)
    return found


@given(graphs(forward_only=True))
def test_always_before_is_what_lies_on_every_path(whole: Graph):
    for step_id in IDS:
        ways = paths_to(whole, step_id)
        on_all = set.intersection(*map(set, ways)) - {step_id} if ways else set()
        assert whole.always_before(step_id) == on_all


@given(graphs(forward_only=True))
def test_without_ways_back_there_is_no_circle(whole: Graph):
    assert not whole.closing_edges


@given(graphs(forward_only=False))
def test_a_circle_is_found_exactly_when_a_step_comes_before_itself(whole: Graph):
    assert bool(whole.closing_edges) == any(step_id in whole.before(step_id) for step_id in IDS)


@given(graphs(forward_only=False))
def test_before_and_after_are_two_sides_of_one_thing(whole: Graph):
    for one in IDS:
        after = {other for target in whole.successors(one) for other in whole.reachable_from(target)}
        assert after == {other for other in IDS if one in whole.before(other)}


@given(graphs(forward_only=False), st.sampled_from(IDS), st.sampled_from([*IDS, "ghost"]), st.booleans())
def test_problems_are_found_for_any_graph_without_an_error(whole: Graph, step_id: str, producer: str, optional: bool):
    needing = [
        Node(node.id, node.path, node.edges, (Need(producer, f"{node.path}.need", optional),))
        if node.id == step_id
        else node
        for node in whole.nodes
    ]

    found = Graph(needing).problems()

    assert (producer == "ghost") == any(problem.code == "dangling_dependency" for problem in found)
    assert bool(whole.closing_edges) == any(problem.code == "circle" for problem in found)
