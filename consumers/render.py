"""Template and values -> what one person reads, in their language; the last step before the call.

`templates/<name>/<channel>.<locale>.j2` (or `<channel>.j2`) holds the blocks subject, title, text, html and
data and nothing beside them; `<channel>.digest.<locale>.j2` is the text of many messages as one. All of it is compiled
when a worker starts: a wrong template is refused with file and line (so does the API, and `tidings up` before all).
Only html is escaped: a subject, SMS or push shows `O'Neil & Söns` as they write themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson
from jinja2 import FileSystemLoader, Template, TemplateSyntaxError, meta, nodes
from jinja2.exceptions import TemplateError

from consumers.sandbox import Sandbox, TooMuch, measured_concat
from schemas import metrics, sms_segments
from schemas.content import Content
from schemas.errors import Misconfigured, Poison
from schemas.messages import Channel, Delivery
from schemas.policies import DIGEST
from schemas.reasons import ParkReason

BLOCKS = ("subject", "title", "text", "html", "data")
_ONE_LINE = frozenset({"subject", "title"})
DETAIL_MAX = 200
SMS_SEGMENTS_MAX = 12
"""At most 804 characters in any script, 1,836 in Latin: beyond is a template gone wrong, and dear."""

Render = Callable[[Any], Iterator[str]]


class Renderer:
    """All templates, compiled. default_locales: tenant -> locale for those whose own has no text.

    sms_segments_max: an SMS is never shortened, nor cut by us (the provider cuts it into segments); a longer one fails.
    """

    def __init__(
        self, folder: Path, default_locales: Mapping[str, str], sms_segments_max: int = SMS_SEGMENTS_MAX
    ) -> None:
        self._default_locales = default_locales
        self._sms_segments_max = sms_segments_max
        self._sheets = _load(folder)
        self._chosen: dict[tuple[str, str, str, str], _Sheet] = {}
        self._mentions: dict[str, frozenset[str] | None] = {}

    def render(self, delivery: Delivery, locale: str) -> Content:
        """The content for this delivery. Raises Poison (unknown_template, template_error, bad_request)."""
        sheet, spoken = self._sheet(delivery, locale)
        values = {**_campaign_values(delivery.campaign_params), **_values(delivery.params)}
        values["user_id"] = delivery.user_id
        values["locale"] = spoken
        try:
            content = sheet.content(values)
        except (
            TemplateError,
            ArithmeticError,
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
            RecursionError,
        ) as e:
            metrics.RENDER_FAILURES.labels(delivery.template).inc()
            raise Poison(ParkReason.TEMPLATE_ERROR, f"{sheet.path}: {_told(e)}") from e
        if delivery.channel is Channel.SMS:
            self._check_length(delivery, sheet, content)
        return content

    def mentions(self, template: str) -> frozenset[str] | None:
        """The values that any of the template's texts may show; None when a part from elsewhere may show others."""
        if template not in self._mentions:
            spoken = [sheets.values() for (name, _), sheets in self._sheets.items() if name == template]
            known = [sheet.mentions for sheets in spoken for sheet in sheets]
            together = frozenset[str]().union(*(names for names in known if names is not None))
            self._mentions[template] = None if None in known else together
        return self._mentions[template]

    def _check_length(self, delivery: Delivery, sheet: _Sheet, content: Content) -> None:
        segments, most = sms_segments.count(content.text).segments, self._sms_segments_max
        if segments > most:
            metrics.RENDER_FAILURES.labels(delivery.template).inc()
            text = f"{sheet.path}: the text fills {segments} SMS segments; at most {most} ([sending] sms_segments_max)"
            raise Poison(ParkReason.TEMPLATE_ERROR, text)

    def _sheet(self, delivery: Delivery, locale: str) -> tuple[_Sheet, str]:
        kind = f"{delivery.channel}.{DIGEST}" if delivery.digest_of > 1 else str(delivery.channel)
        wish = (delivery.template, kind, delivery.tenant, locale)
        sheet = self._chosen.get(wish)
        if sheet is None:
            sheet = self._choose(*wish)
            if len(self._chosen) < 10_000:  # locales come from outside
                self._chosen[wish] = sheet
        return sheet, locale or self._default_locales.get(delivery.tenant, "")

    def _choose(self, template: str, channel: str, tenant: str, locale: str) -> _Sheet:
        """de-AT -> de -> the tenant's default -> the file without a locale -> the first there is."""
        spoken = self._sheets.get((template, channel))
        if not spoken:
            raise Poison(ParkReason.UNKNOWN_TEMPLATE, f"no template {template} for {channel}")
        for wish in (*_widening(locale), *_widening(self._default_locales.get(tenant, "")), ""):
            if wish in spoken:
                return spoken[wish]
        return spoken[min(spoken)]


@dataclass(frozen=True, slots=True)
class _Sheet:
    """One file: its blocks bound to what runs them. escaped: the same file with escaping, for html only.

    mentions: the names of values in it; None where it takes in another file.
    """

    path: str
    plain: Template
    blocks: tuple[tuple[str, Render], ...]
    escaped: Template | None
    html: Render | None
    mentions: frozenset[str] | None

    def content(self, values: dict[str, Any]) -> Content:
        context = _begin(self.plain, values)
        parts = {name: _clean(name, measured_concat(block(context))) for name, block in self.blocks}
        if self.escaped is not None and self.html is not None:
            parts["html"] = measured_concat(self.html(_begin(self.escaped, values))).strip()
        return Content(**{"text": "", **parts})


def _begin(template: Template, values: dict[str, Any]) -> Any:
    """A fresh context: what Template.new_context does, without copying the globals one by one."""
    environment = template.environment
    assert isinstance(environment, Sandbox)
    environment.begin()
    return environment.context_class(environment, {**environment.globals, **values}, template.name, template.blocks)


def _clean(name: str, text: str) -> str:
    """A subject in two lines would forge a header; data that is not an object would reach nobody."""
    if name in _ONE_LINE:
        return " ".join(text.split())
    text = text.strip()
    if name == "data" and text and not isinstance(orjson.loads(text), dict):
        raise ValueError("block data is no JSON object")
    return text


def _values(params: str) -> dict[str, Any]:
    try:
        values = orjson.loads(params or "{}")
    except orjson.JSONDecodeError as error:
        raise Poison(ParkReason.BAD_REQUEST, f"params are no JSON: {error}") from error
    if not isinstance(values, dict):
        raise Poison(ParkReason.BAD_REQUEST, "params are no JSON object")
    return values


@lru_cache(maxsize=1_000)
def _campaign_values(params: str) -> Mapping[str, Any]:
    """The campaign's own values: the same text for all its recipients."""
    return _values(params)


def _widening(locale: str) -> Iterator[str]:
    """de-AT, de."""
    tag = locale.replace("_", "-").lower()
    while tag:
        yield tag
        tag = tag.rpartition("-")[0]


def _told(error: Exception) -> str:
    """What a person needs to know; never the values."""
    if isinstance(error, TemplateError | TooMuch):
        return f"{type(error).__name__}: {error.message}"[:DETAIL_MAX]
    return type(error).__name__


def check_texts(folder: Path) -> None:
    """Compiles all texts as a worker does. Raises Misconfigured for the first wrong file."""
    _load(folder)


def _load(folder: Path) -> dict[tuple[str, str], dict[str, _Sheet]]:
    """(template, channel; "push.digest" for many as one) -> locale -> sheet.

    Raises Misconfigured for the first wrong file.
    """
    loader = FileSystemLoader(folder)
    plain, escaped = Sandbox(loader, autoescape=False), Sandbox(loader, autoescape=True)
    sheets: dict[tuple[str, str], dict[str, _Sheet]] = {}
    for path in sorted(folder.glob("*/*.j2")):
        channel, _, locale = path.name.removesuffix(".j2").partition(".")
        if channel in list(Channel):  # others are parts to include
            if locale.partition(".")[0] == DIGEST:
                channel, locale = f"{channel}.{DIGEST}", locale.partition(".")[2]
            spoken = sheets.setdefault((path.parent.name, channel), {})
            spoken[locale.replace("_", "-").lower()] = _compiled(folder, path, plain, escaped)
    return sheets


def _compiled(folder: Path, path: Path, plain: Sandbox, escaped: Sandbox) -> _Sheet:
    name = path.relative_to(folder).as_posix()
    try:
        parsed = plain.parse(path.read_text(encoding="utf-8"), name, str(path))
        _check(parsed, path)
        bare, safe = plain.get_template(name), escaped.get_template(name)
    except TemplateSyntaxError as error:
        raise Misconfigured(f"{error.filename or path}:{error.lineno}: {error.message}") from error
    except (TemplateError, UnicodeDecodeError) as error:
        raise Misconfigured(f"{path}:1: {error}") from error
    has_html = "html" in safe.blocks
    blocks = tuple((block, bare.blocks[block]) for block in BLOCKS if block in bare.blocks and block != "html")
    is_whole = not any(meta.find_referenced_templates(parsed))
    mentions = frozenset(meta.find_undeclared_variables(parsed)) if is_whole else None
    return _Sheet(name, bare, blocks, safe if has_html else None, safe.blocks["html"] if has_html else None, mentions)


def _check(template: nodes.Template, path: Path) -> None:
    """Only known blocks at the top, with a text among them; no loops that call themselves."""
    names = set()
    for node in template.body:
        if isinstance(node, nodes.Block):
            names.add(node.name)
            if node.name not in BLOCKS:
                raise _wrong(path, node, f"unknown block {node.name}; there are {', '.join(BLOCKS)}")
        elif not _is_blank(node):
            raise _wrong(path, node, "only blocks may stand at the top of a template")
    for loop in template.find_all(nodes.For):
        if loop.recursive:
            raise _wrong(path, loop, "recursive loops are not allowed")
    if "text" not in names and "html" not in names:
        raise Misconfigured(f"{path}:1: the template needs a block text")


def _is_blank(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Output) and all(
        isinstance(part, nodes.TemplateData) and not part.data.strip() for part in node.nodes
    )


def _wrong(path: Path, node: nodes.Node, text: str) -> Misconfigured:
    return Misconfigured(f"{path}:{node.lineno}: {text}")
