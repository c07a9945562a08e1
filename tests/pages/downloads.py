"""Bodies that are sent asynchronously, taken as ASGI takes them."""

from __future__ import annotations

from typing import Any

from asgiref.sync import async_to_sync


def sent(response: Any) -> bytes:
    async def collected() -> bytes:
        assert response.is_async, "a synchronous body would be collected whole before its first byte is sent"
        return b"".join([piece async for piece in response])

    return async_to_sync(collected)()
