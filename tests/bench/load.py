"""A sender of deliveries that costs little itself: kept-alive connections, requests made beforehand."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field

CONNECTIONS = 16


@dataclass
class Outcome:
    """What a load came to: seconds it took, answers by status, and the latency of each in milliseconds."""

    seconds: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter)
    latencies_ms: list[float] = field(default_factory=list)

    @property
    def a_second(self) -> float:
        return sum(self.statuses.values()) / self.seconds


def post_many(port: int, path: str, body: bytes, signature: str, *, times: int) -> Outcome:
    """So many deliveries over 16 connections, each with an id of its own."""
    return asyncio.run(_post_many(port, path, body, signature, times))


async def _post_many(port: int, path: str, body: bytes, signature: str, times: int) -> Outcome:
    outcome = Outcome()
    each = times // CONNECTIONS
    made = [[_request(path, body, signature) for _ in range(each)] for _ in range(CONNECTIONS)]
    began = time.perf_counter()
    await asyncio.gather(*(_post(port, requests, outcome) for requests in made))
    outcome.seconds = time.perf_counter() - began
    return outcome


def _request(path: str, body: bytes, signature: str) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nX-GitHub-Event: pull_request\r\n"
        f"X-GitHub-Delivery: {uuid.uuid4()}\r\nX-Hub-Signature-256: {signature}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _post(port: int, requests: list[bytes], outcome: Outcome) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for request in requests:
        began = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        await reader.readexactly(length)
        outcome.latencies_ms.append((time.perf_counter() - began) * 1000)
        outcome.statuses[int(head[9:12])] += 1
    writer.close()
