"""The checks, in the order a start needs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine.digests import Tree
from engine.interpreters import Environment
from engine.preflight.finding import Finding
from engine.sandbox.host import HostTools

if TYPE_CHECKING:
    from engine.document import Step


@dataclass(frozen=True)
class Verdict:
    """What was found in a step's code. `needs` are the variables its entry point reads in any case, with the line."""

    findings: tuple[Finding, ...] = ()
    needs: tuple[tuple[str, int], ...] = ()
    shadows_standard: bool = False


def check(tree: Tree, code: Path, step_id: str, environment: Environment, host: HostTools) -> Verdict:
    """The verdict on one step of a tree."""
    if f"{step_id}/main.py" not in tree.files:
        message = f"There is no code/{step_id}/main.py. Write the step's entry point."
        return Verdict((Finding(f"code/{step_id}/main.py", 0, "entry_point_missing", step_id, message),))
    return Verdict()


def configuration(step: Step, verdict: Verdict, env: Mapping[str, str]) -> tuple[Finding, ...]:
    """What the step needs to be configured and is not."""
    return ()
