"""How large a body each route takes. Beyond it the answer is 413, before anything is stored (SANDBOX C)."""

from __future__ import annotations

import logging
import re

from django.conf import settings

from engine.ids import uuid7

log = logging.getLogger(__name__)

_IMPORT_PAGE = re.compile(r"/t/[^/]+/workflows/import/?\Z")


def cap_of(path: str) -> int:
    """The most bytes that a request to this path may carry."""
    if path.startswith("/hooks/"):
        return int(settings.PULSE_HOOK_BODY_MAX)
    if path.rstrip("/") == "/api/v1/workflows/import" or _IMPORT_PAGE.match(path):
        return int(settings.PULSE_IMPORT_BODY_MAX)
    if path.startswith("/api/v1/tools/") or path.rstrip("/") == "/mcp":
        return int(settings.PULSE_TOOL_BODY_MAX)
    return int(settings.PULSE_PAGE_BODY_MAX)


def refusal(path: str) -> tuple[bytes, str]:
    """The body of the 413, in the API's error shape, and its request id."""
    request_id = str(uuid7())
    body = (
        '{"type": "urn:pulse:too_large", "title": "Too large", "status": 413, "code": "too_large", "detail":'
        f' "The body is larger than the {cap_of(path)} bytes that this address takes. Nothing was stored.",'
        f' "fields": [], "request_id": "{request_id}"}}'
    )
    log.info("A body for %r was larger than its %d bytes: 413, request id %s", path, cap_of(path), request_id)
    return body.encode(), request_id
