"""What the README tells people to write is what Tidings accepts."""

from __future__ import annotations

import json
import re
from pathlib import Path

from deploy import settings
from producers import fields
from producers.api.users import UserBody
from producers.request_bodies import CampaignBody, CampaignChangeBody, NotificationBody, RecipientBody
from schemas import policies, schema_files
from tests.tidy.house import ROOT

README = (ROOT / "README.md").read_text()
BODIES: dict[str, type[fields.Body]] = {
    "users/anna": UserBody,
    "notifications": NotificationBody,
    "campaigns": CampaignBody,
    "campaigns/spring-all": CampaignChangeBody,
}
LINES_MOST = 200
POSTED = re.compile(r"/v1/([a-z/-]+)(?: |$)(?:(?!curl)[^{])*?(?:-d '\s*|campaign=)(\{.*?\})(?:'|;type)", re.DOTALL)
"""(resource, JSON) of each curl that sends something."""


def block(kind: str) -> str:
    found = re.search(rf"^```{kind}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def test_its_settings_are_accepted_and_its_templates_are_there(tmp_path: Path) -> None:
    file = tmp_path / "tidings.toml"
    file.write_text(block("toml"))
    found = settings.load(file, {})
    known = policies.read_policies(ROOT / found.templates.path.relative_to(tmp_path))
    for name in re.findall(r'"template": "([a-z-]+)"', README):
        assert {*known[name].channels, *known[name].fallback} <= {*found.channels, "inapp"}


def test_its_requests_are_accepted() -> None:
    posted = POSTED.findall(README)
    named = [resource for resource, _ in posted]
    assert named == ["users/anna", "notifications", "campaigns", "campaigns", "campaigns/spring-all"]
    for resource, body in posted:
        fields.read(BODIES[resource], body.encode())


def test_the_audience_that_it_makes_is_accepted_and_is_the_one_it_shows() -> None:
    [(most, line)] = re.findall(r"^seq (\d+) \| sed 's/\.\*/(.*)/' > audience\.ndjson", README, re.MULTILINE)
    shown = re.findall(r"^# (\{.*\})$", README, re.MULTILINE)
    assert shown == [line.replace("&", str(number)) for number in (1, 2)] and int(most) > 2
    for one in shown:
        fields.read(RecipientBody, one.encode())


def test_its_event_fits_the_schema_it_names() -> None:
    sample = block("python")
    compile(sample, "README.md", "exec")
    [number] = re.findall(r"^ID = (\d+)", sample, re.MULTILINE)
    schema = schema_files.load().by_id[int(number)]
    assert schema.name == "NotificationRequested"
    [event] = re.findall(r"^event = (\{.*\})$", sample, re.MULTILINE)
    assert set(json.loads(event.replace("params}", '"{}"}'))) <= {field["name"] for field in schema.document["fields"]}


def test_it_is_read_in_five_minutes() -> None:
    assert README.count("\n") < LINES_MOST
