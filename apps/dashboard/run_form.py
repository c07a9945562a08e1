"""The form that starts a run by hand: made from the workflow's groups, variables and declared parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from django import forms
from pydantic import JsonValue

from apps.runs import inputs
from apps.runs.models import Run
from apps.workflows.definition import Definition
from engine import json_values
from engine.parameters import Parameter

PARAMETER, VARIABLE, ROUTE = "p", "v", "r"
_NUMBERS = {"integer": int, "number": float}
_AS_JSON = {"array": "a list, such as [1, 2]", "object": 'an object, such as {"a": 1}'}
_NOT_A_NUMBER = {"integer": "Type a whole number, such as 5.", "number": "Type a number, such as 2.5."}


class RunForm(forms.Form):
    """Fields are named `p.<step>.<parameter>`, `v.<variable>` and `r.<branch>`; what is left empty is not given."""

    group = forms.ChoiceField(required=True)

    def __init__(self, definition: Definition, last: inputs.Inputs, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(data)
        self.definition = definition
        groups = [group.name for group in definition.groups.values() if group.enabled] or ["default"]
        self._field("group").choices = [(name, name) for name in groups]
        for step in definition.plan.steps:
            for name, parameter in step.script_parameters.items():
                known = last.parameters.get(step.id, {}).get(name, parameter.default)
                field = _field_for(name, parameter, known)
                if data is None and name in last.parameters.get(step.id, {}):
                    field.help_text = " ".join([str(field.help_text).rstrip(), "From the last run."]).strip()
                self.fields[f"{PARAMETER}.{step.id}.{name}"] = field
            routes = getattr(step, "routes", None)
            if step.kind in {"branch", "routing"} and routes:
                self.fields[f"{ROUTE}.{step.id}"] = forms.ChoiceField(
                    required=False,
                    label=step.title or step.id,
                    choices=[
                        ("", "as the step before decides"),
                        *((r.route_id, r.route_name or r.route_id) for r in routes),
                    ],
                )
        for name, value in definition.variables.items():
            self.fields[f"{VARIABLE}.{name}"] = forms.CharField(
                required=False, label=name, widget=forms.TextInput(attrs={"placeholder": _text(value)})
            )

    def parts(self, mark: str) -> list[forms.BoundField]:
        return [self[name] for name in self.fields if name.startswith(f"{mark}.")]

    @property
    def parameter_fields(self) -> list[forms.BoundField]:
        return self.parts(PARAMETER)

    @property
    def variable_fields(self) -> list[forms.BoundField]:
        return self.parts(VARIABLE)

    @property
    def route_fields(self) -> list[forms.BoundField]:
        return self.parts(ROUTE)

    def clean(self) -> dict[str, Any]:
        """Texts become the JSON that the declarations ask for; whether it fits is the contract's matter."""
        for step in self.definition.plan.steps:
            for name, parameter in step.script_parameters.items():
                key = f"{PARAMETER}.{step.id}.{name}"
                try:
                    self.cleaned_data[key] = _parsed(parameter, self.cleaned_data.get(key))
                except ValueError as wrong:
                    self.add_error(key, str(wrong))
        return self.cleaned_data

    def facts(self) -> dict[str, Any]:
        """What `start_run` is given: nothing for what was left empty."""
        data = self.cleaned_data
        parameters: dict[str, dict[str, JsonValue]] = {}
        for bound in self.parameter_fields:
            _, step_id, name = bound.name.split(".", 2)
            if data[bound.name] is not None:
                parameters.setdefault(step_id, {})[name] = data[bound.name]
        return {
            "group": data["group"],
            "parameters": parameters,
            "variables": {b.name.split(".", 1)[1]: data[b.name] for b in self.variable_fields if data[b.name]},
            "route_selections": {b.name.split(".", 1)[1]: data[b.name] for b in self.route_fields if data[b.name]},
        }

    def refuse(self, path: str, message: str) -> None:
        """Show a refusal of the platform at the field it is about, else above the form."""
        named = [name for name in self.fields if name.rsplit(".", 1)[-1] == path.rsplit(".", 1)[-1]]
        self.add_error(named[0] if len(named) == 1 else None, message)

    def _field(self, name: str) -> forms.ChoiceField:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)  # noqa: S101 - for the type checker: it is declared above
        return field


def last_inputs(definition: Definition) -> inputs.Inputs:
    """What the last run that was started by hand was given."""
    last = Run.objects.filter(workflow=definition.workflow, entry_path="manual").newest_first().first()
    return inputs.read(last) if last else inputs.Inputs()


def _field_for(name: str, parameter: Parameter, known: JsonValue) -> forms.Field:
    said: dict[str, Any] = {"label": name, "help_text": parameter.description, "required": parameter.required}
    if parameter.enum:
        choices = [(json.dumps(choice), _text(choice)) for choice in parameter.enum]
        blank = [] if parameter.required else [("", "not given")]
        return forms.ChoiceField(**said, choices=[*blank, *choices], initial=json.dumps(known))
    if parameter.type == "boolean":
        choices = [("", "not given"), ("true", "yes"), ("false", "no")]
        return forms.ChoiceField(**said, choices=choices, initial="" if known is None else json.dumps(known))
    if parameter.type in {"array", "object"}:
        area = forms.Textarea(attrs={"rows": 3, "spellcheck": "false"})
        return forms.CharField(**said, widget=area, initial="" if known is None else json.dumps(known, indent=2))
    mode = {"inputmode": "decimal"} if parameter.type in _NUMBERS else {}
    return forms.CharField(**said, strip=False, widget=forms.TextInput(attrs=mode), initial=_text(known))


def _parsed(parameter: Parameter, given: str | None) -> JsonValue:
    if not given:
        return None
    if parameter.enum or parameter.type in {"boolean", "array", "object"}:
        try:
            return json_values.load(given)
        except json_values.NotJson as wrong:
            takes = _AS_JSON.get(parameter.type, parameter.type)
            raise ValueError(f"This is not JSON: {wrong}. It takes {takes}.") from None
    if parameter.type in _NUMBERS:
        try:
            return cast(JsonValue, _NUMBERS[parameter.type](given.strip()))
        except ValueError:
            raise ValueError(_NOT_A_NUMBER[parameter.type]) from None
    return given


def _text(value: JsonValue) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)
