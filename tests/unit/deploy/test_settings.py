"""A wrong setting is refused before anything starts, with the line and what to change; the known names are kept."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
import trustme

from deploy import settings
from deploy.settings import Settings
from schemas.errors import Misconfigured
from schemas.messages import Channel
from schemas.policies import MessageClass, QuietWindow, TemplatePolicy
from schemas.quiet_hours import Nights

EXAMPLE = """\
[kafka]
bootstrap = "127.0.0.1:9092"
[redis]
url = "redis://127.0.0.1:6379/0"
[api]
listen = "127.0.0.1:8080"          # callbacks: [callbacks] listen
[templates]
path = "templates"
[channels.push]
providers = ["gateway"]            # in order; the second is the standby
[channels.email]
providers = ["mail"]
[providers.gateway]
kind = "http"
url = "http://127.0.0.1:9000/send"
rate_per_s = 5000
burst = 500
timeout_s = 5
callback_secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
[providers.mail]
kind = "smtp"
url = "smtp://127.0.0.1:2525"
from = "Shop <news@example.org>"
rate_per_s = 2000
burst = 200
[providers.texter]
kind = "http"
url = "http://127.0.0.1:9000/sms"
rate_per_s = 100
burst = 20
prices = { DE = 0.07, default = 0.05 }   # money per SMS segment or message, by the number's country
[tenants.default]
time_zone = "Europe/Berlin"
locale = "de"
weight = 1
quiet_hours = { from = "22:00", to = "08:00" }
budget_per_day = { sms = 250.0 }
keys = [{ hash = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", scopes = ["send", "read"] }]
"""


def _load(tmp_path: Path, text: str, environ: dict[str, str] | None = None) -> Settings:
    file = tmp_path / "tidings.toml"
    file.write_text(text)
    return settings.load(file, environ or {})


def _refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(Misconfigured) as refused:
        _load(tmp_path, text)
    return str(refused.value)


def test_the_documented_example_is_read_as_written(tmp_path: Path) -> None:
    read = _load(tmp_path, EXAMPLE)
    assert read.channels["push"].providers == ("gateway",)
    assert read.providers["mail"].source == "Shop <news@example.org>"
    assert read.providers["texter"].prices == {"DE": Decimal("0.07"), "default": Decimal("0.05")}
    tenant = read.tenants["default"]
    assert tenant.quiet_hours is not None and (tenant.quiet_hours.start, tenant.quiet_hours.end) == ("22:00", "08:00")
    assert tenant.keys[0].scopes == ("send", "read")
    assert read.templates.path == tmp_path / "templates"
    assert (
        ("email", "bulk") in read.lanes() and ("sms", "bulk") not in read.lanes() and ("inapp", "bulk") in read.lanes()
    )


def test_the_quiet_hours_of_a_tenant_are_those_of_its_templates_that_say_nothing(tmp_path: Path) -> None:
    quiet = _load(tmp_path, EXAMPLE + "[tenants.other]\n").quiet_hours()
    offer = TemplatePolicy("offer", MessageClass.MARKETING, (Channel.PUSH,))
    assert quiet.of("default", offer) == Nights(QuietWindow("22:00", "08:00"), "Europe/Berlin")
    assert quiet.of("other", offer) == Nights(None, "UTC")


def test_without_a_file_the_defaults_are_a_working_laptop(tmp_path: Path) -> None:
    read = settings.load(None, {"KAFKA_BOOTSTRAP": "k:1", "REDIS_URL": "redis://r:2/3"})
    assert (read.kafka.bootstrap, read.redis.url, list(read.tenants)) == ("k:1", "redis://r:2/3", ["default"])


def test_the_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDINGS_KAFKA__PASSWORD", "hush")
    monkeypatch.setenv("TIDINGS_KAFKA__USERNAME", "tidings")
    monkeypatch.setenv("TIDINGS_TOPIC_PREFIX", "blue.")
    text = '[kafka]\nbootstrap = "a:1"\nsecurity_protocol = "SASL_SSL"\nca = "ca.pem"\n'
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    read = _load(tmp_path, text, {"KAFKA_BOOTSTRAP": "b:2"})
    assert read.topic_prefix == "blue."
    assert read.kafka.client() == {
        "bootstrap.servers": "b:2",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "tidings",
        "sasl.password": "hush",
        "ssl.ca.location": str(tmp_path / "ca.pem"),
    }
    assert "hush" not in repr(read)


@pytest.mark.parametrize(
    ("wrong", "right", "told"),
    [
        ("rate_per_s = 5000", "rate_pr_s = 5000", "tidings.toml:16: providers.gateway.rate_pr_s: unknown setting"),
        ('providers = ["gateway"] ', 'providers = ["gatway"] ', "tidings.toml:10: channels.push.providers: there"),
        ("whsec_MfKQ9r8GKYqr", "whsec_!", "tidings.toml:19: providers.gateway.callback_secret: is not base64"),
        ("whsec_MfKQ9r8GKYqr", "MfKQ9r8GKYqr", "providers.gateway.callback_secret: must begin with whsec_"),
        ("timeout_s = 5\n", "timeout_s = 9\n", "tidings.toml:18: providers.gateway.timeout_s: must not be above"),
        ('providers = ["gateway"] ', 'providers = ["gateway", "gateway"] ', "push.providers: gateway is listed twice"),
        ('"22:00", to = "08:00"', '"22:00"', "quiet_hours.to: is missing; write it like quiet_hours = { from = "),
        ('{ from = "22:00", to = "08:00" }', '"off"', "quiet_hours: must be a table; write it like quiet_hours = {"),
        ("weight = 1\n", "weight = 1\ncaps = { week = 9 }\n", "default.caps.week: unknown setting; there are day"),
        ("weight = 1\n", "weight = 1\ncaps = { day = 0 }\n", "equal to 1; write it like caps = { day = 3 }"),
        ('scopes = ["send", "read"] }', 'scope = ["send"] }', "keys.0.scope: unknown setting; there are hash, scopes"),
        ("burst = 20\n", "brst = 20\n", "texter.brst: unknown setting; there are kind, url, from, rate_per_s, burst"),
        ('providers = ["mail"]', 'providers = "mail"', "tidings.toml:12: channels.email.providers: must be a list"),
        ('to = "08:00"', 'to = "22:00"', "tenants.default.quiet_hours: quiet hours that end when they begin are"),
        ('"22:00", to = "08:00"', '"00:00", to = "24:00"', "tidings.toml:36: tenants.default.quiet_hours.to: is no"),
        ("weight = 1\n", "weight = 1\ncaps = { day = 0 }\n", "tidings.toml:36: tenants.default.caps.day: Input"),
        ('"Europe/Berlin"', '"Europe/Berln"', "tidings.toml:33: tenants.default.time_zone: 'Europe/Berln' is no"),
        ("burst = 20\n", 'burst = 20\nstatus_url = "http://x/s"\n', "providers.texter.status_url: nobody is"),
        ("burst = 20\n", "burst = 20\nstatus_per_s = 5\n", "tidings.toml:31: providers.texter.status_per_s: there"),
        ('from = "Shop', 'status_url = "http://x/s"\nfrom = "Shop', "mail.status_url: a provider of kind smtp"),
        ("timeout_s = 5\n", 'status_url = "x/s"\n', "tidings.toml:18: providers.gateway.status_url: must begin with"),
        ("burst = 20\n", "burst = 1\n", "tidings.toml:30: providers.texter.burst"),
        ('providers = ["mail"]', 'providers = ["texter", "nobody"]', "there is no [providers.nobody]"),
        ('[channels.email]\nproviders = ["mail"]', '[channels.sms]\nproviders = ["mail"]', "of kind smtp, which"),
        ('from = "Shop <news@example.org>"', "", "providers.mail.from: mail needs a sender"),
        ('"sha256:9f86', '"sha256:9f8', "tenants.default.keys.0.hash"),
        ('"127.0.0.1:8080"', '"8080"', 'tidings.toml:6: api.listen: must be "host:port"'),
        ('scopes = ["send", "read"] }', 'scopes = ["sned"] }', "tenants.default.keys.0.scopes.0"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_told_with_its_line(tmp_path: Path, wrong: str, right: str, told: str) -> None:
    assert wrong in EXAMPLE
    assert told in _refusal(tmp_path, EXAMPLE.replace(wrong, right))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("keys = [{one}, {two}]\n", "tidings.toml:2: tenants.red.keys.1.hash: is the hash of tenants.red.keys.0, too"),
        (
            "keys = [{one}]\n[tenants.blue]\nkeys = [{two}]\n",
            "tidings.toml:4: tenants.blue.keys.0.hash: is the hash of tenants.red.keys.0, too",
        ),
    ],
)
def test_a_key_given_twice_is_refused_since_only_one_of_them_would_hold(tmp_path: Path, text: str, told: str) -> None:
    one = '{ hash = "sha256:' + "a" * 64 + '", scopes = ["send"] }'
    text = text.replace("{one}", one).replace("{two}", one.replace("aaaa", "AAAA").replace("send", "read"))
    assert told in _refusal(tmp_path, "[tenants.red]\n" + text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[sending]\ndeadline_s = 26\nlease_s = '30s'\n", "tidings.toml:2: sending.deadline_s (26) must be below"),
        ("[engine]\npoll_limit_s = 30\nsession_s = 10\n", "engine.poll_limit_s (30) must be above sending.lease_s"),
        ("[engine]\nheartbeat_s = 20\n", "engine.session_s must be at least three times heartbeat_s"),
        ("[engine]\nheartbeat_s = 5\n", "engine.urgent_session_s must be at least three times heartbeat_s"),
        ("[engine]\nurgent_session_s = 400\n", "engine.urgent_session_s must not be above engine.poll_limit_s"),
        ("[tiers]\n1m = 5\n", "the waits must rise"),
        ("[tenants.shop]\ncaps = { day = true }\n", "tenants.shop.caps.day: true and false are no values here"),
        ("[sending]\nin_flight = true\n", "tidings.toml:2: sending.in_flight: true and false are no values here"),
        ("[up]\nworkers = { 'push.bulk' = true }\n", "up.workers: true and false are no values here"),
        ("[tiers]\n10m = '2h'\n", "tidings.toml:2: tiers.10m (7200) must not be above 3600"),
        ("[sending]\nfallback_after_s = 30\n", "tidings.toml:2: sending.fallback_after_s: unknown setting"),
        ("[reconcile]\nafter = '8d'\n", "tidings.toml:2: reconcile.after (691200) must not be above 604800, a week"),
        ("[reconcile]\nafter = 0\n", "tidings.toml:2: reconcile.after: Input should be greater than 0"),
        ("[sending]\nbulk_share = 1.5\n", "tidings.toml:2: sending.bulk_share"),
        ('[kafka]\nsecurity_protocol = "SASL_SSL"\n', "SASL needs username and password"),
        ('[api]\nlisten = "0.0.0.0:80"\n', "no API key is configured"),
        ('[up]\nworkers = { "push.fast" = 2 }\n', "'push.fast' is no lane"),
        ("[kafak]\nbootstrap = 1\n", "tidings.toml:1: kafak: unknown setting; there are kafka, redis, api"),
        ("[kafka\n", "is not TOML"),
    ],
)
def test_numbers_that_do_not_fit_together_are_refused(tmp_path: Path, text: str, told: str) -> None:
    assert told in _refusal(tmp_path, text)


ROTATION = """[providers.gateway]
kind = "http"
url = "http://127.0.0.1:9000/send"
rate_per_s = 1
burst = 2
callback_secret = """
OLD, NEW = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"


@pytest.mark.parametrize(
    ("written", "secrets"), [(f'"{OLD}"', [OLD]), (f'["{OLD}", "{NEW}"]', [OLD, NEW]), ('""', []), ("[]", [])]
)
def test_while_a_secret_is_rotated_the_old_and_the_new_one_are_both_taken(
    tmp_path: Path, written: str, secrets: list[str]
) -> None:
    taken = _load(tmp_path, ROTATION + written).providers["gateway"].callback_secret
    assert [secret.get_secret_value() for secret in taken] == secrets


def test_a_secret_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDINGS_PROVIDERS__gateway__CALLBACK_SECRET", NEW)
    (taken,) = _load(tmp_path, ROTATION + f'"{OLD}"').providers["gateway"].callback_secret
    assert taken.get_secret_value() == NEW


def test_a_third_secret_or_a_torn_one_is_refused_and_not_shown(tmp_path: Path) -> None:
    assert "callback_secret: give one secret, or two" in _refusal(tmp_path, ROTATION + f'["{OLD}", "{NEW}", "{OLD}"]')
    torn = _refusal(tmp_path, ROTATION + f'["{OLD}", "whsec_t0rn"]')
    assert "callback_secret: has 3 bytes; it must have 16 to 64" in torn and "t0rn" not in torn


def test_a_secret_pasted_with_something_in_front_is_refused_and_one_without_padding_is_taken(tmp_path: Path) -> None:
    """P53"""
    pasted = _refusal(tmp_path, ROTATION + f'"v1,{OLD}"')
    assert "callback_secret: must begin with whsec_; it was pasted with something in front" in pasted
    assert OLD not in pasted
    unpadded = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS"
    (taken,) = _load(tmp_path, ROTATION + f'"{unpadded}"').providers["gateway"].callback_secret
    assert taken.get_secret_value() == unpadded


def test_short_leases_for_tests_are_allowed_when_they_fit(tmp_path: Path) -> None:
    text = '[sending]\nlease_s = "3s"\ndeadline_s = "800ms"\nmargin_s = 1\n[tiers]\n10s = 0.5\n1m = 1\n10m = 2\n'
    read = _load(tmp_path, text + '[providers.x]\nkind="http"\nurl="http://x/"\nrate_per_s=1\nburst=2\ntimeout_s=0.8\n')
    assert (read.sending.lease_s, read.sending.deadline_s) == (3.0, 0.8)
    assert read.tiers.by_name_ms() == {"10s": 500, "1m": 1000, "10m": 2000}


def test_a_secret_never_appears_in_the_refusal(tmp_path: Path) -> None:
    assert "hunter2" not in _refusal(tmp_path, EXAMPLE.replace("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "hunter2"))


def test_the_secret_of_ids_is_kept_when_given_and_follows_from_the_cluster_when_not(tmp_path: Path) -> None:
    assert _load(tmp_path, '[id]\nsecret = "s"\n').id_secret("any") == b"s"
    derived = _load(tmp_path, "")
    assert derived.id_secret("one") == derived.id_secret("one") != derived.id_secret("two")
