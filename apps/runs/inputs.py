"""What the caller gave a run: kept once, encrypted, and read from there by whoever needs it again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from pydantic import JsonValue

from apps.runs.models import Run, RunInput
from apps.workflows import vault
from apps.workflows.vault import Purpose


@dataclass(frozen=True)
class Inputs:
    """`parameters`, `route_selections` and `human_inputs` are keyed by step id."""

    variables: Mapping[str, JsonValue] = field(default_factory=dict)
    parameters: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    route_selections: Mapping[str, str] = field(default_factory=dict)
    human_inputs: Mapping[str, JsonValue] = field(default_factory=dict)


def sealed(run: Run, inputs: Inputs) -> RunInput:
    """The row to be, not saved yet."""
    value = vault.encrypt(Purpose.RUN_INPUT, run.pk, json.dumps(asdict(inputs)).encode())
    return RunInput(run=run, ciphertext=value.ciphertext, key_id=value.key_id)


def read(run: Run) -> Inputs:
    """Raises SecretUnreadable when the key is gone. A run without the row was given nothing."""
    row = RunInput.objects.filter(run_id=run.pk).first()
    if row is None:
        return Inputs()
    return Inputs(**json.loads(vault.decrypt(Purpose.RUN_INPUT, run.pk, bytes(row.ciphertext), row.key_id)))
