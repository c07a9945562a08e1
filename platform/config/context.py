"""What every page knows of the product."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest


def product(_request: HttpRequest) -> dict[str, object]:
    """`insecure_http`: said on every page, since passwords and tokens cross the network in the clear."""
    return {
        "insecure_http": settings.PULSE_INSECURE_HTTP and not settings.HTTPS,
        "base_url": settings.PULSE_BASE_URL,
        "release": settings.PULSE_RELEASE,
        "mail_configured": bool(settings.PULSE_MAIL_URL),
    }
