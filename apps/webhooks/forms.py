"""What the pages of triggers take from people."""

from __future__ import annotations

from django import forms
from django.core.exceptions import ValidationError
from pydantic import JsonValue

KINDS = [("github", "GitHub: signed with a secret"), ("bearer", "Bearer: a token in the Authorization header")]


class TriggerForm(forms.Form):
    """A new way in. Without a secret one is made and shown once."""

    kind = forms.ChoiceField(choices=KINDS)
    name = forms.CharField(max_length=120)
    group = forms.CharField(
        max_length=64,
        required=False,
        help_text="The variables its runs get. Leave it empty for the only enabled group, else default.",
    )
    events = forms.CharField(
        required=False,
        help_text="For GitHub only: one event a line, such as pull_request.opened. Leave it empty for all.",
        widget=forms.Textarea(attrs={"rows": 3}),
    )
    secret = forms.CharField(
        required=False,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        help_text="Leave it empty, and one is made and shown once.",
    )

    def document(self) -> dict[str, JsonValue]:
        """The trigger as the workflow document says it."""
        data = self.cleaned_data
        said: dict[str, JsonValue] = {"kind": data["kind"], "name": data["name"], "enabled": True}
        if data["group"]:
            said["group"] = data["group"]
        if data["events"].split():
            said["events"] = data["events"].split()
        return said

    def clean_events(self) -> str:
        events: str = self.cleaned_data["events"]
        if events.split() and self.data.get("kind") != "github":
            raise ValidationError("Only GitHub triggers choose events. Leave this empty.")
        return events


class SecretForm(forms.Form):
    """The sender's own new secret; empty: one is made."""

    secret = forms.CharField(required=False, strip=False, widget=forms.PasswordInput(attrs={"autocomplete": "off"}))
