"""Typed readers for the settings that come from the environment."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured


def text(name: str, default: str = "") -> str:
    return os.environ.get(name, "").strip() or default


def number(name: str, default: int) -> int:
    raw = text(name)
    if not raw:
        return default
    try:
        return int(raw)
    except ValueError:
        raise ImproperlyConfigured(
            f"{name} must be a whole number, not {raw!r}. Nothing was started."
        ) from None


def flag(name: str) -> bool:
    raw = text(name).lower()
    if raw in {"", "0", "false", "no"}:
        return False
    if raw in {"1", "true", "yes"}:
        return True
    raise ImproperlyConfigured(f"{name} must be 1 or 0, not {raw!r}. Nothing was started.")


def names(name: str) -> list[str]:
    return [part.strip() for part in text(name).split(",") if part.strip()]


def postgresql(url: str) -> dict[str, object]:
    """Django's database settings for a postgresql:// address."""
    parts = urlsplit(url)
    if parts.scheme not in {"postgres", "postgresql"}:
        raise ImproperlyConfigured(
            f"DATABASE_URL must start with postgresql://, not {parts.scheme}://. Leave it out to use SQLite."
        )
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.lstrip("/"),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
    }
