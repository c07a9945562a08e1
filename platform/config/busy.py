"""The database is held by another writer for longer than a request waits: not a fault, and worth trying again."""

from __future__ import annotations

from django.db import OperationalError
from django.http import HttpRequest, HttpResponse
from django.template import loader

from apps.accounts.api_base import problem

RETRY_AFTER_S = 5
BUSY_TEXT = "The database is busy. Nothing was done. Try again in a few seconds."


def is_busy(wrong: BaseException) -> bool:
    """SQLite's one writer is someone else, and was so for all of the time-out."""
    return isinstance(wrong, OperationalError) and "locked" in str(wrong)


def busy(request: HttpRequest) -> HttpResponse:
    """503 with `Retry-After`, as a page or in the API's shape."""
    if request.path.startswith("/api/"):
        response = problem(request, 503, "busy", BUSY_TEXT)
    else:
        response = HttpResponse(loader.render_to_string("503.html", {"text": BUSY_TEXT}), status=503)
    response["Retry-After"] = str(RETRY_AFTER_S)
    return response
