"""What people read, in their language; and what a wrong template may not do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from consumers.render import Renderer
from consumers.sandbox import MAX_BYTES, MAX_TURNS
from schemas.content import Content
from schemas.errors import Misconfigured, Poison
from schemas.messages import Channel
from tests.doubles import deliveries

NAME = '{"name": "O\'Neil & Söns <b>"}'
PLAIN = "O'Neil & Söns <b>"


def rendered(folder: Path, locale: str = "", channel: Channel = Channel.SMS, **changes: Any) -> Content:
    delivery = deliveries.single(channel=channel, **{"params": NAME, **changes})
    return Renderer(folder, {"default": "de"}).render(delivery, locale)


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / "welcome" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return folder


def text(folder: Path, body: str, channel: Channel = Channel.SMS, **changes: Any) -> str:
    sheet = "{% block text %}" + body + "{% endblock %}"
    return rendered(write(folder, f"{channel}.de.j2", sheet), channel=channel, **changes).text


def refusal(folder: Path, body: str) -> str:
    with pytest.raises(Poison) as refused:
        text(folder, body)
    assert refused.value.reason == "template_error"
    return str(refused.value)


EMAIL = """{% block subject %}Hello
 {{ name }}{% endblock %}
{% block text %}
Hello {{ name }}{% endblock %}
{% block html %}<p>Hello {{ name }}</p>{% endblock %}
{% block data %}{"name": {{ name | tojson }}}{% endblock %}
"""


def test_a_name_is_plain_in_subject_and_text_and_escaped_in_html(tmp_path: Path) -> None:
    """N54"""
    content = rendered(write(tmp_path, "email.de.j2", EMAIL), channel=Channel.EMAIL)
    assert content.subject == f"Hello {PLAIN}"
    assert content.text == f"Hello {PLAIN}"
    assert content.html == "<p>Hello O&#39;Neil &amp; Söns &lt;b&gt;</p>"


def test_sms_and_push_show_a_name_as_its_owner_writes_it(tmp_path: Path) -> None:
    """N54"""
    write(tmp_path, "push.de.j2", "{% block title %}{{ name }}{% endblock %}{% block text %}{{ name }}!{% endblock %}")
    content = rendered(tmp_path, channel=Channel.PUSH)
    assert (content.title, content.text) == (PLAIN, PLAIN + "!")
    assert text(tmp_path, "{{ name }}") == PLAIN


def test_a_line_break_in_a_value_cannot_forge_a_mail_header(tmp_path: Path) -> None:
    write(tmp_path, "email.de.j2", EMAIL)
    content = rendered(tmp_path, channel=Channel.EMAIL, params='{"name": "Ada\\r\\nBcc: all@example.org"}')
    assert content.subject == "Hello Ada Bcc: all@example.org"


@pytest.mark.parametrize(
    ("locale", "read"),
    [("de-AT", "de-at"), ("de_AT", "de-at"), ("de-CH", "de"), ("fr-CA", "fr"), ("nl", "de"), ("", "de")],
)
def test_everybody_reads_their_own_language_or_the_nearest_there_is(tmp_path: Path, locale: str, read: str) -> None:
    for name in ("de-AT", "de", "fr"):
        write(tmp_path, f"sms.{name}.j2", "{% block text %}" + name.lower() + "{% endblock %}")
    assert rendered(tmp_path, locale).text == read


def test_without_the_tenants_language_the_declared_default_is_read(tmp_path: Path) -> None:
    write(tmp_path, "sms.fr.j2", "{% block text %}fr{% endblock %}")
    assert rendered(tmp_path, "nl").text == "fr"
    write(tmp_path, "sms.j2", "{% block text %}default{% endblock %}")
    assert rendered(tmp_path, "nl").text == "default"


def test_a_recipients_value_wins_over_the_campaigns(tmp_path: Path) -> None:
    shown = text(tmp_path, "{{ a }}{{ b }}{{ user_id }}", params='{"b": "own"}', campaign_params='{"a": 1, "b": 2}')
    assert shown == "1own42"


def test_a_missing_value_is_an_error_and_never_a_gap_in_a_sentence(tmp_path: Path) -> None:
    assert "'discount' is undefined" in refusal(tmp_path, "You save {{ discount }} %")


def test_an_unknown_template_is_named(tmp_path: Path) -> None:
    write(tmp_path, "sms.de.j2", "{% block text %}x{% endblock %}")
    with pytest.raises(Poison, match="unknown_template: no template welcome for email"):
        rendered(tmp_path, channel=Channel.EMAIL)


def test_data_must_be_a_json_object(tmp_path: Path) -> None:
    for data, is_right in (('{"id": {{ name | tojson }}}', True), ('{"id": "{{ name }}', False), ("[1]", False)):
        write(tmp_path, "push.de.j2", "{% block text %}x{% endblock %}{% block data %}" + data + "{% endblock %}")
        if is_right:
            assert rendered(tmp_path, channel=Channel.PUSH).data.startswith('{"id": ')
        else:
            with pytest.raises(Poison, match="template_error"):
                rendered(tmp_path, channel=Channel.PUSH)


@pytest.mark.parametrize(
    "body",
    [
        "{% for a in range(200) %}{% for b in range(200) %}{% endfor %}{% endfor %}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(40) }}",
        "{% set t = namespace(x='ab') %}{% for i in range(99) %}{% set t.x = t.x ~ t.x %}{% endfor %}",
        "{% set t = namespace(x='ab') %}{% for i in range(99) %}{% set t.x = t.x + t.x %}{% endfor %}",
        "{% set t = namespace(x='a') %}{% for i in range(99) %}{% set t.x %}{{ t.x }}{{ t.x }}{% endset %}{% endfor %}",
        "{{ 'x' * 300000 }}",
        "{{ 300000 * [1] }}",
        "{{ 9 ** 99999 }}",
        "{{ '%99999d' | format(1) }}",
        "{{ '%99999d' % 1 }}",
        "{{ '{:99999}'.format(1) }}",
        "{{ 'a'.ljust(999999) }}",
        "{{ ('a' * 9999) | replace('a', 'b' * 9999) }}",
        "{{ range(9999) | list | join('b' * 9999) }}",
        "{% for i in range(9999) %}{{ 'x' * 99 }}{% endfor %}",
        "{{ 'a' | indent(999999, true) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ [].append(1) }}",
        "{{ 1 / 0 }}",
        "{{ name.x.y }}",
    ],
)
def test_a_slip_in_a_template_parks_one_record_and_leaves_the_worker_well(tmp_path: Path, body: str) -> None:
    refusal(tmp_path, body)


def test_long_but_lawful_work_is_done(tmp_path: Path) -> None:
    turns = MAX_TURNS - 10
    assert len(text(tmp_path, "{% for i in range(" + str(turns) + ") %}x{% endfor %}", Channel.EMAIL)) == turns
    assert len(text(tmp_path, "{{ 'x' * " + str(MAX_BYTES) + " }}", Channel.EMAIL)) == MAX_BYTES
    assert text(tmp_path, "{{ '%.2f' | format(3) }} {{ ['a', 'b'] | join(', ') }} {{ 'a' ~ 1 }}") == "3.00 a, b a1"


FAMILY = "👨‍👩‍👧‍👦"
LINK = "https://shop.example.org/orders/4711?from=sms"


@pytest.mark.parametrize("before", [*range(50, 72), *range(660, 672)])
def test_an_sms_is_never_shortened_wherever_a_link_and_a_family_fall(tmp_path: Path, before: int) -> None:
    """N52: 700 characters, the family and the link across every border of a segment."""
    whole = ("я" * before + FAMILY + LINK)[:700].ljust(700, "я")
    assert text(tmp_path, whole) == whole


def test_an_sms_of_more_segments_than_the_limit_fails_with_both_numbers(tmp_path: Path) -> None:
    assert len(text(tmp_path, "я" * 804)) == 804
    assert "welcome/sms.de.j2: the text fills 13 SMS segments; at most 12 (" in refusal(tmp_path, "я" * 803 + FAMILY)


def test_a_mail_a_push_or_an_inbox_message_has_no_segments(tmp_path: Path) -> None:
    for channel in (Channel.EMAIL, Channel.PUSH, Channel.INAPP):
        assert len(text(tmp_path, "я" * 5_000, channel)) == 5_000


def test_every_rendering_has_its_own_count(tmp_path: Path) -> None:
    folder = write(tmp_path, "sms.de.j2", "{% block text %}{% for i in range(15000) %}{% endfor %}x{% endblock %}")
    renderer = Renderer(folder, {})
    assert [renderer.render(deliveries.single(), "de").text for _ in range(3)] == ["x"] * 3


@pytest.mark.parametrize(
    ("source", "line", "complaint"),
    [
        ("{% block text %}\n{{ name }\n{% endblock %}", 2, "unexpected '}'"),
        ("{% block text %}{% endblock %}\n\n{% block txet %}{% endblock %}", 3, "unknown block txet"),
        ("{% block text %}{% endblock %}\nHello", 2, "only blocks may stand at the top"),
        ("{% set x = 1 %}{% block text %}{{ x }}{% endblock %}", 1, "only blocks may stand at the top"),
        ("{% block text %}\n{% for x in y recursive %}{% endfor %}{% endblock %}", 2, "recursive loops"),
        ("{% block text %}\n{{ name | shout }}{% endblock %}", 2, "No filter named 'shout'"),
        ("{% block title %}{% endblock %}", 1, "needs a block text"),
    ],
)
def test_a_wrong_template_is_refused_at_start_with_file_and_line(
    tmp_path: Path, source: str, line: int, complaint: str
) -> None:
    with pytest.raises(Misconfigured) as refused:
        Renderer(write(tmp_path, "sms.de.j2", source), {})
    assert f"welcome/sms.de.j2:{line}: " in str(refused.value)
    assert complaint in str(refused.value)
