"""What every page of a signed-in person has in common."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.views.decorators.cache import never_cache
from django_htmx.http import HttpResponseClientRedirect

from apps.accounts.access import Permission, allowed, role_of
from apps.accounts.models import Team, User


class MemberRequest(HttpRequest):
    """A request whose user has signed in."""

    user: User
    htmx: object


P = ParamSpec("P")


def page(
    permission: Permission,
) -> Callable[
    [Callable[Concatenate[MemberRequest, P], HttpResponseBase]], Callable[Concatenate[HttpRequest, P], HttpResponseBase]
]:
    """Declares a page's access: signed in, kept in no cache, and this permission, which the view's access call checks.

    `view.permission` is what a test reads of every address of the product.
    """

    def declared(
        view: Callable[Concatenate[MemberRequest, P], HttpResponseBase],
    ) -> Callable[Concatenate[HttpRequest, P], HttpResponseBase]:
        guarded = wraps(view)(never_cache(login_required(view)))
        guarded.permission = permission  # type: ignore[attr-defined]
        return guarded  # type: ignore[return-value]

    return declared


def go(request: HttpRequest, address: str) -> HttpResponse:
    """After an act: on to `address`, for a browser's form and for htmx alike."""
    if getattr(request, "htmx", False):
        return HttpResponseClientRedirect(address)
    return redirect(address)


def may(user: User, team: Team) -> str:
    """What the user may do in the team, as the words of a page's `data-may`: pages offer nothing else."""
    role = role_of(user, team)
    return " ".join(permission.value for permission in Permission if allowed(role, permission))
