"""Takes away from Django's admin what other packages put there and nobody may use.

A schedule of django-q names any function that the worker then calls; an authenticator of allauth shows its secret; the
groups and permissions of Django mean nothing here, where roles belong to teams.
"""

from __future__ import annotations

from allauth.account.decorators import secure_admin_login
from django.apps import apps
from django.contrib import admin

UNUSED = ("django_q", "mfa", "account", "auth")

for _label in UNUSED:
    for _model in apps.get_app_config(_label).get_models():
        if admin.site.is_registered(_model):
            admin.site.unregister(_model)

admin.site.login = secure_admin_login(admin.site.login)  # type: ignore[method-assign, no-untyped-call]
admin.site.site_header = "Pulse administration"
admin.site.site_title = "Pulse"
admin.site.index_title = "What there is"
