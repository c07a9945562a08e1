"""A seeded team to look at, and a browser of each of its people (Django's test client)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from apps.accounts.models import User
from tests.browser.demo import Demo, seed


@pytest.fixture
def demo(db: None) -> Demo:
    return seed(past=3)


@pytest.fixture
def as_user() -> Callable[[User], Client]:
    def sign_in(user: User) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return sign_in
