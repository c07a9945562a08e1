"""The log reader's own requests: a range of lines, a search, the whole of one line, the download."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TypeVar

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, StreamingHttpResponse
from django.http.response import Http404
from django.views.decorators.http import require_GET

from apps.runs import access
from apps.runs.live import attempts, frames, whole
from apps.runs.live.topics import LogTopic, TopicRefused
from engine.logs import LogReader

Response = TypeVar("Response", bound=HttpResponseBase)
MOST_LINES = 2_000
MOST_MATCHES = 10_000
NEEDLE = 200  # characters
LONGEST_LINE = 64 * 1024 * 1024  # bytes: the most that a log may hold without its operator's leave
EXPIRED = "The files of this run were removed by retention."


@login_required
@require_GET
def lines(request: HttpRequest, run_id: uuid.UUID, step_id: str, number: int) -> HttpResponse:
    """`{first, lines, count, gap}` (frames.log_json): `count` rows from `first` on, counted from 0."""
    wanted = min(_whole(request, "count", 500), MOST_LINES)
    with _reader(request, run_id, step_id, number) as reader:
        if reader is None:
            return _expired()
        body = frames.log_json(reader, _whole(request, "first", 0), wanted, reader.count())
    return JsonResponse(body, json_dumps_params={"ensure_ascii": False, "separators": (",", ":")})


@login_required
@require_GET
def search(request: HttpRequest, run_id: uuid.UUID, step_id: str, number: int) -> HttpResponse:
    """`{matches, lines, complete}`: where `q` is, in either case; `complete` is false after 10,000 or 10 s."""
    with _reader(request, run_id, step_id, number) as reader:
        if reader is None:
            return _expired()
        found = reader.search(request.GET.get("q", "")[:NEEDLE], most=MOST_MATCHES)
    return JsonResponse({"matches": found.matches, "lines": found.rows, "complete": found.complete})


@login_required
@require_GET
def line(request: HttpRequest, run_id: uuid.UUID, step_id: str, number: int) -> HttpResponse:
    """One whole line as plain text, for those too long to be shown."""
    with _reader(request, run_id, step_id, number) as reader:
        if reader is None:
            return _expired()
        data = whole.line(reader, _whole(request, "number", 0), LONGEST_LINE)
    if data is None:
        raise Http404
    return _as_text(HttpResponse(data), f"{step_id}-{number}-line.txt")


@login_required
@require_GET
def download(request: HttpRequest, run_id: uuid.UUID, step_id: str, number: int) -> HttpResponseBase:
    """The log's bytes as they are kept: masked, both streams in order of arrival, a cut as one line."""
    with _reader(request, run_id, step_id, number) as reader:
        if reader is None:
            return _expired()
    return _as_text(StreamingHttpResponse(_pieces(LogTopic(run_id, step_id, number))), f"{step_id}-{number}.log")


async def _pieces(topic: LogTopic) -> AsyncIterator[bytes]:
    # Asynchronous, for Django collects the whole of any other iterator before the first byte goes out.
    with await asyncio.to_thread(lambda: LogReader(attempts.places(topic))) as reader:
        pieces = reader.chunks()
        while piece := await asyncio.to_thread(next, pieces, b""):
            yield piece


@contextmanager
def _reader(request: HttpRequest, run_id: uuid.UUID, step_id: str, number: int) -> Iterator[LogReader | None]:
    """The log, or None when its files are gone. Raises Http404 for a stranger, the same as for no log at all."""
    run = access.run_for(request.user, run_id)
    try:
        places = attempts.places(LogTopic(run_id, step_id, number))
    except TopicRefused:
        raise Http404 from None
    if run.artifacts_expired:
        yield None
        return
    with LogReader(places) as reader:
        yield reader


def _expired() -> JsonResponse:
    return JsonResponse({"code": "artifacts_expired", "detail": EXPIRED}, status=410)


def _whole(request: HttpRequest, name: str, default: int) -> int:
    text = request.GET.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 12 else default


def _as_text(response: Response, name: str) -> Response:
    response["Content-Type"] = "text/plain; charset=utf-8"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["X-Content-Type-Options"] = "nosniff"
    return response
