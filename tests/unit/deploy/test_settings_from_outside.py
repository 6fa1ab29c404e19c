"""What is wrong in the environment, in an address or in a file that is named is told before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from deploy import broker_state, redis_client, senders, settings
from deploy.processes import facing_in
from deploy.settings import Settings
from schemas.clock import SystemClock
from schemas.errors import Misconfigured
from schemas.trips import Epoch

BROKER = '[kafka]\nsecurity_protocol = "SSL"\nca = "ca.pem"\n'
GATEWAY = '[providers.gateway]\nkind = "http"\nrate_per_s = 1\nburst = 2\n'


def _load(tmp_path: Path, text: str = "", environ: dict[str, str] | None = None) -> Settings:
    file = tmp_path / "tidings.toml"
    file.write_text(text)
    return settings.load(file, environ or {})


def _refusal(tmp_path: Path, text: str = "", environ: dict[str, str] | None = None) -> str:
    with pytest.raises(Misconfigured) as refused:
        _load(tmp_path, text, environ)
    return str(refused.value)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TIDINGS_CHANNELS__PUSH__PROVIDERS", "gateway"),
        ("TIDINGS_KAFKA", "x"),
        ("TIDINGS_UP__WORKERS", "push.bulk=2"),
        ("TIDINGS_PROVIDERS__gateway__HEADERS", "Authorization: hunter2"),
    ],
)
def test_a_variable_whose_list_or_table_cannot_be_read_is_named_and_its_text_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    environ = {"TIDINGS_KAFKA__USERNAME": "tidings", variable: value}
    for name, text in environ.items():
        monkeypatch.setenv(name, text)
    told = _refusal(tmp_path, environ=environ)
    assert told == f"""{variable}: must be JSON: a list like '["gateway"]', or a table like '{{"push.bulk": 2}}'"""


def test_a_variable_of_a_misspelt_section_is_refused_and_the_names_of_others_are_let_be(tmp_path: Path) -> None:
    told = _refusal(tmp_path, environ={"TIDINGS_SENDINGS__LEASE_S": "5"})
    assert told.startswith("TIDINGS_SENDINGS__LEASE_S: unknown setting; there are kafka, redis, api, ")
    assert "TIDINGS_TOPIC_PREFIX__A: unknown" in _refusal(tmp_path, environ={"TIDINGS_TOPIC_PREFIX__A": "5"})
    of_others = {"TIDINGS_API_PORT": "tcp://10.0.0.1:80", "TIDINGS_READY_FD": "3", "TIDINGS_API_KEY": "k"}
    _load(tmp_path, environ={**of_others, "TIDINGS_SENDING__LEASE_S": "5", "OTHER__NAME": "x"})


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        (
            "TIDINGS_PROVIDERS__GATEWAY__RATE_PER_S",
            "fast",
            "providers.gateway.rate_per_s: Input should be a valid number",
        ),
        ("TIDINGS_PROVIDERS", '{"gateway": {"rate_per_s": "x"}}', "providers.gateway.rate_per_s: Input should be"),
        ("TIDINGS_PROVIDERS__gateway__KIND", "pigeon", "providers.gateway.kind: "),
        ("TIDINGS_CHANNELS__PUSH__PROVIDERS", '["nobody"]', "channels.push.providers: there is no [providers.nobody]"),
        ("TIDINGS_CHANNELS__PUSH__PROVIDERS", "[1]", "channels.push.providers.0: Input should be a valid string"),
        ("TIDINGS_API__LISTN", "x", "api.listn: unknown setting; there are listen"),
        ("REDIS_URL", "redis://host:port", "redis.url: its host or port cannot be read"),
    ],
)
def test_a_wrong_value_of_a_variable_is_told_by_its_name_and_not_by_a_line_of_the_file_that_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, told: str
) -> None:
    file = f'[kafka]\nbootstrap = "k:1"\n{GATEWAY}url = "http://x"\n[channels.push]\nproviders = ["gateway"]\n'
    monkeypatch.setenv(variable, value)
    assert f"{variable}: {told}" in _refusal(tmp_path, file, {variable: value})


def test_what_only_the_file_says_is_told_by_its_line_whatever_the_environment_says_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {"TIDINGS_PROVIDERS": '{"gateway": {"burst": 9}}', "TIDINGS_PROVIDERS__GATEWAY__TIMEOUT_S": "2"}
    for name, text in environ.items():
        monkeypatch.setenv(name, text)
    told = _refusal(tmp_path, GATEWAY.replace("= 1", '= "fast"') + 'url = "http://x"\n', environ)
    assert "tidings.toml:3: providers.gateway.rate_per_s: Input should be a valid number" in told


@pytest.mark.parametrize("text", ["kafka = 'k:1'\nredis = 'redis://r'\n", "[[kafka]]\n[[redis]]\n"])
def test_a_section_that_is_no_table_is_refused_with_its_line_although_the_environment_names_an_address(
    tmp_path: Path, text: str
) -> None:
    told = _refusal(tmp_path, text, {"KAFKA_BOOTSTRAP": "k:1", "REDIS_URL": "redis://r"})
    assert "tidings.toml:1: kafka: must be a table" in told and "tidings.toml:2: redis: must be a table" in told


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('[redis]\nurl = "redis://:hunter2@host:port/0"\n', "tidings.toml:2: redis.url: "),
        ('[redis]\nurl = "redis://:hunter2@host:99999"\n', "tidings.toml:2: redis.url: "),
        (f'{GATEWAY}url = "http://hunter2@host:port/send"\n', "tidings.toml:5: providers.gateway.url: "),
        (f'{GATEWAY}url = "http://[::1/send"\n', "tidings.toml:5: providers.gateway.url: "),
        (f'{GATEWAY}url = "http://x"\nstatus_url = "http://x:y"\n', "tidings.toml:6: providers.gateway.status_url: "),
    ],
)
def test_an_address_that_cannot_be_read_is_told_with_its_line_and_not_shown(
    tmp_path: Path, text: str, where: str
) -> None:
    told = _refusal(tmp_path, text)
    assert f"{where}its host or port cannot be read" in told and "hunter2" not in told


def test_a_redis_address_that_only_the_client_finds_wrong_is_a_refusal_too() -> None:
    with pytest.raises(Misconfigured, match=r"redis\.url: Invalid value for 'db'"):
        redis_client.connect("redis://127.0.0.1:6379?db=first", Epoch())


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (BROKER, "tidings.toml:3: kafka.ca: "),
        (f'{GATEWAY}url = "https://x"\nca = "ca.pem"\n', "tidings.toml:6: providers.gateway.ca: "),
    ],
)
def test_a_wrong_certificate_of_an_authority_is_told_with_its_line_and_a_good_one_starts_at_the_files_folder(
    tmp_path: Path, text: str, where: str
) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_text("junk")
    assert f"{where}{ca} holds no certificate" in _refusal(tmp_path, text)
    trustme.CA().cert_pem.write_to_path(str(ca))
    read = _load(tmp_path, text)
    assert str(ca) in (read.kafka.ca, *(given.ca for given in read.providers.values()))


def test_the_brokers_authority_must_be_there_and_may_be_a_folder(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    told = _refusal(tmp_path, BROKER)
    assert f"tidings.toml:3: kafka.ca: {ca} cannot be read: No such file or directory" in told
    ca.mkdir()
    assert _load(tmp_path, BROKER).kafka.ca == str(ca)


def test_a_providers_authority_need_only_be_where_the_provider_is_called(tmp_path: Path) -> None:
    read = _load(tmp_path, f'{GATEWAY}url = "https://x"\nca = "ca.pem"\n')
    with pytest.raises(Misconfigured, match=r"the provider at https://x: .*ca\.pem cannot be read: No such file"):
        senders.outside(read, "gateway", SystemClock())


def test_what_kafkas_client_refuses_to_be_made_with_is_told_in_words(tmp_path: Path) -> None:
    ca = tmp_path / "gone.pem"
    with pytest.raises(Misconfigured, match=r"\[kafka\] cannot be used: .*ssl.ca.location failed"):
        broker_state.Broker({"bootstrap.servers": "k:1", "security.protocol": "SSL", "ssl.ca.location": str(ca)})


def test_the_loopback_of_ipv6_may_be_served_without_keys(tmp_path: Path) -> None:
    keys = facing_in._keys(_load(tmp_path, '[api]\nlisten = "[::1]:8080"\n'))
    assert not keys.are_configured
