"""Django's settings, read from the environment. Every name a person may set is in docs/reference/settings.md."""

from __future__ import annotations

import warnings
from pathlib import Path
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from config import env
from engine import keyfiles

BASE_DIR = Path(__file__).resolve().parents[2]

# --- Where things are -------------------------------------------------------------------------------------
PULSE_DATA = Path(env.text("PULSE_DATA", str(BASE_DIR / "var"))).absolute()
PULSE_PORT = env.number("PULSE_PORT", 8000)
PULSE_HOST = env.text("PULSE_HOST", "127.0.0.1")
PULSE_BASE_URL = env.text("PULSE_BASE_URL", f"http://127.0.0.1:{PULSE_PORT}").rstrip("/")
PULSE_RUNTIME = env.text("PULSE_RUNTIME")
PULSE_RUN_SLOTS = env.number("PULSE_RUN_SLOTS", 0)
PULSE_DRAIN_S = env.number("PULSE_DRAIN_S", 20)
PULSE_RUNNER_UID = env.number("PULSE_RUNNER_UID", 0)
PULSE_PYTHON = env.text("PULSE_PYTHON")
PULSE_BWRAP = env.text("PULSE_BWRAP")
PULSE_HOOK_BODY_MAX = env.number("PULSE_HOOK_BODY_MAX", 1024 * 1024)

_base = urlsplit(PULSE_BASE_URL)
HTTPS = _base.scheme == "https"
_loopback = _base.hostname in {"127.0.0.1", "localhost", "::1"}
PULSE_INSECURE_HTTP = env.flag("PULSE_INSECURE_HTTP")
if not HTTPS and not _loopback and not PULSE_INSECURE_HTTP:
    raise ImproperlyConfigured(
        f"PULSE_BASE_URL is {PULSE_BASE_URL}: http away from this machine sends passwords in the clear. Nothing was"
        " started. Use https behind a proxy, or set PULSE_INSECURE_HTTP=1 and every page will say so."
    )

# --- Keys -------------------------------------------------------------------------------------------------
SECRET_KEY = env.text("PULSE_SECRET_KEY") or keyfiles.read_or_make(PULSE_DATA / "secrets" / "django.key")
if len(SECRET_KEY) < 50:
    raise ImproperlyConfigured("PULSE_SECRET_KEY must have at least 50 characters. Nothing was started.")

DEBUG = False
ALLOWED_HOSTS = [
    *dict.fromkeys([_base.hostname or "", "127.0.0.1", "localhost", *env.names("PULSE_ALLOWED_HOSTS")])
]
CSRF_TRUSTED_ORIGINS = [PULSE_BASE_URL]

# --- The house --------------------------------------------------------------------------------------------
INSTALLED_APPS = [
    "daphne",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "channels",
    "django_htmx",
    "django_q",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "apps.accounts",
    "apps.workflows",
    "apps.tools",
    "apps.runs",
    "apps.webhooks",
    "apps.dashboard",
    "config",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]
ROOT_URLCONF = "config.urls"
ASGI_APPLICATION = "config.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

# --- Databases: SQLite to try out and for one machine, PostgreSQL when grown -------------------------------
DATABASE_URL = env.text("DATABASE_URL")


if DATABASE_URL:
    DATABASES = {
        "default": {**env.postgresql(DATABASE_URL), "CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": True}
    }
else:
    # synchronous=NORMAL may lose the last moment to a power cut, never to a crash; apps.durable lifts it where it must not.
    DATABASES = {
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": PULSE_DATA / "pulse.sqlite3",
            "CONN_MAX_AGE": None,
            "OPTIONS": {
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
                "init_command": (
                    "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON;"
                    " PRAGMA temp_store=MEMORY; PRAGMA cache_size=-16000;"
                ),
            },
        }
    }
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
AUTH_USER_MODEL = "accounts.User"

# --- Queue and live ---------------------------------------------------------------------------------------
REDIS_URL = env.text("REDIS_URL")
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.core.RedisChannelLayer",
        "CONFIG": {"hosts": [{"address": REDIS_URL, "socket_timeout": None}]},
    }
    if REDIS_URL
    else {"BACKEND": "channels.layers.InMemoryChannelLayer"}
}
# The queue has no time-out on purpose: our lease decides (docs/decisions/0003-queue.md).
warnings.filterwarnings("ignore", message="Retry and timeout are misconfigured")
Q_CLUSTER = {
    "name": "pulse",
    "workers": PULSE_RUN_SLOTS or 4,
    "timeout": None,
    "retry": 7 * 24 * 3600,
    "max_attempts": 1,
    "queue_limit": PULSE_RUN_SLOTS or 4,
    "poll": 0.02,
    "save_limit": -1,
    "ack_failures": True,
    "catch_up": False,
    "scheduler": False,
    "daemonize_workers": False,
    "orm": "default",
}

# --- Sign-in and pages ------------------------------------------------------------------------------------
AUTHENTICATION_BACKENDS = [
    "django.contrib.auth.backends.ModelBackend",
    "allauth.account.auth_backends.AuthenticationBackend",
]
PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.Argon2PasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "/"
ACCOUNT_EMAIL_VERIFICATION = "none"

SESSION_COOKIE_SECURE = HTTPS
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_AGE = 12 * 3600
CSRF_COOKIE_SECURE = HTTPS
CSRF_COOKIE_HTTPONLY = True
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CONTENT_TYPE_NOSNIFF = True
if HTTPS:
    SECURE_SSL_REDIRECT = True
    SECURE_HSTS_SECONDS = 365 * 24 * 3600
    SECURE_HSTS_INCLUDE_SUBDOMAINS = True
    SECURE_HSTS_PRELOAD = True
    SESSION_COOKIE_NAME = "__Host-sessionid"
    CSRF_COOKIE_NAME = "__Host-csrftoken"

_socket = ("wss://" if HTTPS else "ws://") + _base.netloc
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "font-src": ["'self'"],
        "connect-src": ["'self'", _socket],
        "form-action": ["'self'"],
        "base-uri": ["'none'"],
        "frame-ancestors": ["'none'"],
        "object-src": ["'none'"],
    }
}

STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATIC_ROOT = BASE_DIR / "static-root"
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}

LANGUAGE_CODE = "en"
USE_I18N = False
USE_TZ = True
TIME_ZONE = "UTC"

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "root": {"handlers": ["stderr"], "level": "INFO"},
}
