"""What every page's frame shows: the main addresses and the warning of plain http."""

from __future__ import annotations

from dataclasses import dataclass

from django import template
from django.conf import settings
from django.template.context import Context
from django.urls import reverse

from apps.accounts import access

register = template.Library()


@dataclass(frozen=True)
class Link:
    label: str
    icon: str
    address: str
    current: bool


PLACES = (
    ("Dashboard", "dashboard", "dashboard:home", "/?"),
    ("Workflows", "workflow", "dashboard:workflows", "/workflows/ /t/"),
    ("Runs", "run", "runs:list", "/runs/"),
    ("Deliveries", "delivery", "webhooks:deliveries", "/deliveries/"),
    ("Sessions", "session", "tools:sessions", "/sessions/"),
)


@register.simple_tag(takes_context=True)
def nav_links(context: Context) -> list[Link]:
    """The main addresses, the one that is open marked."""
    request = context.get("request")
    here = request.path if request else ""
    return [
        Link(label, icon, reverse(name), here == "/" if prefixes == "/?" else here.startswith(tuple(prefixes.split())))
        for label, icon, name, prefixes in PLACES
    ]


@register.simple_tag(takes_context=True)
def team_topics(context: Context) -> str:
    """What a page about all the reader's teams watches: `team:<slug>` of each, parted by blanks."""
    request = context.get("request")
    slugs = access.teams_of(request.user).values_list("slug", flat=True) if request else ()
    return " ".join(f"team:{slug}" for slug in slugs)


@register.simple_tag(takes_context=True)
def in_no_team(context: Context) -> bool:
    """Whether an empty list says nothing of what there is: its reader sees the things of no team."""
    return not access.teams_of(context["request"].user).exists()


@register.simple_tag
def sends_mail() -> bool:
    """Whether a mail can be sent: without, nothing is offered that ends in one."""
    return bool(settings.PULSE_MAIL_URL)


@register.simple_tag
def insecure_http() -> bool:
    """Said on every page, since passwords and tokens cross the network in the clear."""
    return settings.PULSE_INSECURE_HTTP and not settings.HTTPS
