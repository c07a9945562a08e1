"""What the pages of a workflow take from people."""

from __future__ import annotations

from django import forms
from django.core.exceptions import ValidationError
from pydantic import JsonValue

from engine import json_values


class VariableForm(forms.Form):
    name = forms.CharField(max_length=64)
    value = forms.CharField(required=False, strip=False, help_text="Plain text, or JSON such as 5, true or [1, 2].")
    description = forms.CharField(required=False, max_length=500)

    def clean_value(self) -> JsonValue:
        """Numbers, booleans, null, lists and objects as JSON says them; what begins like none of them is text."""
        text: str = self.cleaned_data["value"]
        try:
            return json_values.load(text)
        except json_values.NotJson as wrong:
            if text.lstrip()[:1] in {"[", "{"}:
                raise ValidationError(f"This is no JSON that can be kept: {wrong}.") from None
            return text


class GroupForm(forms.Form):
    name = forms.CharField(max_length=64)
    values = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false"}))
    enabled = forms.BooleanField(required=False)

    def clean_values(self) -> dict[str, JsonValue]:
        text = self.cleaned_data["values"] or "{}"
        try:
            values = json_values.load(text)
        except json_values.NotJson as wrong:
            raise ValidationError(f"This is no JSON: {wrong}. It takes one object of names and values.") from None
        if not isinstance(values, dict):
            raise ValidationError("It takes one JSON object of names and values.")
        return values


class SecretForm(forms.Form):
    """Write-only: a saved value is never shown again."""

    name = forms.CharField(max_length=64)
    value = forms.CharField(strip=False, widget=forms.PasswordInput(attrs={"autocomplete": "off"}))
