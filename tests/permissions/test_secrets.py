"""Secrets are known by the names of their variables, by their values, and by their shapes."""

from __future__ import annotations

import pytest

from travois.core.content import Call, Media, Text
from travois.core.display_text import split_names
from travois.core.facts import (
    AnyFact,
    Assistant,
    Ended,
    Failed,
    Finished,
    Hooked,
    Noted,
    Result,
    User,
)
from travois.permissions.secrets import (
    FoundSecret,
    Secrets,
    collect_secrets,
    find_secrets,
    is_secret_name,
    is_secret_variable,
)
from travois.process.environment import build_child_environment

SECRET = split_names("""
ANTHROPIC_API_KEY ANTHROPIC_AUTH_TOKEN ANTHROPIC_CUSTOM_HEADERS OPENAI_API_KEY OPENAI_KEY
GEMINI_API_KEY GOOGLE_API_KEY OPENROUTER_API_KEY MISTRAL_API_KEY GROQ_API_KEY HF_TOKEN
HUGGINGFACEHUB_API_TOKEN GITHUB_TOKEN GH_TOKEN GITHUB_PAT GITLAB_TOKEN CI_JOB_TOKEN
BITBUCKET_APP_PASSWORD NPM_TOKEN NODE_AUTH_TOKEN NPM_CONFIG__AUTH PYPI_TOKEN TWINE_PASSWORD
CARGO_REGISTRY_TOKEN AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN
AWS_WEB_IDENTITY_TOKEN_FILE AZURE_CLIENT_SECRET AZURE_STORAGE_KEY AZURE_STORAGE_CONNECTION_STRING
GOOGLE_APPLICATION_CREDENTIALS DIGITALOCEAN_ACCESS_TOKEN CLOUDFLARE_API_TOKEN CF_API_KEY
HEROKU_API_KEY VERCEL_TOKEN NETLIFY_AUTH_TOKEN FLY_API_TOKEN DATABASE_URL REDIS_URL MONGODB_URI
PGPASSWORD PGPASSFILE MYSQL_PWD MYSQL_ROOT_PASSWORD POSTGRES_PASSWORD STRIPE_SECRET_KEY
TWILIO_AUTH_TOKEN SENDGRID_API_KEY SLACK_BOT_TOKEN SLACK_WEBHOOK_URL DISCORD_TOKEN SENTRY_DSN
DD_API_KEY NEW_RELIC_LICENSE_KEY SECRET_KEY_BASE DJANGO_SECRET_KEY JWT_SECRET ENCRYPTION_KEY
SSH_PRIVATE_KEY GPG_PASSPHRASE VAULT_TOKEN DOCKER_PASSWORD DOCKER_AUTH_CONFIG SNYK_TOKEN
RAILS_MASTER_KEY DB_PASS SMTP_PASS OTEL_EXPORTER_OTLP_HEADERS TF_TOKEN_app_terraform_io
TF_VAR_db_password OP_SERVICE_ACCOUNT_TOKEN BW_SESSION KAGGLE_KEY client_secret TOKEN PASSWORD
x-api-key authorization ANTHROPIC_API_KEY_TEAM_B OPENAI_API_KEY_2 AWS_SECRET_ACCESS_KEY_PROD
MY_SIGNING_KEY_OLD
""")
INNOCENT = split_names("""
PATH HOME USER SHELL LANG LC_ALL TERM COLORTERM EDITOR VISUAL PAGER TMPDIR HOSTNAME LOGNAME
XDG_RUNTIME_DIR XDG_SESSION_ID XDG_SESSION_TYPE XDG_CONFIG_HOME DBUS_SESSION_BUS_ADDRESS
SESSION_MANAGER DISPLAY WAYLAND_DISPLAY SSH_AUTH_SOCK SSH_CONNECTION SSH_TTY GPG_TTY AWS_REGION
AWS_DEFAULT_REGION AWS_PROFILE AWS_PAGER OPENAI_BASE_URL ANTHROPIC_BASE_URL ANTHROPIC_MODEL
GOOGLE_CLOUD_PROJECT AZURE_LOCATION OTEL_SERVICE_NAME TOKENIZERS_PARALLELISM MAX_TOKENS
TOKEN_LIMIT KEYTIMEOUT KEYBOARD_LAYOUT KEYMAP XKB_DEFAULT_LAYOUT HOTKEY_MODE MONKEY
PASSWORD_STORE_DIR GIT_ASKPASS SSH_ASKPASS SUDO_ASKPASS PASSENGER_APP_ENV COMPASS_HOME
BYPASS_CACHE NODE_ENV NODE_PATH PYTHONPATH VIRTUAL_ENV CONDA_PREFIX JAVA_HOME GOPATH CARGO_HOME
RUSTUP_HOME CI GITHUB_ACTIONS GITHUB_REPOSITORY GITHUB_SHA GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL
COMPOSE_PROJECT_NAME DOCKER_HOST KUBECONFIG PGHOST PGUSER PGDATABASE REDIS_HOST DB_NAME LS_COLORS
HISTSIZE WINDOWID SSH_PUBLIC_KEY SECRETARY_EMAIL WEBHOOK_PORT AUTHOR PATTERN anthropic-version
API_KEY_NAME PRIMARY_KEY_COLUMN KEY_ACCESS_MODE API_VERSION
""")


def test_names_of_secrets_are_known_and_no_others() -> None:
    assert [name for name in SECRET if not is_secret_name(name)] == []
    assert [name for name in INNOCENT if is_secret_name(name)] == []
    assert len(SECRET) >= 60
    assert len(INNOCENT) >= 60


def test_an_address_with_a_databases_password_is_a_secret_whatever_its_name() -> None:
    held = {
        "TRAVOIS_FLEET_DB": "postgresql://me:hunter2secret@db.example.org/travois",
        "CACHE": "rediss://:hunter2secret@cache.example.org:6379",
        "QUEUE": "amqp://me:hunter2secret@queue.example.org",
    }
    harmless = {
        "TRAVOIS_FLEET_DB": "postgresql://me@db.example.org/travois",
        "HTTPS_PROXY": "http://me:hunter2secret@proxy.example.org:3128",
        "PIP_INDEX_URL": "https://me:hunter2secret@pypi.example.org/simple",
        "PATH": "/bin:/usr/bin",
    }
    assert [name for name, value in held.items() if not is_secret_variable(name, value)] == []
    assert [name for name, value in harmless.items() if is_secret_variable(name, value)] == []
    assert build_child_environment(held | {"HOME": "/me"}).keys() & held.keys() == set()
    redacted = collect_secrets(held.items()).redact(f"at {held['TRAVOIS_FLEET_DB']}")
    assert "hunter2" not in redacted


KEY, TOKEN = "sk-ant-api03-verysecret", "t0ken-of-mine"
OURS = collect_secrets(
    {"ACME_TOKEN": TOKEN, "ANTHROPIC_API_KEY": KEY, "HOME": "/home/me-myself"}.items()
)


def test_values_that_anyone_might_write_are_not_taken_for_secrets() -> None:
    plain = {
        "POSTGRES_PASSWORD": "postgres",
        "PIN_SECRET": "12345678",
        "SHORT_TOKEN": "a1b2c3",
        "GOOGLE_APPLICATION_CREDENTIALS": "/home/me/key.json",
        "PGPASSFILE": "~/.pgpass",
        "DATABASE_URL": "postgres://localhost/app",
    }
    assert collect_secrets(plain.items()) == Secrets()


def test_values_are_known_whatever_holds_them() -> None:
    held = {
        "authorization": f"Bearer {KEY}",
        "DATABASE_URL": "postgres://me:pa55@host/app",
        "MASTER_PASSWORD": "correcthorsebatterystaple",
        "OTHER_PASSWORD": "correcthorsebatterystaple",
    }
    assert collect_secrets(held.items()).values == (
        ("DATABASE_URL", "postgres://me:pa55@host/app"),
        ("OTHER_PASSWORD", "correcthorsebatterystaple"),
        ("authorization", KEY),
    )


def test_a_value_that_holds_another_goes_first() -> None:
    both = collect_secrets({"A_KEY": "abcdefg-1", "B_KEY": "abcdefg-1-and-more"}.items())
    assert both.redact("abcdefg-1-and-more abcdefg-1") == "[redacted: B_KEY] [redacted: A_KEY]"


def test_a_value_is_replaced_in_text_and_in_bytes() -> None:
    text = f"export KEY={KEY}; again {KEY}"
    told = "export KEY=[redacted: ANTHROPIC_API_KEY]; again [redacted: ANTHROPIC_API_KEY]"
    assert OURS.redact(text) == told
    assert OURS.redact_bytes(b"\xff" + text.encode()) == b"\xff" + told.encode()
    assert OURS.redact("nothing here") == "nothing here"
    assert OURS.redact_bytes(b"nothing here") == b"nothing here"


HIDDEN = "[redacted: ACME_TOKEN]"
PICTURE = Media("image", "image/png", "b" * 32, size=1)


@pytest.mark.parametrize(
    ("fact", "kept"),
    [
        (
            Result("t", (Text(TOKEN), PICTURE), detail=f'"{TOKEN}"'),
            Result("t", (Text(HIDDEN), PICTURE), detail=f'"{HIDDEN}"'),
        ),
        (User((Text(TOKEN),), origin="hook"), User((Text(HIDDEN),), origin="hook")),
        (Failed("auth", f"bad key {TOKEN}"), Failed("auth", f"bad key {HIDDEN}")),
        (Noted("crash", TOKEN), Noted("crash", HIDDEN)),
        (Hooked("Stop", "x", TOKEN), Hooked("Stop", "x", HIDDEN)),
        (Finished("j", TOKEN), Finished("j", HIDDEN)),
        (Ended("failed", TOKEN), Ended("failed", HIDDEN)),
    ],
)
def test_no_value_is_recorded(fact: AnyFact, kept: AnyFact) -> None:
    assert OURS.redact_fact(fact) == kept
    assert Secrets().redact_fact(fact) is fact


def test_what_a_person_or_the_model_says_is_recorded_as_it_was() -> None:
    for fact in (
        User((Text(TOKEN),)),
        Assistant((Text(TOKEN), Call("t", "Bash", f'"{TOKEN}"')), stop="calls"),
    ):
        assert OURS.redact_fact(fact) is fact


SHAPES = {
    "-----BEGIN OPENSSH PRIVATE KEY-----": "private key",
    "sk-ant-api03-" + "a1_-" * 10: "Anthropic key",
    "sk-proj-" + "aB3" * 14: "API key",
    "ghp_" + "aB3x" * 9: "GitHub token",
    "github_pat_" + "aB3_" * 11: "GitHub token",
    "glpat-" + "aB3x" * 5: "GitLab token",
    "AKIA" + "ABCDEFGH" * 2: "AWS key",
    "AIza" + "aB3-x" * 7: "Google key",
    "xoxb-1234567890-abc": "Slack token",
    "sk_live_" + "aB3x" * 5: "Stripe key",
    "npm_" + "aB3x" * 9: "npm token",
    "hf_" + "aBcde" * 7: "Hugging Face token",
    f"eyJ{'a' * 12}.eyJ{'b' * 12}.{'c' * 20}": "web token",
    "postgres://me:pa55w0rd@": "password in a URL",
}
PLAIN = (
    "task-force sk-8 and sketch-book",
    "risk-averse-people-are-not-all-that-easy-to-convince-of-anything",
    "AKIA is short for AWS key",
    "commit 4ce0446f0c6e4cb5a3c57d9e0f0d9a4bb29f6a1c",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----",
    "https://example.org:8080/a@b and http://[::1]:80/",
    "postgres://${USER}:${PASSWORD}@host/db, postgres://user:<password>@host",
    "git@github.com:me/repo.git",
    "eyJ is how base64 JSON begins",
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "hf_hub_download(repo_id, filename)",
    "npm_config_registry=https://registry.example.org",
)


@pytest.mark.parametrize(("text", "kind"), SHAPES.items())
def test_well_known_shapes_are_found(text: str, kind: str) -> None:
    assert find_secrets(f"a = '{text}'\n") == (FoundSecret(kind, 5, 5 + len(text)),)


def test_what_only_resembles_a_secret_is_not_found() -> None:
    assert [(text, find_secrets(text)) for text in PLAIN if find_secrets(text)] == []
