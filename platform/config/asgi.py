"""The ASGI application: the front, then hooks by their own door, pages and API by Django, live pages by Channels."""

# mypy: disable-error-code="no-untyped-call"
# (Channels carries no types.)
from __future__ import annotations

import os
from typing import Any

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import OriginValidator
from django.core.asgi import get_asgi_application

NOWHERE = 4404
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
_pages = get_asgi_application()

from django.conf import settings  # noqa: E402
from django.urls import path, re_path  # noqa: E402

from apps.runs.live.consumer import LiveConsumer  # noqa: E402
from apps.webhooks import door  # noqa: E402
from config.front import Front  # noqa: E402


async def _http(scope: Any, receive: Any, send: Any) -> None:
    await (door.application if door.serves(scope) else _pages)(scope, receive, send)


async def _nowhere(_scope: Any, receive: Any, send: Any) -> None:
    """A socket at an address where nothing is: accepted first, since a browser cannot tell one refusal from another."""
    await receive()
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.close", "code": NOWHERE})


_sockets = URLRouter([path("ws/live", LiveConsumer.as_asgi()), re_path("", _nowhere)])  # type: ignore[arg-type]
application = Front(
    ProtocolTypeRouter(
        {
            "http": _http,
            # Whole origins: a host of ALLOWED_HOSTS on another port is another site. A missing origin is refused.
            "websocket": OriginValidator(AuthMiddlewareStack(_sockets), settings.PULSE_ORIGINS),
        }
    ),
    proxies=settings.PULSE_PROXIES,
)
