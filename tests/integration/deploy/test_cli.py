"""The `tidings` command as a person meets it: expected errors are told in words, with an exit code of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from deploy import ready
from schemas.errors import Misconfigured


def _tidings(
    *words: str, env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "deploy.cli", *words]
    given = {**os.environ, **(env or {})}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=given, cwd=cwd)


def test_a_wrong_setting_ends_with_its_line_and_no_traceback(tmp_path: Path) -> None:
    file = tmp_path / "tidings.toml"
    file.write_text("[api]\nlisten = 'nowhere'\n")
    for words in (["api"], ["up"], ["work", "push"], ["route", "bulk"], ["provision"]):
        answer = _tidings(*words, "--config", str(file))
        assert answer.returncode == 78
        assert f"{file}:2: api.listen" in answer.stderr and "Traceback" not in answer.stderr


@pytest.mark.parametrize("role", ["up", "api"])
@pytest.mark.parametrize(
    ("policy", "text", "where"),
    [
        ('channels = ["sms"]', "{% block text %}{{ name{% endblock %}", "sms.en.j2:1: "),
        ('channels = ["smS"]', "{% block text %}{{ name }}{% endblock %}", "template.toml:1: channels: "),
    ],
    ids=["text", "settings"],
)
def test_a_wrong_template_is_told_with_its_line_before_a_broker_is_waited_for_or_a_process_started(
    tmp_path: Path, role: str, policy: str, text: str, where: str
) -> None:
    file, template = tmp_path / "tidings.toml", tmp_path / "templates" / "code"
    file.write_text("[kafka]\nbootstrap = '127.0.0.1:1'\n[up]\nlogs = 'logs'\n")
    template.mkdir(parents=True)
    (template / "template.toml").write_text(policy)
    (template / "sms.en.j2").write_text(text)
    answer = _tidings(role, "--config", str(file), env={"KAFKA_BOOTSTRAP": ""})
    assert answer.returncode == 78
    assert f"tidings: {template}/{where}" in answer.stderr and "Traceback" not in answer.stderr
    assert not (tmp_path / "logs").exists()


def test_without_the_folder_of_templates_nothing_is_waited_for_either(tmp_path: Path) -> None:
    file = tmp_path / "tidings.toml"
    file.write_text("[kafka]\nbootstrap = '127.0.0.1:1'\n[templates]\npath = 'nowhere'\n")
    for words in (["up"], ["api"], ["work", "inapp"]):
        answer = _tidings(*words, "--config", str(file), env={"KAFKA_BOOTSTRAP": ""})
        assert answer.returncode == 78 and f"{tmp_path / 'nowhere'} is no folder; point" in answer.stderr


@pytest.mark.parametrize("words", [["up"], ["api"], ["work", "inapp"]])
def test_who_starts_without_a_file_of_settings_is_told_so(tmp_path: Path, words: list[str]) -> None:
    without = _tidings(*words, cwd=tmp_path)
    [warning] = [line for line in without.stderr.splitlines() if '"settings.no_file"' in line]
    assert str(tmp_path / "tidings.toml") in warning and "--config" in warning
    (tmp_path / "tidings.toml").touch()
    assert "settings.no_file" not in _tidings(*words, cwd=tmp_path).stderr


def test_the_secret_that_the_readme_shows_is_no_secret(tmp_path: Path) -> None:
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    [shown] = [line.partition("#")[0] for line in readme.splitlines() if line.startswith("secret = ")]
    (tmp_path / "tidings.toml").write_text(f"[id]\n{shown}\n")
    assert "settings.id_secret_is_the_example" in _tidings("up", cwd=tmp_path).stderr
    (tmp_path / "tidings.toml").write_text('[id]\nsecret = "9f86d081884c7d659a2feaa0c55ad015"\n')
    assert "id_secret_is_the_example" not in _tidings("up", cwd=tmp_path).stderr


def test_a_lane_that_does_not_exist_is_refused() -> None:
    answer = _tidings("work", "pigeon")
    assert answer.returncode == 78 and "'pigeon' is no lane" in answer.stderr


def test_a_new_key_is_shown_with_a_line_the_settings_accept(tmp_path: Path) -> None:
    made = json.loads(_tidings("keys", "create", "--scopes", "send,read", "--json").stdout)
    file = tmp_path / "tidings.toml"
    file.write_text(f"[api]\nlisten = '0.0.0.0:8080'\n[tenants.default]\nkeys = [{made['line']}]\n")
    from deploy import settings

    assert settings.load(file, {}).tenants["default"].keys[0].scopes == ("send", "read")
    assert made["key"] not in file.read_text()
    assert _tidings("keys", "create", "--scopes", "sned").returncode == 78


def test_help_names_every_role() -> None:
    told = _tidings("--help").stdout + _tidings("route", "--help").stdout + _tidings("streams", "--help").stdout
    roles = ("api", "callbacks", "requests", "bulk", "recipients", "dispatch", "fan_out", "status", "work", "forward")
    assert all(role in told for role in (*roles, "reconcile", "up", "provision", "simulate", "users", "keys", "local"))


def test_the_simulators_listen_where_the_providers_point_and_end_on_sigterm(tmp_path: Path) -> None:
    read, write = os.pipe()
    words = ["simulate", "--http-port", "0", "--smtp-port", "0", "--faults", '{"answer_ms": 1}']
    process = subprocess.Popen(
        [sys.executable, "-m", "deploy.cli", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=(write,),
        env={**os.environ, ready.VARIABLE: str(write)},
    )
    os.close(write)
    with open(read, "rb") as told:
        assert told.read(1) == b"1"
    assert process.stdout is not None
    url = process.stdout.readline().partition(": ")[2].strip()
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert json.load(answer)["calls"] == 0
    process.terminate()
    process.communicate(timeout=20)
    assert process.returncode == 0


class UsersApi:
    """Stands where the API stands: refuses a user without a locale, is away for the first call."""

    def __init__(self) -> None:
        self.stored: dict[str, Any] = {}
        self.away = 1

    async def put(self, request: web.Request) -> web.Response:
        if self.away:
            self.away -= 1
            return web.Response(status=503)
        body = await request.json()
        if body.get("locale") == "xx":
            return web.json_response({"detail": "locale: unknown"}, status=422)
        self.stored[request.match_info["user"]] = body
        return web.json_response({})


@pytest.fixture
async def users_api() -> AsyncIterator[tuple[UsersApi, str]]:
    api, app = UsersApi(), web.Application()
    app.router.add_put("/v1/users/{user}", api.put)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield api, f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_users_are_imported_from_ndjson_and_bad_lines_are_named(
    tmp_path: Path, users_api: tuple[UsersApi, str]
) -> None:
    from deploy.commands import users

    file = tmp_path / "users.ndjson"
    file.write_text(
        '{"user_id": "a/b", "locale": "de"}\n\n{"user_id": 2, "locale": "xx"}\n{broken\n[]\n{"locale":"de"}\n'
    )
    report = await users.load(file, users_api[1], "")
    assert users_api[0].stored == {"a/b": {"locale": "de"}}
    assert (report.stored, report.refused_count) == (1, 4)
    told = dict(report.refused)
    assert told[3] == "locale: unknown" and told[4].startswith("not JSON") and told[6] == "user_id: missing"


async def test_users_are_imported_from_csv_with_a_device(tmp_path: Path, users_api: tuple[UsersApi, str]) -> None:
    from deploy.commands import users

    file = tmp_path / "users.csv"
    file.write_text("user_id,email,device.token,device.platform\n1,a@example.org,tok,ios\n2,b@example.org,,\n")
    assert (await users.load(file, users_api[1], "")).stored == 2
    assert users_api[0].stored["1"] == {"email": "a@example.org", "devices": [{"token": "tok", "platform": "ios"}]}
    assert users_api[0].stored["2"] == {"email": "b@example.org"}


async def test_a_line_that_is_no_user_is_refused_and_the_import_goes_on(
    tmp_path: Path, users_api: tuple[UsersApi, str]
) -> None:
    from deploy.commands import users

    file = tmp_path / "users.ndjson"
    file.write_text(f'{{"user_id": "\\ud83d"}}\n"user"\n{"[" * 100_000}\n{{"user_id": "last"}}\n')
    report = await users.load(file, users_api[1], "")
    assert list(users_api[0].stored) == ["last"] and (report.stored, report.refused_count) == (1, 3)
    told = dict(report.refused)
    assert told[1].startswith("user_id: ") and told[2] == "not a JSON object" and told[3].startswith("not JSON")


async def test_a_csv_row_whose_cells_do_not_fit_the_header_is_refused_and_never_stored_under_other_columns(
    tmp_path: Path, users_api: tuple[UsersApi, str]
) -> None:
    from deploy.commands import users

    file = tmp_path / "users.csv"
    rows = [
        "1,de,Anna,a@example.org",
        "2,b@example.org",
        "",
        f"3,de,{'x' * 140_000}",
        '4,"de',
        '5",de,',
        "6,,f@example.org",
    ]
    file.write_text("\r\n".join(["user_id,locale,email", *rows]))
    report = await users.load(file, users_api[1], "")
    assert users_api[0].stored == {"6": {"email": "f@example.org"}} and report.stored == 1
    told = dict(report.refused)
    assert told[2] == "has 4 cells, the header row has 3" and told[3] == "has 2 cells, the header row has 3"
    assert told[5] == "not CSV: field larger than field limit (131072)"
    assert told[6] == told[7] == "not CSV: a quoted cell does not end in its line"


@pytest.mark.parametrize("header", ["", "locale", "user_id,mail", "user_id,email,email", "user_id," + "x" * 140_000])
async def test_a_csv_without_a_header_that_can_be_meant_is_not_begun(tmp_path: Path, header: str) -> None:
    from deploy.commands import users

    file = tmp_path / "users.csv"
    file.write_text(f"{header}\n1,a,b\n")
    with pytest.raises(ExceptionGroup) as refused:
        await users.load(file, "http://127.0.0.1:1", "")
    assert refused.group_contains(Misconfigured, match="the first line must name columns among .*, each once")
