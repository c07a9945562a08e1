"""What is no fault of ours and passes: a database that another writer holds, a disk that is full. Answered 503."""

from __future__ import annotations

from django.db import DatabaseError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.template import loader

from apps import storing
from apps.accounts.api_base import problem

RETRY_AFTER_S = 5
BUSY_TEXT = "The database is busy. Nothing was done. Try again in a few seconds."
NOTHING = "Nothing was done."
NOT_WHOLE = "What was asked was not done, or not as a whole: look what is there before you ask again."
NOT_THE_SESSION = "What was asked may have been done; who is signed in could not be stored: look before you ask again."


def passing(request: HttpRequest, wrong: BaseException, done: str = "") -> HttpResponse | None:
    """503 with `Retry-After`, as a page or in the API's shape; None for a fault.

    `done` says what became of the request, when more is known than the exception tells.
    """
    if isinstance(wrong, OperationalError) and "locked" in str(wrong):  # for all of SQLite's time-out
        text = f"The database is busy. {done}" if done else BUSY_TEXT
        code, title = "busy", "Busy for a moment"
    elif why := storing.why_not(wrong):
        done = done or (NOTHING if isinstance(wrong, DatabaseError) else NOT_WHOLE)
        code, title, text = "not_stored", "Nothing can be stored", f"Nothing can be stored: {why}. {done}"
    else:
        return None
    if request.path.startswith("/api/"):
        response = problem(request, 503, code, text)
    else:
        response = HttpResponse(loader.render_to_string("503.html", {"title": title, "text": text}), status=503)
    response["Retry-After"] = str(RETRY_AFTER_S)
    return response
