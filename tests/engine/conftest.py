"""The stage of the runner's tests serves the engine's as well: a real data folder with one workflow."""

from __future__ import annotations

from tests.runner.conftest import stage

__all__ = ["stage"]
