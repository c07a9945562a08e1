"""The graph of a plan."""

from __future__ import annotations

from engine.document.steps import BranchStep, HumanInputStep, Plan, RoutingStep, Step
from engine.graph import Edge, Graph, Need, Node
from engine.problems import json_path


def graph_of(plan: Plan, root: str = "$") -> Graph:
    """root: where the plan lies in its document, for the paths of problems."""
    return Graph([_node(plan, position, step, root) for position, step in enumerate(plan.steps)])


def ways_on(plan: Plan) -> dict[str, tuple[str, ...]]:
    """Where each step may go on: ids of steps, and `end`."""
    return {
        step.id: tuple(edge.target for edge in _edges(plan, position, step, ""))
        for position, step in enumerate(plan.steps)
    }


def _node(plan: Plan, position: int, step: Step, root: str) -> Node:
    path = f"{root}.steps[{position}]"
    return Node(
        id=step.id,
        path=path,
        edges=_edges(plan, position, step, path),
        needs=tuple(
            Need(dependency.producer, f"{path}.context_dependencies[{index}]", dependency.optional)
            for index, dependency in enumerate(step.context_dependencies)
        ),
        writes=not isinstance(step, BranchStep | RoutingStep),
    )


def _edges(plan: Plan, position: int, step: Step, path: str) -> tuple[Edge, ...]:
    if isinstance(step, BranchStep | RoutingStep):
        return tuple(
            Edge(route.next_step_id, f"{path}.routes[{index}].next_step_id", route.route_name or route.route_id)
            for index, route in enumerate(step.routes)
        )
    here = f"{path}.next_step_id" if step.next_step_id else path
    edges = [Edge(plan.follower(position), here)]
    if isinstance(step, HumanInputStep):
        edges += [Edge(target, json_path(["routes", answer], path), answer) for answer, target in step.routes.items()]
    return tuple(edges)
