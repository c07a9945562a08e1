"""What the pages of a workflow take from people."""

from __future__ import annotations

import json

from django import forms
from django.core.exceptions import ValidationError
from pydantic import JsonValue


class VariableForm(forms.Form):
    name = forms.CharField(max_length=64)
    value = forms.CharField(required=False, strip=False, help_text="Plain text, or JSON such as 5, true or [1, 2].")
    description = forms.CharField(required=False, max_length=500)

    def clean_value(self) -> JsonValue:
        """Numbers, booleans, null, lists and objects as JSON says them; anything else is text."""
        text: str = self.cleaned_data["value"]
        try:
            value: JsonValue = json.loads(text)
        except ValueError:
            return text
        return value


class GroupForm(forms.Form):
    name = forms.CharField(max_length=64)
    values = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false"}))
    enabled = forms.BooleanField(required=False)

    def clean_values(self) -> dict[str, JsonValue]:
        text = self.cleaned_data["values"] or "{}"
        try:
            values = json.loads(text)
        except ValueError:
            raise ValidationError("This is no JSON. It takes one object of names and values.") from None
        if not isinstance(values, dict):
            raise ValidationError("It takes one JSON object of names and values.")
        return values


class SecretForm(forms.Form):
    """Write-only: a saved value is never shown again."""

    name = forms.CharField(max_length=64)
    value = forms.CharField(strip=False, widget=forms.PasswordInput(attrs={"autocomplete": "off"}))
