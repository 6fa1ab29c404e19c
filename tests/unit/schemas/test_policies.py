"""Goal: a wrong template never starts; its author reads file, line and what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.errors import Misconfigured
from schemas.messages import Channel, Priority
from schemas.policies import (
    HOUR_MS,
    OFF,
    ContentCheck,
    MessageClass,
    OnUnknown,
    OverCap,
    QuietWindow,
    TemplatePolicy,
    WhenRedisIsDown,
    read_policies,
)


def write(path: Path, name: str, text: str) -> Path:
    (path / name).mkdir()
    for channel in Channel:
        (path / name / f"{channel}.en.j2").touch()
    (path / name / "template.toml").write_text(text)
    return path


def test_a_full_template_is_read(tmp_path: Path) -> None:
    text = """
class = "transactional"
channels = ["push", "email"]
fallback = ["sms"]
expires = "30m"
caps = { day = 3 }
content_check = "params"
on_unknown = "risk_loss"
quiet_hours = "off"
over_cap = "digest"
digest = "5m"
fallback_after = "45s"
when_redis_is_down = "wait"
"""
    write(tmp_path, "receipt", text)
    for channel in ("push", "email", "sms"):
        (tmp_path / "receipt" / f"{channel}.digest.en.j2").touch()
    assert read_policies(tmp_path) == {
        "receipt": TemplatePolicy(
            "receipt",
            MessageClass.TRANSACTIONAL,
            (Channel.PUSH, Channel.EMAIL),
            (Channel.SMS,),
            HOUR_MS // 2,
            {"day": 3},
            ContentCheck.PARAMS,
            OnUnknown.RISK_LOSS,
            OFF,
            OverCap.DIGEST,
            300_000,
            45_000,
            WhenRedisIsDown.WAIT,
        )
    }


@pytest.mark.parametrize("wish", ['digest = "5m"', 'over_cap = "digest"'])
def test_a_digest_needs_a_text_for_many_messages_on_each_channel_that_may_bring_it(tmp_path: Path, wish: str) -> None:
    path = write(
        tmp_path, "comments", f'channels = ["push"]\nfallback = ["sms", "email"]\ncaps = {{ day = 3 }}\n{wish}\n'
    )
    for name in ("push.en", "sms.en", "email.digest.extra.en", "push.digest.de-AT", "email.digest"):
        (tmp_path / "comments" / f"{name}.j2").touch()
    with pytest.raises(Misconfigured) as refusal:
        read_policies(path)
    (told,) = str(refusal.value).splitlines()
    assert "comments/template.toml:4: " in told
    assert "write sms.digest.<locale>.j2 beside it, which gets items" in told


def test_every_channel_needs_a_text_of_its_own_in_some_language(tmp_path: Path) -> None:
    path = write(tmp_path, "comments", 'channels = ["push"]\nfallback = ["sms", "email"]\ndigest = "5m"\n')
    (path / "comments" / "email.en.j2").rename(path / "comments" / "email.j2")
    (path / "comments" / "sms.en.j2").unlink()
    for channel in ("push", "sms", "email"):
        (path / "comments" / f"{channel}.digest.en.j2").touch()
    with pytest.raises(Misconfigured) as refusal:
        read_policies(path)
    (told,) = str(refusal.value).splitlines()
    assert told.endswith(
        'template.toml:2: fallback: there is no text for "sms"; write sms.<locale>.j2 beside it, like sms.en.j2'
    )


def test_a_template_without_a_class_is_marketing_and_lives_three_days(tmp_path: Path) -> None:
    policy = read_policies(write(tmp_path, "sale", 'channels = ["push"]'))["sale"]
    assert policy.message_class is MessageClass.MARKETING
    assert policy.expiry_ms() == 72 * HOUR_MS
    assert policy.priority("") is Priority.BULK


def test_what_a_template_does_not_say_is_the_careful_choice(tmp_path: Path) -> None:
    policy = read_policies(write(tmp_path, "sale", 'channels = ["push"]'))["sale"]
    assert (policy.quiet_hours, policy.over_cap, policy.digest_ms) == (None, OverCap.DROP, 0)
    assert (policy.content_check, policy.when_redis_is_down) == (ContentCheck.TEMPLATE, WhenRedisIsDown.WAIT)
    assert policy.fallback_after_ms == 30_000


def test_a_login_code_may_go_out_while_redis_is_away(tmp_path: Path) -> None:
    text = 'class = "transactional"\nchannels = ["sms"]\nwhen_redis_is_down = "send"'
    assert read_policies(write(tmp_path, "code", text))["code"].when_redis_is_down is WhenRedisIsDown.SEND


@pytest.mark.parametrize(
    ("written", "window"),
    [
        ('quiet_hours = { from = "22:00", to = "08:00" }', QuietWindow("22:00", "08:00")),
        ('[quiet_hours]\nfrom = "00:00"\nto = "23:59"', QuietWindow("00:00", "23:59")),
        ('quiet_hours = "off"', OFF),
    ],
)
def test_quiet_hours_are_a_window_or_off(tmp_path: Path, written: str, window: QuietWindow | str) -> None:
    policies = read_policies(write(tmp_path, "sale", f'channels = ["push"]\n{written}'))
    assert policies["sale"].quiet_hours == window


def test_a_template_may_have_only_a_fallback_list(tmp_path: Path) -> None:
    policy = read_policies(write(tmp_path, "code", 'fallback = ["push", "sms"]'))["code"]
    assert (policy.channels, policy.fallback) == ((), (Channel.PUSH, Channel.SMS))


@pytest.mark.parametrize(("written", "hours"), [("30m", 0.5), ("20h", 20), ("3d", 72), ("21d", 504)])
def test_an_expiry_is_written_in_minutes_hours_or_days(tmp_path: Path, written: str, hours: float) -> None:
    policies = read_policies(write(tmp_path, "sale", f'channels = ["push"]\nexpires = "{written}"'))
    assert policies["sale"].expiry_ms() == hours * HOUR_MS


@pytest.mark.parametrize(
    ("text", "line", "advice"),
    [
        ('class = "urgent"\nchannels = ["push"]', 1, '"transactional", "marketing"'),
        ('class = "marketing"\nchannels = ["fax"]', 2, '"push", "email", "sms", "inapp"'),
        ('channels = "push"', 1, "write a list"),
        ("channels = []", 1, "write a list"),
        ('channels = ["push", "push"]', 1, "once"),
        ('channels = [["push"]]', 1, "write a list"),
        ('class = "marketing"', 1, "list channels"),
        ('channels = ["push"]\n\nfallback = ["sms", "push"]', 3, "circle"),
        ('fallback = ["sms", "sms"]', 1, "once"),
        ('channels = ["push"]\nexpires = "soon"', 2, '"30m", "20h" or "3d"'),
        ('channels = ["push"]\nexpires = 3', 2, '"30m", "20h" or "3d"'),
        ('channels = ["push"]\nexpires = "0m"', 2, '"30m", "20h" or "3d"'),
        ('channels = ["push"]\nexpires = "22d"', 2, '"21d"'),
        ('channels = ["push"]\n# caps\ncaps = { day = 0 }', 3, "{ day = 3 }"),
        ('channels = ["push"]\ncaps = {}', 2, "{ day = 3 }"),
        ('channels = ["push"]\n[caps]\nweek = 3', 2, "{ day = 3 }"),
        ('channels = ["push"]\ncaps.day = true', 2, "{ day = 3 }"),
        ('channels = ["push"]\ncontent_check = "none"', 2, '"template", "params", "off"'),
        ('channels = ["push"]\non_unknown = "retry"', 2, '"risk_repeat", "risk_loss"'),
        ('channels = ["push"]\nquiet_hours = { from = "22:00", to = "22:00" }', 2, "are none, or all of the day"),
        ('channels = ["push"]\nquiet_hours = { from = "00:00", to = "24:00" }', 2, 'from = "22:00", to = "08:00"'),
        ('channels = ["push"]\nquiet_hours = { from = "22:00" }', 2, 'from = "22:00", to = "08:00"'),
        ('channels = ["push"]\n[quiet_hours]\nfrom = "9:00"\nto = "10:00"', 2, 'from = "22:00", to = "08:00"'),
        ('channels = ["push"]\nquiet_hours = false', 2, 'or "off" for never'),
        (
            'class = "transactional"\nchannels = ["push"]\nquiet_hours = { from = "22:00", to = "08:00" }',
            3,
            'remove it here, or write class = "marketing"',
        ),
        ('channels = ["push"]\nover_cap = "queue"', 2, '"drop", "digest"'),
        ('class = "transactional"\nchannels = ["push"]\nover_cap = "digest"', 3, "write caps = { day = 3 }, or remove"),
        ('channels = ["push"]\ndigest = "soon"', 2, '"30s", "5m" or "1h"'),
        ('channels = ["push"]\ndigest = "0s"', 2, '"30s", "5m" or "1h"'),
        ('channels = ["push"]\nexpires = "5m"\ndigest = "5m"', 3, "write less than expires"),
        ('channels = ["push"]\ndigest = "72h"', 2, "write less than expires"),
        ('channels = ["push"]\nfallback_after = 30', 2, '"30s" or "2m"'),
        ('channels = ["push"]\nfallback = ["sms"]\nfallback_after = "30s"', 3, "only a transactional template"),
        ('class = "transactional"\nchannels = ["push"]\nfallback_after = "1m"', 3, "with a fallback list"),
        ('channels = ["push"]\nwhen_redis_is_down = "drop"', 2, '"wait", "send"'),
        ('channels = ["push"]\nwhen_redis_is_down = "send"', 2, 'write "wait"'),
        (
            'class = "transactional"\nchannels = ["push"]\non_unknown = "risk_loss"\nwhen_redis_is_down = "send"',
            4,
            "may repeat a call",
        ),
        ('channels = ["push"]\nchanel = "sms"', 2, "there are class, channels"),
        ('channels = ["push"]\nclass = ', 2, "not TOML"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_what_to_write(tmp_path: Path, text: str, line: int, advice: str) -> None:
    with pytest.raises(Misconfigured) as refusal:
        read_policies(write(tmp_path, "sale", text))
    assert f"sale/template.toml:{line}: " in str(refusal.value)
    assert advice in str(refusal.value)


def test_all_mistakes_of_all_templates_are_told_at_once(tmp_path: Path) -> None:
    write(tmp_path, "one", 'class = "urgent"\nchannels = ["fax"]')
    write(tmp_path, "two", "")
    with pytest.raises(Misconfigured) as refusal:
        read_policies(tmp_path)
    assert [line.split(": ")[0].removeprefix(str(tmp_path)) for line in str(refusal.value).splitlines()] == [
        "/one/template.toml:1",
        "/one/template.toml:2",
        "/two/template.toml:1",
    ]


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "sale", "")
    (tmp_path / "sale" / "template.toml").write_bytes(b'class = "\xff"')
    with pytest.raises(Misconfigured, match=r"sale/template\.toml:1: not TOML"):
        read_policies(tmp_path)


def test_a_folder_without_a_policy_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sale").mkdir()
    with pytest.raises(Misconfigured, match=r"sale/template.toml.*every template needs one"):
        read_policies(tmp_path)


def test_shared_parts_and_hidden_folders_are_no_templates(tmp_path: Path) -> None:
    (tmp_path / "_shared").mkdir()
    (tmp_path / ".git").mkdir()
    assert read_policies(tmp_path) == {}


def test_a_folder_name_that_could_not_stand_in_a_request_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="letters, digits"):
        read_policies(write(tmp_path, "summer sale", 'channels = ["push"]'))


def test_a_missing_folder_is_refused_naming_the_setting(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"\[templates\] path"):
        read_policies(tmp_path / "nowhere")


def test_a_request_may_lower_a_class_and_never_raise_it() -> None:
    urgent = TemplatePolicy("code", MessageClass.TRANSACTIONAL, (Channel.SMS,))
    leisurely = TemplatePolicy("sale", MessageClass.MARKETING, (Channel.SMS,))
    assert urgent.priority("") is Priority.TRANSACTIONAL
    assert urgent.priority("bulk") is Priority.BULK
    assert leisurely.priority("transactional") is Priority.BULK
