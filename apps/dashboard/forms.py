"""What the pages of a workflow take from people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from pydantic import JsonValue

from engine import json_values

VALUE = "value."


def typed(value: JsonValue) -> str:
    """The text that a person types for this value: what these forms read back as the same value."""
    if isinstance(value, str) and value.isprintable():
        try:
            if value and _meant(value) == value:
                return value
        except ValidationError:
            pass
    return json.dumps(value, ensure_ascii=False)


def _meant(text: str) -> JsonValue:
    """Numbers, booleans, null, lists and objects as JSON says them; what begins like none of them is text."""
    try:
        return json_values.load(text)
    except json_values.NotJson as wrong:
        if text.lstrip()[:1] in {"[", "{"}:
            raise ValidationError(f"This is no JSON that can be kept: {wrong}.") from None
        return text


class VariableForm(forms.Form):
    name = forms.CharField(max_length=64)
    value = forms.CharField(required=False, strip=False, help_text="Plain text, or JSON such as 5, true or [1, 2].")
    description = forms.CharField(required=False, max_length=500)

    def clean_value(self) -> JsonValue:
        return _meant(self.cleaned_data["value"])


class GroupForm(forms.Form):
    """Fields `value.<variable>`, one a variable of the workflow; what is left empty keeps the default."""

    name = forms.CharField(max_length=64)
    enabled = forms.BooleanField(required=False)

    def __init__(self, variables: Iterable[str], data: Mapping[str, Any]) -> None:
        super().__init__(data)
        for name in variables:
            self.fields[f"{VALUE}{name}"] = forms.CharField(required=False, strip=False)

    def clean(self) -> dict[str, Any]:
        """`values` has what was typed, as `VariableForm` takes it."""
        values: dict[str, JsonValue] = {}
        for key in self.fields:
            if key.startswith(VALUE) and (text := self.cleaned_data.pop(key, "")):
                try:
                    values[key.removeprefix(VALUE)] = _meant(text)
                except ValidationError as wrong:
                    self.add_error(key, wrong)
        return {**self.cleaned_data, "values": values}


class SecretForm(forms.Form):
    """Write-only: a saved value is never shown again."""

    name = forms.CharField(max_length=64)
    value = forms.CharField(strip=False, widget=forms.PasswordInput(attrs={"autocomplete": "off"}))
