"""Typed readers for the settings that come from the environment."""

from __future__ import annotations

import os
from dataclasses import fields, replace
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

from engine.sandbox.limits import Limits


def text(name: str, default: str = "") -> str:
    return os.environ.get(name, "").strip() or default


def number(name: str, default: int, *, least: int = 1) -> int:
    raw = text(name)
    if not raw:
        return default
    try:
        given = int(raw)
    except ValueError:
        raise ImproperlyConfigured(f"{name} must be a whole number, not {raw!r}. Nothing was started.") from None
    if given < least:
        raise ImproperlyConfigured(f"{name} must be {least} or more, not {given}. Nothing was started.")
    return given


def flag(name: str) -> bool:
    raw = text(name).lower()
    if raw in {"", "0", "false", "no"}:
        return False
    if raw in {"1", "true", "yes"}:
        return True
    raise ImproperlyConfigured(f"{name} must be 1 or 0, not {raw!r}. Nothing was started.")


def names(name: str) -> list[str]:
    return [part.strip() for part in text(name).split(",") if part.strip()]


def limits(name: str) -> Limits:
    """The most that a step may ask for: `timeout_s=3600, memory_mb=4096`; what is not named stays at its default."""
    known = [field.name for field in fields(Limits) if field.name != "log_overflow"]
    given: dict[str, int] = {}
    for part in names(name):
        key, _, value = (side.strip() for side in part.partition("="))
        if key not in known or not value.isdecimal() or int(value) < 1:
            raise ImproperlyConfigured(
                f"{name} has {part!r}, where it wants a limit and a number above 0: timeout_s=3600,memory_mb=4096."
                f" The limits are {', '.join(known)}. Nothing was started."
            )
        given[key] = int(value)
    if "timeout_s" in given:
        given.setdefault("cpu_s", given["timeout_s"])
    return replace(Limits(), **given)  # type: ignore[arg-type]


def postgresql(url: str) -> dict[str, object]:
    """Django's database settings for a postgresql:// address."""
    parts = urlsplit(url)
    if parts.scheme not in {"postgres", "postgresql"}:
        raise ImproperlyConfigured(
            f"DATABASE_URL must start with postgresql://, not {parts.scheme}://. Nothing was started. Leave it out to"
            " use SQLite."
        )
    try:
        port = parts.port
    except ValueError:
        raise ImproperlyConfigured("The port in DATABASE_URL is no number up to 65535. Nothing was started.") from None
    if not parts.path.strip("/"):
        raise ImproperlyConfigured(
            "DATABASE_URL names no database: postgresql://user:password@host:port/name. Nothing was started."
        )
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.lstrip("/"),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": str(port or ""),
        "OPTIONS": dict(parse_qsl(parts.query)),
    }


def redis(url: str) -> str:
    """The address, when it is one of Redis; empty stays empty."""
    if url and urlsplit(url).scheme not in {"redis", "rediss", "unix"}:
        raise ImproperlyConfigured("REDIS_URL must start with redis:// or rediss://. Nothing was started.")
    return url


def mail(url: str) -> dict[str, object]:
    """Django's mail settings for `smtp://user:password@host:port` (STARTTLS) or `smtps://…` (TLS from the start)."""
    parts = urlsplit(url)
    if parts.scheme not in {"smtp", "smtps"} or not parts.hostname:
        raise ImproperlyConfigured("PULSE_MAIL_URL must be smtp://… or smtps://…, with a host. Nothing was started.")
    local = parts.hostname in {"127.0.0.1", "localhost", "::1"}
    return {
        "EMAIL_HOST": parts.hostname,
        "EMAIL_PORT": parts.port or (465 if parts.scheme == "smtps" else 587),
        "EMAIL_HOST_USER": unquote(parts.username or ""),
        "EMAIL_HOST_PASSWORD": unquote(parts.password or ""),
        "EMAIL_USE_SSL": parts.scheme == "smtps",
        "EMAIL_USE_TLS": parts.scheme == "smtp" and not local,
        "EMAIL_TIMEOUT": 20,
    }
