"""How pages write things down: icons, durations, ages, sizes. Formatting only, no decisions."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache
from typing import Any

from django import template
from django.forms import BoundField
from django.template.base import Template
from django.template.context import Context
from django.template.loader import get_template
from django.utils import timezone
from django.utils.safestring import SafeString

from engine.json_values import indented

register = template.Library()
_UNITS = {"s": "s", "ms": "ms", "mb": "MB", "kb": "KB", "percent": "%"}


@cache
def _drawing(name: str, classes: str) -> SafeString:
    found: Template = get_template(f"icons/{name}.svg").template  # type: ignore[attr-defined]
    return found.render(Context({"classes": classes}))


@register.simple_tag
def icon(name: str, classes: str = "") -> SafeString:
    """One of the drawings of templates/icons, hidden from screen readers: the text beside it speaks."""
    return _drawing(name, classes)


@register.filter
def duration(value: timedelta | float | None) -> str:
    """A length of time for people: 340 ms, 2.4 s, 3 min 12 s, 5 h 2 min. Numbers are seconds."""
    if value is None:
        return "–"
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if seconds < 1:
        return f"{max(0, seconds) * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    if seconds < 86400:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"
    return f"{int(seconds // 86400)} d {int(seconds % 86400 // 3600)} h"


@register.filter
def microseconds(value: int) -> str:
    """Microseconds for people: 84 µs, 1.2 ms, 3.4 s."""
    if value < 1000:
        return f"{value} µs"
    return f"{value / 1000:.1f} ms" if value < 1_000_000 else f"{value / 1_000_000:.1f} s"


@register.filter
def ago(value: datetime | None) -> str:
    """How long since a moment: just now, 12 s ago, 3 min ago, 5 h ago, 2 d ago."""
    if value is None:
        return "never"
    seconds = (timezone.now() - value).total_seconds()
    if seconds < 5:
        return "just now"
    for limit, size, unit in ((60, 1, "s"), (3600, 60, "min"), (86400, 3600, "h")):
        if seconds < limit:
            return f"{int(seconds // size)} {unit} ago"
    return f"{int(seconds // 86400)} d ago"


@register.filter
def iso(value: datetime | None) -> str:
    """RFC 3339 in UTC, for `datetime` attributes."""
    return value.astimezone(timezone.get_default_timezone()).isoformat().replace("+00:00", "Z") if value else ""


@register.filter
def moment(value: datetime | None) -> str:
    """A moment in UTC for people, to the second."""
    return f"{value:%Y-%m-%d %H:%M:%S} UTC" if value else "–"


@register.filter
def short(value: object) -> str:
    """The last eight characters of an id: the random end of a UUIDv7 tells rows apart, its start is a time."""
    return str(value)[-8:]


@register.filter
def digest(value: str | None) -> str:
    """The first twelve characters of a digest."""
    return value[:12] if value else "–"


@register.filter
def size(value: int | None) -> str:
    """Bytes for people: 812 B, 3.4 KB, 2.1 MB."""
    if value is None:
        return "–"
    if value < 1000:
        return f"{value} B"
    amount = float(value)
    for unit in ("KB", "MB", "GB"):
        amount /= 1000
        if amount < 1000:
            return f"{amount:.1f} {unit}"
    return f"{amount:.1f} TB"


@register.filter
def words(value: str) -> str:
    """`needs_attention` as `needs attention`."""
    return str(value).replace("_", " ")


@register.filter
def deed(value: str) -> str:
    """An audited action in words: `workflow.imported` as `Workflow imported`."""
    text = words(value).replace(".", " ")
    return text[:1].upper() + text[1:]


@register.filter(is_safe=True)
def sentence(value: str) -> str:
    """A heading that a library writes In Title Case, as ours are written."""
    text = " ".join(str(value).split())
    return text[:1].upper() + text[1:].lower()


@register.filter
def bare(bound: BoundField) -> SafeString:
    """A field without the placeholder that only says its label once more."""
    return bound.as_widget(attrs={"placeholder": ""})


@register.filter
def measured(value: str) -> str:
    """What a key measures, without its unit: `timeout_s` as `timeout`."""
    name, _, unit_of = str(value).rpartition("_")
    return words(name if unit_of in _UNITS else value)


@register.filter
def unit(value: str) -> str:
    """The unit a key ends with, after a blank: `timeout_s` as ` s`; nothing when it has none."""
    return f" {_UNITS[end]}" if (end := str(value).rpartition("_")[2]) in _UNITS else ""


@register.filter
def pretty(value: Any) -> str:
    """Any JSON value, indented, keys in their own order."""
    return value if isinstance(value, str) else indented(value)


@register.filter
def item(mapping: dict[str, Any], key: str) -> Any:
    """The value of a key that only the template knows."""
    return mapping.get(key, "")
