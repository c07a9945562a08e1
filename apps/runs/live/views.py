"""The log reader's own requests: a range of lines, a search, the whole of one line, the download."""

from __future__ import annotations

import uuid
from typing import TypeVar

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, StreamingHttpResponse
from django.http.response import Http404
from django.views.decorators.http import require_GET

from apps.runs import access
from apps.runs.live import attempts, frames
from apps.runs.live.topics import LogTopic, TopicRefused
from engine.logs import LogReader

Response = TypeVar("Response", bound=HttpResponseBase)
MOST_LINES = 2_000
MOST_MATCHES = 10_000
NEEDLE = 200  # characters
LONGEST_LINE = 64 * 1024 * 1024  # bytes: the most that a log may hold without its operator's leave


@login_required
@require_GET
def lines(request: HttpRequest, run_id: uuid.UUID, step_id: str, number: int) -> JsonResponse:
    """`{first, lines, count, gap}` (frames.log_json): `count` rows from `first` on, counted from 0."""
    reader = _reader(request, run_id, step_id, number)
    wanted = min(_whole(request, "count", 500), MOST_LINES)
    body = frames.log_json(reader, _whole(request, "first", 0), wanted, reader.count())
    return JsonResponse(body, json_dumps_params={"ensure_ascii": False, "separators": (",", ":")})


@login_required
@require_GET
def search(request: HttpRequest, run_id: uuid.UUID, step_id: str, number: int) -> JsonResponse:
    """`{matches, lines, complete}`: where `q` is, in either case; `complete` is false when counting ended at 10,000."""
    found = _reader(request, run_id, step_id, number).search(request.GET.get("q", "")[:NEEDLE], most=MOST_MATCHES)
    return JsonResponse({"matches": found.matches, "lines": found.rows, "complete": found.complete})


@login_required
@require_GET
def line(request: HttpRequest, run_id: uuid.UUID, step_id: str, number: int) -> HttpResponse:
    """One whole line as plain text, for those too long to be shown."""
    batch = _reader(request, run_id, step_id, number).lines(_whole(request, "number", 0), 1, longest=LONGEST_LINE)
    if not batch:
        raise Http404
    return _as_text(HttpResponse(batch[0].data), f"{step_id}-{number}-line.txt")


@login_required
@require_GET
def download(request: HttpRequest, run_id: uuid.UUID, step_id: str, number: int) -> HttpResponseBase:
    """The log's bytes as they are kept: masked, both streams in order of arrival, a cut as one line."""
    reader = _reader(request, run_id, step_id, number)
    return _as_text(StreamingHttpResponse(reader.chunks()), f"{step_id}-{number}.log")


def _reader(request: HttpRequest, run_id: uuid.UUID, step_id: str, number: int) -> LogReader:
    access.run_for(request.user, run_id)
    try:
        return LogReader(attempts.places(LogTopic(run_id, step_id, number)))
    except TopicRefused:
        raise Http404 from None


def _whole(request: HttpRequest, name: str, default: int) -> int:
    text = request.GET.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 12 else default


def _as_text(response: Response, name: str) -> Response:
    response["Content-Type"] = "text/plain; charset=utf-8"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["X-Content-Type-Options"] = "nosniff"
    return response
