"""The API at /api/v1: one object, with the routes of every app that has an `api.py`."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterable
from typing import Any, cast

from django.apps import apps
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.module_loading import module_has_submodule
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError, ValidationErrorContext
from ninja.parser import Parser

from apps.accounts.api_base import TeamBearer, TooOften, problem
from apps.accounts.errors import Field, Refused
from config.busy import passing
from engine import json_values

log = logging.getLogger(__name__)


class StrictJson(Parser):
    """Bodies are JSON as the rest of the product understands it, and hold no text that a database cannot."""

    def parse_body(self, request: HttpRequest) -> dict[str, Any]:
        try:
            value = json_values.load(request.body)
        except json_values.NotJson as wrong:
            raise _Unreadable("not_json", f"The body is not JSON: {wrong}. Nothing was done.") from None
        if json_values.holds_nul(value):
            raise _Unreadable("nul_in_text", "The body has a NUL character in a text. Nothing was done. Take it out.")
        return cast(dict[str, Any], value)


class _Unreadable(Refused):
    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail, code=code)


class Api(NinjaAPI):
    """Ninja's, which says of a field that nobody takes which ones there are."""

    def validation_error_from_error_contexts(
        self, error_contexts: list[ValidationErrorContext[Any]]
    ) -> ValidationError:
        found = super().validation_error_from_error_contexts(error_contexts)
        for error in found.errors:
            if error["type"] == "extra_forbidden":
                names = {name for one in error_contexts for name in _accepted(one.model, error["loc"][1:-1])}
                error["msg"] = f"is no field here; there are: {', '.join(sorted(names)) or 'none'}"
        return found


def _accepted(model: Any, location: tuple[Any, ...]) -> Iterable[str]:
    """The names that the model at this place takes, as far as it is one."""
    for part in location:
        field = getattr(model, "model_fields", {}).get(part)
        model = field.annotation if field else None
    return getattr(model, "model_fields", {})


def make_api() -> NinjaAPI:
    api = Api(
        parser=StrictJson(),
        title="Pulse",
        version="1",
        description="Bearer tokens of one team. Errors have one shape, lists one kind of cursor.",
        auth=TeamBearer(),
        urls_namespace="api",
    )
    _answer_refusals(api)
    _answer_faults(api)
    _add_routers(api)
    return api


def _add_routers(api: NinjaAPI) -> None:
    for config in apps.get_app_configs():
        if config.name.startswith("apps.") and config.module and module_has_submodule(config.module, "api"):
            module = importlib.import_module(f"{config.name}.api")
            api.add_router("", module.router, tags=[config.label])


def _answer_refusals(api: NinjaAPI) -> None:
    @api.exception_handler(Refused)
    def refused(request: HttpRequest, wrong: Refused) -> HttpResponse:
        answer = problem(request, wrong.status, wrong.code, wrong.detail, wrong.fields)
        if isinstance(wrong, TooOften):
            answer["Retry-After"] = str(wrong.wait_s)
        elif wrong.status == 503:
            answer["Retry-After"] = "5"
        return answer

    @api.exception_handler(ValidationError)
    def not_valid(request: HttpRequest, wrong: ValidationError) -> HttpResponse:
        fields = [Field(_path(error["loc"]), str(error["msg"])) for error in wrong.errors]
        return problem(request, 422, "not_valid", "The request does not hold; fields says where.", fields)

    @api.exception_handler(AuthenticationError)
    def no_token(request: HttpRequest, _wrong: AuthenticationError) -> HttpResponse:
        return problem(request, 401, "token_required", "A bearer token that is live is needed. Nothing was done.")

    @api.exception_handler(PermissionDenied)
    def forbidden(request: HttpRequest, wrong: PermissionDenied) -> HttpResponse:
        return problem(request, 403, "forbidden", str(wrong) or "This is not allowed. Nothing was done.")

    @api.exception_handler(Http404)
    def not_found(request: HttpRequest, wrong: Http404) -> HttpResponse:
        return problem(request, 404, "not_found", str(wrong) or "There is no such thing.")


def _answer_faults(api: NinjaAPI) -> None:
    @api.exception_handler(HttpError)
    def http_error(request: HttpRequest, wrong: HttpError) -> HttpResponse:
        if isinstance(wrong.__cause__, Refused):  # of the parser: ninja wraps whatever it raises
            return problem(request, wrong.__cause__.status, wrong.__cause__.code, wrong.__cause__.detail)
        return problem(request, wrong.status_code, "refused", str(wrong))

    @api.exception_handler(Exception)
    def fault(request: HttpRequest, wrong: Exception) -> HttpResponse:
        if (told := passing(request, wrong)) is not None:
            return told
        log.error("The API failed at %s %r", request.method, request.path, exc_info=wrong)
        return problem(request, 500, "internal", "A fault of ours; it is in the log under this request id.")


def _path(location: tuple[str | int, ...]) -> str:
    """`("body", "payload", "steps", 0)` as `steps[0]`: the JSON path within what was sent."""
    text = ""
    for part in location[2:] if len(location) > 2 else location[-1:]:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.lstrip(".")


api = make_api()
