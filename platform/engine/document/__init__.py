"""The workflow document: what a person writes, and the only way to read it."""

from __future__ import annotations

from engine.document.entries import Mappings, Schedule, Trigger
from engine.document.flow import graph_of, ways_on
from engine.document.parsing import DocumentRefused, parse_plan, parse_workflow
from engine.document.schema import json_schema
from engine.document.steps import (
    ROUTE_FILE,
    Access,
    BranchStep,
    Dependency,
    HumanInputStep,
    Limits,
    MessageSequenceStep,
    Network,
    OrchestratorStep,
    Plan,
    Retry,
    Route,
    RoutingStep,
    ScriptedStep,
    SecretUse,
    Step,
)
from engine.document.workflow import (
    CURRENT_CONTRACT,
    CURRENT_LAYOUT,
    Group,
    Retention,
    Settings,
    Variable,
    WorkflowDocument,
)
from engine.graph import END
from engine.problems import Problem

__all__ = [
    "CURRENT_CONTRACT",
    "CURRENT_LAYOUT",
    "END",
    "ROUTE_FILE",
    "Access",
    "BranchStep",
    "Dependency",
    "DocumentRefused",
    "Group",
    "HumanInputStep",
    "Limits",
    "Mappings",
    "MessageSequenceStep",
    "Network",
    "OrchestratorStep",
    "Plan",
    "Problem",
    "Retention",
    "Retry",
    "Route",
    "RoutingStep",
    "Schedule",
    "ScriptedStep",
    "SecretUse",
    "Settings",
    "Step",
    "Trigger",
    "Variable",
    "WorkflowDocument",
    "graph_of",
    "json_schema",
    "parse_plan",
    "parse_workflow",
    "ways_on",
]
