"""Django's settings, read from the environment. Every name a person may set is in docs/reference/settings.md."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from config import before, env, release
from engine import keyfiles

BASE_DIR = Path(__file__).resolve().parents[2]

# --- Where things are -------------------------------------------------------------------------------------
PULSE_DATA = before.data_folder(BASE_DIR)
# Read by SQLite when it is first loaded: what a query of a workflow sorts lies where the data is, closed to steps.
os.environ["SQLITE_TMPDIR"] = str(PULSE_DATA / "database" / "tmp")
PULSE_RELEASE = env.text("PULSE_RELEASE") or release.find(BASE_DIR)
PULSE_PORT = env.number("PULSE_PORT", before.PORT)
PULSE_HOST = env.text("PULSE_HOST", before.HOST)
PULSE_BASE_URL = env.text("PULSE_BASE_URL", f"http://127.0.0.1:{PULSE_PORT}").rstrip("/")
PULSE_RUNTIME = env.text("PULSE_RUNTIME")
PULSE_RUN_SLOTS = env.number("PULSE_RUN_SLOTS", max(4, 2 * (os.cpu_count() or 1)))
PULSE_LIMITS = env.limits("PULSE_LIMITS")
PULSE_DRAIN_S = env.number("PULSE_DRAIN_S", 20, least=0)
PULSE_RUNNER_UID = env.number("PULSE_RUNNER_UID", 0, least=0)
PULSE_PYTHON = env.text("PULSE_PYTHON")
PULSE_BWRAP = env.text("PULSE_BWRAP")
PULSE_HOOK_BODY_MAX = env.number("PULSE_HOOK_BODY_MAX", 1024 * 1024)

_base = urlsplit(PULSE_BASE_URL)
if _base.scheme not in {"http", "https"} or not _base.hostname:
    raise ImproperlyConfigured(
        f"PULSE_BASE_URL is {PULSE_BASE_URL}: it must begin with http:// or https:// and name a host, as in"
        " https://pulse.example.org. Nothing was started."
    )
HTTPS = _base.scheme == "https"
_loopback = _base.hostname in {"127.0.0.1", "localhost", "::1"}
_origins = [PULSE_BASE_URL]
if _loopback:  # the same machine by its other name
    _other = "localhost" if _base.hostname == "127.0.0.1" else "127.0.0.1"
    _origins.append(f"{_base.scheme}://{_other}" + (f":{_base.port}" if _base.port else ""))
PULSE_ORIGINS = _origins
# Whose X-Forwarded-For and -Proto are believed. Behind https there must be one; unnamed, it is a proxy on this machine.
PULSE_PROXIES = env.names("PULSE_PROXIES") or (["127.0.0.1", "::1", "unix"] if HTTPS else [])
PULSE_MAIL_URL = env.text("PULSE_MAIL_URL")
PULSE_MAIL_FROM = env.text("PULSE_MAIL_FROM", f"pulse@{_base.hostname}")
PULSE_API_RATE = env.number("PULSE_API_RATE", 6000)
PULSE_METRICS_TOKEN = env.text("PULSE_METRICS_TOKEN")
PULSE_INSECURE_HTTP = env.flag("PULSE_INSECURE_HTTP")
if not HTTPS and not _loopback and not PULSE_INSECURE_HTTP:
    raise ImproperlyConfigured(
        f"PULSE_BASE_URL is {PULSE_BASE_URL}: http away from this machine sends passwords in the clear. Nothing was"
        " started. Use https behind a proxy, or set PULSE_INSECURE_HTTP=1 and every page will say so."
    )

DEBUG = False
ALLOWED_HOSTS = [*dict.fromkeys([_base.hostname or "", "127.0.0.1", "localhost", *env.names("PULSE_ALLOWED_HOSTS")])]
CSRF_TRUSTED_ORIGINS = PULSE_ORIGINS

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
    "ninja",
    "apps.accounts",
    "apps.workflows",
    "apps.tools",
    "apps.runs",
    "apps.webhooks",
    "apps.dashboard",
    "config",
]
MIDDLEWARE = [
    "config.middleware.RequestId",
    "config.middleware.ApiErrors",
    "config.middleware.Readable",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "config.middleware.NoStore",
    "config.middleware.Sessions",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "config.middleware.SignInDuties",
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
    DATABASES = {"default": {**env.postgresql(DATABASE_URL), "CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": True}}
else:
    # The file and its companions lie in a folder of their own that the runner uid cannot enter.
    # synchronous=NORMAL may lose the last moment to a power cut, never to a crash; apps.durable lifts it where it
    # must not.
    DATABASES = {
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": PULSE_DATA / before.DATABASE,
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

# --- Queue, cache -----------------------------------------------------------------------------------------
REDIS_URL = env.redis(env.text("REDIS_URL"))
# The queue has no time-out on purpose: our lease decides (docs/decisions/0003-queue.md).
warnings.filterwarnings("ignore", message="Retry and timeout are misconfigured")
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": REDIS_URL,
        "KEY_PREFIX": "pulse",
    }
    if REDIS_URL
    else {
        "BACKEND": "django.core.cache.backends.locmem.LocMemCache",
        # It holds the counters of sign-ins and tokens: of Django's 300 a stranger could push them out by asking.
        "OPTIONS": {"MAX_ENTRIES": 100_000},
    }
}
_broker: dict[str, object] = {"redis": REDIS_URL} if REDIS_URL else {"orm": "default"}
Q_CLUSTER = {
    "name": "pulse",
    "workers": PULSE_RUN_SLOTS,
    "timeout": None,
    "retry": 7 * 24 * 3600,
    "max_attempts": 1,
    "queue_limit": PULSE_RUN_SLOTS,
    "poll": 0.02,
    "save_limit": -1,
    "ack_failures": True,
    "catch_up": False,
    "scheduler": False,
    "daemonize_workers": False,
    "log_level": "WARNING",
    **_broker,
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
LOGOUT_REDIRECT_URL = "/"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
AUTH_PASSWORD_VALIDATORS[1]["OPTIONS"] = {"min_length": 10}  # type: ignore[assignment]
ACCOUNT_ADAPTER = "apps.accounts.signin.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"username", "email"} if PULSE_MAIL_URL else {"username"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "email*" if PULSE_MAIL_URL else "email", "password1*", "password2*"]
ACCOUNT_EMAIL_VERIFICATION = "mandatory" if PULSE_MAIL_URL else "none"
ACCOUNT_PREVENT_ENUMERATION = True
ACCOUNT_LOGOUT_ON_GET = False
ACCOUNT_SESSION_REMEMBER = True
ACCOUNT_LOGOUT_ON_PASSWORD_CHANGE = False
ACCOUNT_REAUTHENTICATION_TIMEOUT = 300
ACCOUNT_DEFAULT_HTTP_PROTOCOL = _base.scheme
ACCOUNT_RATE_LIMITS = {"login": "30/m/ip", "login_failed": "10/m/ip,5/5m/key"}
MFA_ADAPTER = "config.mfa.MfaAdapter"
MFA_SUPPORTED_TYPES = ["totp", "recovery_codes"]
MFA_TOTP_ISSUER = "Pulse"
if PULSE_MAIL_URL:
    EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    globals().update(env.mail(PULSE_MAIL_URL))
else:
    EMAIL_BACKEND = "django.core.mail.backends.dummy.EmailBackend"
DEFAULT_FROM_EMAIL = SERVER_EMAIL = PULSE_MAIL_FROM

SESSION_COOKIE_SECURE = HTTPS
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = 12 * 3600
CSRF_COOKIE_SECURE = HTTPS
CSRF_COOKIE_HTTPONLY = True
CSRF_COOKIE_SAMESITE = "Lax"
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
SECURE_CONTENT_TYPE_NOSNIFF = True
if HTTPS:
    SECURE_SSL_REDIRECT = True
    SECURE_REDIRECT_EXEMPT = [r"^(healthz|readyz|metrics)$"]  # asked by probes of the machine itself
    SECURE_HSTS_SECONDS = 365 * 24 * 3600
    SECURE_HSTS_INCLUDE_SUBDOMAINS = True
    SECURE_HSTS_PRELOAD = True
    SESSION_COOKIE_NAME = "__Host-sessionid"
    CSRF_COOKIE_NAME = "__Host-csrftoken"

# `config.front` caps bodies a route before Django sees them; Django's own limit must not undercut the largest.
PULSE_PAGE_BODY_MAX = 2_621_440
PULSE_TOOL_BODY_MAX = 4 * 1024 * 1024
PULSE_IMPORT_BODY_MAX = 50 * 1024 * 1024
DATA_UPLOAD_MAX_MEMORY_SIZE = max(PULSE_IMPORT_BODY_MAX, PULSE_HOOK_BODY_MAX)
DATA_UPLOAD_MAX_NUMBER_FIELDS = 1000
DATA_UPLOAD_MAX_NUMBER_FILES = 20
FILE_UPLOAD_PERMISSIONS = 0o640
DEFAULT_EXCEPTION_REPORTER_FILTER = "config.reports.ReportFilter"

_sockets = [origin.replace("http", "ws", 1) for origin in PULSE_ORIGINS]
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "font-src": ["'self'"],
        "connect-src": ["'self'", *_sockets],
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

# With a file for the details, the terminal has warnings and errors only.
PULSE_LOG = env.text("PULSE_LOG")
_handlers: dict[str, dict[str, object]] = {
    "stderr": {"class": "logging.StreamHandler", "level": "WARNING" if PULSE_LOG else "INFO"}
}
if PULSE_LOG:
    _handlers["file"] = {"class": "config.logs.LogFile", "filename": PULSE_LOG, "delay": True}
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"request_id": {"()": "config.logs.RequestIdFilter"}},
    "formatters": {
        "plain": {
            "()": "config.logs.RedactingFormatter",
            "format": "%(asctime)s %(levelname)s %(name)s [%(request_id)s] %(message)s",
        }
    },
    "handlers": {name: {**facts, "formatter": "plain", "filters": ["request_id"]} for name, facts in _handlers.items()},
    "root": {"handlers": list(_handlers), "level": "INFO"},
    "loggers": {
        # One way out for every record: Django's own handlers would go past the formatter that redacts.
        "django": {"handlers": [], "level": "INFO", "propagate": True},
        "django.server": {"handlers": [], "level": "INFO", "propagate": True},
        "django-q": {"handlers": [], "level": "INFO", "propagate": True},
        "daphne.http_protocol": {"level": "WARNING"},
    },
}

# --- Keys: last, since nothing is written before every setting above holds -------------------------------
try:
    (PULSE_DATA / "database").mkdir(mode=0o700, parents=True, exist_ok=True)
    (PULSE_DATA / "database" / "tmp").mkdir(mode=0o700, exist_ok=True)
    SECRET_KEY = env.text("PULSE_SECRET_KEY") or keyfiles.read_or_make(PULSE_DATA / "secrets" / "django.key")
except OSError as _wrong:
    raise ImproperlyConfigured(
        f"The data folder {PULSE_DATA} cannot be used: {_wrong.strerror} ({_wrong.filename}). Nothing was started."
        " Start as the user it belongs to, or set PULSE_DATA to a folder of your own."
    ) from None
if len(SECRET_KEY) < 50:
    raise ImproperlyConfigured("PULSE_SECRET_KEY must have at least 50 characters. Nothing was started.")
