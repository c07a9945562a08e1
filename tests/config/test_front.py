"""The outermost layer: how large a body may be, and whom to believe about the client."""

from __future__ import annotations

import pytest

from config import caps
from config.front import Front, believed

HOOK = "/hooks/some-key"


class Application:
    """Reads the body to its end, as Django does, and answers 200 with its length."""

    def __init__(self) -> None:
        self.read = 0
        self.gone = False

    async def __call__(self, scope, receive, send) -> None:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.gone = True
                return
            self.read += len(message.get("body", b""))
            if not message.get("more_body"):
                break
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


async def post(path, chunks, *, length=None):
    """The answer's status and how many bytes the application was given."""
    application, sent, left = Application(), [], list(chunks)
    headers = [] if length is None else [(b"content-length", str(length).encode())]

    async def receive():
        body = left.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(left)}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "path": path, "headers": headers, "client": ["192.0.2.1", 5], "scheme": "http"}
    await Front(application)(scope, receive, send)
    return sent[0]["status"], application.read, len(left)


@pytest.mark.parametrize(
    ("path", "cap"),
    [
        ("/hooks/abc", "PULSE_HOOK_BODY_MAX"),
        ("/api/v1/workflows/import", "PULSE_IMPORT_BODY_MAX"),
        ("/t/team/workflows/import/", "PULSE_IMPORT_BODY_MAX"),
        ("/api/v1/tools/query_workflow_db", "PULSE_TOOL_BODY_MAX"),
        ("/mcp", "PULSE_TOOL_BODY_MAX"),
        ("/api/v1/workflows/x/runs", "PULSE_PAGE_BODY_MAX"),
        ("/accounts/login/", "PULSE_PAGE_BODY_MAX"),
        ("/t/team/workflows/important/", "PULSE_PAGE_BODY_MAX"),
        ("/api/v1/workflows/imports", "PULSE_PAGE_BODY_MAX"),
    ],
)
def test_each_route_has_its_cap(settings, path, cap):
    assert caps.cap_of(path) == getattr(settings, cap)


def test_djangos_own_limit_undercuts_none_of_them(settings):
    largest = max(caps.cap_of(path) for path in ("/hooks/a", "/api/v1/workflows/import", "/mcp", "/"))
    assert largest <= settings.DATA_UPLOAD_MAX_MEMORY_SIZE


async def test_a_body_of_exactly_the_cap_passes(settings):
    settings.PULSE_HOOK_BODY_MAX = 1000
    assert await post(HOOK, [b"x" * 600, b"x" * 400], length=1000) == (200, 1000, 0)


async def test_a_declared_length_beyond_it_is_refused_before_a_byte_is_read(settings):
    settings.PULSE_HOOK_BODY_MAX = 1000
    assert await post(HOOK, [b"x" * 1001], length=1001) == (413, 0, 1)


async def test_an_undeclared_body_is_refused_by_count(settings):
    settings.PULSE_HOOK_BODY_MAX = 1000
    status, given, unread = await post(HOOK, [b"x" * 400] * 10)
    assert (status, given, unread) == (413, 800, 7)


async def test_a_length_that_lies_does_not_help(settings):
    settings.PULSE_HOOK_BODY_MAX = 1000
    status, given, _ = await post(HOOK, [b"x" * 900] * 5, length=10)
    assert (status, given) == (413, 900)


@pytest.mark.parametrize("length", ["-1", "1e3", "10, 99999999999", "9" * 30, "²"])
async def test_a_length_that_is_no_number_of_bytes_is_refused(settings, length):
    settings.PULSE_HOOK_BODY_MAX = 1000
    headers = [(b"content-length", length.encode("utf-8"))]
    sent = []

    async def send(message):
        sent.append(message)

    await Front(Application())({"type": "http", "path": HOOK, "headers": headers, "client": None}, None, send)
    assert sent[0]["status"] == 413


def scope(client="127.0.0.1", kind="http", **headers):
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": kind, "client": [client, 1], "scheme": "http", "headers": pairs, "path": "/"}


def test_a_named_proxy_is_believed_about_client_and_scheme():
    seen = believed(scope(x_forwarded_for="203.0.113.5", x_forwarded_proto="https"), {"127.0.0.1"})
    assert (seen["client"][0], seen["scheme"], seen["headers"]) == ("203.0.113.5", "https", [])


def test_a_proxy_on_a_unix_socket_can_be_named():
    seen = believed({**scope(x_forwarded_for="203.0.113.5"), "client": None}, {"unix"})
    assert seen["client"][0] == "203.0.113.5"


def test_only_the_last_hop_before_our_proxies_is_believed():
    seen = believed(scope(x_forwarded_for="6.6.6.6, 203.0.113.5, 10.0.0.2"), {"127.0.0.1", "10.0.0.2"})
    assert seen["client"][0] == "203.0.113.5"


def test_nobody_else_is_believed_and_the_claims_are_dropped():
    seen = believed(scope("198.51.100.1", x_forwarded_for="127.0.0.1", x_forwarded_proto="https"), {"127.0.0.1"})
    assert (seen["client"][0], seen["scheme"], seen["headers"]) == ("198.51.100.1", "http", [])


def test_a_socket_behind_tls_is_a_secure_one():
    assert believed(scope(kind="websocket", x_forwarded_proto="https"), {"127.0.0.1"})["scheme"] == "wss"
