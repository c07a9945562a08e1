"""What a report of one of our own faults may say (SANDBOX C): the place and the type, no values."""

from __future__ import annotations

import re
from collections.abc import ItemsView
from types import TracebackType
from typing import Any

from django.http import HttpRequest
from django.views.debug import SafeExceptionReporterFilter

HIDDEN = "API|AUTH|TOKEN|KEY|SECRET|PASS|SIGNATURE|CREDENTIAL|COOKIE|SESSION|DATABASE|REDIS|VAR_|CSRF|MAIL"


class ReportFilter(SafeExceptionReporterFilter):
    """Names of settings and headers that may carry a secret are starred; local variables are never shown."""

    hidden_settings = re.compile(HIDDEN, re.IGNORECASE)

    def is_active(self, request: HttpRequest | None) -> bool:
        return True

    def get_post_parameters(self, request: HttpRequest | None) -> dict[str, Any]:
        return dict.fromkeys(request.POST, self.cleansed_substitute) if request is not None else {}

    def get_traceback_frame_variables(
        self, request: HttpRequest | None, tb_frame: TracebackType
    ) -> ItemsView[str, Any]:
        return dict[str, Any]().items()
