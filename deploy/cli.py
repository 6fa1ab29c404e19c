"""The `tidings` command. Every role is one command; expected errors are told in a paragraph, never as a traceback.

Exit codes: 0 done, 1 done in part, 75 try later, 78 a person must change something first.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import sys
from collections.abc import Coroutine, Mapping, Sequence
from contextvars import ContextVar
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from deploy import fork_client, logs, roles, running, settings, up
from schemas.clock import SystemClock
from schemas.errors import Misconfigured, TidingsError
from schemas.gaps import Gap
from schemas.messages import HoldOrder

if TYPE_CHECKING:
    from deploy.commands.campaigns import Door

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help="A notification pipeline on Kafka.")
route = typer.Typer(no_args_is_help=True, help="Bring one kind of record across.")
streams = typer.Typer(no_args_is_help=True, help="The Faust roles.")
keys = typer.Typer(no_args_is_help=True, help="API keys.")
users = typer.Typer(no_args_is_help=True, help="Profiles.")
campaigns = typer.Typer(no_args_is_help=True, help="How campaigns are, and orders to them, through the API.")
holds = typer.Typer(no_args_is_help=True, help="What waits in hold, and orders about single deliveries in it.")
breaker = typer.Typer(no_args_is_help=True, help="Whether providers are called.")
local = typer.Typer(no_args_is_help=True, help="Kafka and Redis on this machine, to develop against.")
for name, group in (
    ("route", route),
    ("streams", streams),
    ("keys", keys),
    ("users", users),
    ("campaigns", campaigns),
    ("holds", holds),
    ("breaker", breaker),
    ("local", local),
):
    app.add_typer(group, name=name)

log = logging.getLogger(__name__)
_gap: ContextVar[Gap | None] = ContextVar("gap", default=None)
out = Console(width=1_000)
"""A line is a line on any screen and in any pipe: nothing is cut that another command asks for."""
_NO_FILE = "name it with --config; without one all comes from the environment and the defaults"
Config = Annotated[
    Path | None, typer.Option("--config", "-c", envvar="TIDINGS_CONFIG", help="tidings.toml; default: the one here.")
]
Json = Annotated[bool, typer.Option("--json", help="For machines.")]
Url = Annotated[str, typer.Option("--url", help="The API; default: the settings' own address.")]
Reading = Annotated[str, typer.Option("--key", envvar="TIDINGS_API_KEY", help="An API key with the scope read.")]
Steering = Annotated[
    str, typer.Option("--key", envvar="TIDINGS_API_KEY", help="An API key with the scope campaigns or operate.")
]
Provider = Annotated[str, typer.Argument(metavar="PROVIDER", help="Its name in the settings.")]
CampaignId = Annotated[str, typer.Argument(metavar="CAMPAIGN")]


def main(gap: Gap | None = None) -> None:
    """The console script. gap: for the role that is run, see `schemas/gaps.py`."""
    _gap.set(gap)
    try:
        app()
    except* Misconfigured as wrong:
        _fail(wrong, running.MISCONFIGURED)
    except* TidingsError as wrong:
        _fail(wrong, running.TRY_LATER)


def _fail(wrong: BaseExceptionGroup[TidingsError], code: int) -> None:
    first: BaseException = wrong
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    print(f"{running.SAYS}{first}", file=sys.stderr)
    sys.exit(code)


def _settings(config: Path | None, role: str = "") -> settings.Settings:
    """role: of a process that stays; from here on it logs, and says when it runs without a file."""
    here = Path("tidings.toml")
    file = config or (here if here.exists() else None)
    chosen = settings.load(file)
    if role:
        logs.set_up(role)
        if file is None:
            log.warning("settings.no_file", extra={"looked_for": str(here.absolute()), "advice": _NO_FILE})
        if chosen.id.secret.get_secret_value() == settings.EXAMPLE_SECRET:
            log.warning("settings.id_secret_is_the_example", extra={"advice": settings.WRITE_YOUR_OWN})
    return chosen


def _run_role(room: str, role: str, config: Path | None, *arguments: Any) -> None:
    """Runs the function named after the role in a module of `processes` that is imported only now."""
    chosen = _settings(config, role)
    processes = importlib.import_module(f"deploy.processes.{room}")
    name = role.partition(" ")[0] if room == "facing_out" else role.replace(" ", "_")
    running.run(role, lambda: getattr(processes, name)(chosen, *arguments, gap=_gap.get()))


@app.command()
def api(config: Config = None) -> None:
    """Serve the HTTP API."""
    _run_role("facing_in", "api", config)


@app.command()
def callbacks(config: Config = None) -> None:
    """Take the providers' webhooks."""
    _run_role("facing_in", "callbacks", config)


@route.command("requests")
def route_requests(config: Config = None) -> None:
    """Transactional singles to their lanes."""
    _run_role("facing_across", "route requests", config)


@route.command("bulk")
def route_bulk(config: Config = None) -> None:
    """Bulk singles to their lanes, at the pace dispatch grants."""
    _run_role("facing_across", "route bulk", config)


@route.command("callbacks")
def route_callbacks(config: Config = None) -> None:
    """Raw callbacks to status events."""
    _run_role("facing_across", "route callbacks", config)


@route.command("recipients")
def route_recipients(config: Config = None) -> None:
    """Profiles and suppressions to Redis."""
    _run_role("facing_across", "route recipients", config)


@app.command()
def dispatch(config: Config = None) -> None:
    """Release campaign pages: fair, paced; one of them leads."""
    _run_role("facing_across", "dispatch", config)


@streams.command("fan_out")
def fan_out(config: Config = None) -> None:
    """Pages to deliveries."""
    _run_role("on_faust", "fan_out", config)


@streams.command("status")
def status(config: Config = None) -> None:
    """Status events to rows, public state and reads."""
    _run_role("on_faust", "status", config)


@app.command()
def work(
    lane: Annotated[str, typer.Argument(metavar="CHANNEL[.LANE]", help="push, email.bulk, ...")], config: Config = None
) -> None:
    """Send: from one lane, or from both lanes of a channel, to its providers."""
    channel, _, priority = lane.partition(".")
    if channel not in ("push", "email", "sms", "inapp") or priority not in ("", *settings.PRIORITIES):
        raise Misconfigured(f"{lane!r} is no lane; write a channel, or one of its lanes like push.bulk")
    priorities = (priority,) if priority else settings.PRIORITIES
    _run_role("facing_out", f"work {lane}", config, channel, priorities)


@app.command()
def forward(config: Config = None) -> None:
    """Waiting rooms back to lanes, when due."""
    _run_role("facing_out", "forward", config)


@app.command()
def reconcile(config: Config = None) -> None:
    """What was sent long ago without a word: ask the provider, or mark it."""
    _run_role("facing_across", "reconcile", config)


@app.command("up")
def up_(config: Config = None) -> None:
    """Run everything on this machine."""
    from deploy import templates

    chosen = _settings(config, "up")
    templates.check(chosen.templates.path)
    options = ("--config", str(config.resolve())) if config else ()
    forks = fork_client.ForkClient("deploy.cli", roles.MODULES, chosen.up.logs / "fork-server.log")
    supervisor = up.Supervisor(tuple(roles.of(chosen)), options, chosen.up.logs, forks)

    async def whole() -> None:
        async with forks:  # imports while the broker is looked at
            await importlib.import_module("deploy.catalogue").provision_patiently(chosen)
            await supervisor.run(chosen.up.ready_within_s)

    running.run("up", whole, up.STOP_WITHIN_S)


@app.command()
def provision(
    config: Config = None,
    apply: Annotated[bool, typer.Option("--apply", help="Make the changes shown.")] = False,
    as_json: Json = False,
) -> None:
    """Show how the broker differs from the catalogue of topics; with --apply, make it match."""
    from deploy import catalogue

    differences = asyncio.run(catalogue.provision(_settings(config, "provision"), apply))
    changes = [str(one) for one in differences if one.is_made]
    if as_json:
        left = [str(one) for one in differences if not one.is_made]
        print(json.dumps({"applied": apply, "changes": changes, "left": left}))
        return
    for one in differences:
        out.print(one.told(apply), highlight=False)
    out.print(f"{len(changes)} changes" if differences else "the broker matches the catalogue", highlight=False)


@app.command()
def simulate(
    config: Config = None,
    http_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="0: any free port. Default: the settings' provider.")
    ] = None,
    smtp_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="0: any free port. Default: the settings' provider.")
    ] = None,
    faults: Annotated[str, typer.Option(help='JSON, e.g. {"answer_ms": 10, "errors": {"500": 0.01}}')] = "",
) -> None:
    """Stand in for the providers: an HTTP gateway and a mail server with a ledger."""
    from deploy.commands import simulate as command

    chosen = command.options(_settings(config), http_port, smtp_port, faults)
    running.run("simulate", lambda: command.simulate(chosen))


@app.command()
def demo() -> None:
    """See it work: four channels, a campaign of 20,000, a worker killed in the middle."""
    from deploy.demo import story

    sys.exit(story.run())


@app.command()
def blast(
    recipients: Annotated[int, typer.Option(help="Of the large campaign.")] = 1_000_000,
    rate: Annotated[int, typer.Option(help="What the provider takes a second; 70 % of it are for campaigns.")] = 2_000,
    seconds: Annotated[float, typer.Option(help="Give up after so many; 0: three times what the rate needs.")] = 0,
    seed: Annotated[int, typer.Option(help="Of the moments of --kill.")] = 1,
    kill: Annotated[bool, typer.Option("--kill", help="kill -9 one process of each kind meanwhile.")] = False,
    as_json: Json = False,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a picture (SVG).")] = None,
) -> None:
    """Judge it at a provider's cap: a large campaign, a small one amid it, 20 login codes a second."""
    from deploy.blast import story
    from deploy.blast.plan import Plan

    sys.exit(story.run(Plan(recipients, rate, seconds, seed, kill), as_json, plot))


@keys.command("create")
def keys_create(
    scopes: Annotated[str, typer.Option(help="Comma-separated: send,campaigns,users,read,operate.")],
    as_json: Json = False,
) -> None:
    """Make a new API key; it is shown this once."""
    from deploy.commands import keys as command

    key, line = command.create([scope.strip() for scope in scopes.split(",") if scope.strip()])
    if as_json:
        print(json.dumps({"key": key, "line": line}))
        return
    print(f"The key, shown this once:\n  {key}\nFor `keys = [...]` of its tenant in tidings.toml:\n  {line}")


@users.command("import")
def users_import(
    file: Annotated[Path, typer.Argument(help="NDJSON, or CSV with a header row.")],
    config: Config = None,
    url: Url = "",
    key: Annotated[str, typer.Option(envvar="TIDINGS_API_KEY", help="An API key with the scope users.")] = "",
    as_json: Json = False,
) -> None:
    """Load profiles through the API."""
    from deploy.commands import users as command

    report = asyncio.run(command.load(file, _api_address(config, url), key))
    if as_json:
        print(json.dumps({"stored": report.stored, "refused": report.refused_count, "first": report.refused}))
    else:
        for line, why in report.refused:
            out.print(f"line {line}: {why}", highlight=False, markup=False)
        out.print(f"{report.stored} users stored, {report.refused_count} refused", highlight=False)
    raise typer.Exit(1 if report.refused_count else 0)


def _api_address(config: Path | None, url: str) -> str:
    return url.rstrip("/") or f"http://{_settings(config).api.listen}"


def _door(config: Path | None, url: str, key: str) -> Door:
    from deploy.commands.campaigns import Door

    return Door(_api_address(config, url), key, lambda words: print(f"{running.SAYS}{words}", file=sys.stderr))


@campaigns.command("list")
def campaigns_list(
    config: Config = None,
    url: Url = "",
    key: Reading = "",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many.")] = 20,
    as_json: Json = False,
) -> None:
    """The newest campaigns."""
    from deploy.commands import campaigns as command

    found = asyncio.run(command.newest(_door(config, url, key), limit))
    if as_json:
        print(json.dumps({"campaigns": found}))
    else:
        out.print(command.table(found), highlight=False, markup=False)


@campaigns.command("show")
def campaigns_show(
    campaign: CampaignId, config: Config = None, url: Url = "", key: Reading = "", as_json: Json = False
) -> None:
    """One campaign: progress, outcomes, what it waits for."""
    from deploy.commands import campaigns as command

    _show_campaign(command.one(_door(config, url, key), campaign), as_json)


@campaigns.command("pause")
def campaigns_pause(
    campaign: CampaignId, config: Config = None, url: Url = "", key: Steering = "", as_json: Json = False
) -> None:
    """Stop it for now: no call later than 2 s after the answer."""
    _order_campaign("pause", campaign, _door(config, url, key), as_json)


@campaigns.command("resume")
def campaigns_resume(
    campaign: CampaignId, config: Config = None, url: Url = "", key: Steering = "", as_json: Json = False
) -> None:
    """Let it go on where it was paused."""
    _order_campaign("resume", campaign, _door(config, url, key), as_json)


@campaigns.command("cancel")
def campaigns_cancel(
    campaign: CampaignId, config: Config = None, url: Url = "", key: Steering = "", as_json: Json = False
) -> None:
    """Stop it for good: this is never undone."""
    _order_campaign("cancel", campaign, _door(config, url, key), as_json)


@campaigns.command("pace")
def campaigns_pace(
    campaign: CampaignId,
    pace: Annotated[str, typer.Argument(metavar="PER_S", help="Recipients a second, or none for no limit.")],
    config: Config = None,
    url: Url = "",
    key: Steering = "",
    as_json: Json = False,
) -> None:
    """Let it go faster or slower from now on."""
    from deploy.commands import campaigns as command

    door = _door(config, url, key)
    _show_campaign(command.change(door, campaign, pace_per_s=command.pace(pace)), as_json)


@campaigns.command("weight")
def campaigns_weight(
    campaign: CampaignId,
    weight: Annotated[int, typer.Argument(min=1, max=100)],
    config: Config = None,
    url: Url = "",
    key: Steering = "",
    as_json: Json = False,
) -> None:
    """Give it another share beside the tenant's other campaigns."""
    from deploy.commands import campaigns as command

    _show_campaign(command.change(_door(config, url, key), campaign, weight=weight), as_json)


@app.command()
def explain(
    notification: Annotated[
        str, typer.Argument(metavar="[NOTIFICATION]", help="Its id, or the id of one of its deliveries.")
    ] = "",
    campaign: Annotated[str, typer.Option(help="With --user: that recipient of the campaign.")] = "",
    user: Annotated[str, typer.Option(help="With --campaign.")] = "",
    config: Config = None,
    url: Url = "",
    key: Reading = "",
    as_json: Json = False,
) -> None:
    """The whole story of one message in plain words: what was decided, why it waits, what is next."""
    from deploy.commands import explain as command

    where = command.path(notification, campaign, user)
    answer = asyncio.run(command.told(_door(config, url, key), where))
    if as_json:
        print(json.dumps(answer))
    else:
        command.show(answer, out)


def _order_campaign(word: str, campaign: str, door: Door, as_json: bool) -> None:
    from deploy.commands import campaigns as command

    _show_campaign(command.order(door, campaign, word), as_json)


def _show_campaign(asking: Coroutine[Any, Any, dict[str, Any]], as_json: bool) -> None:
    from deploy.commands import campaigns as command

    told = asyncio.run(asking)
    if as_json:
        print(json.dumps(told))
    else:
        out.print(command.sheet(told), highlight=False, markup=False)


Notifications = Annotated[list[str] | None, typer.Argument(metavar="[NOTIFICATION]...", show_default=False)]
HeldFor = Annotated[str, typer.Option("--reason", help="Only what is held for this reason, like lookalike.")]
OfTenant = Annotated[str, typer.Option("--tenant", help="Only this tenant's.")]
OfTemplate = Annotated[str, typer.Option("--template", help="Only this template's.")]


@holds.command("list")
def holds_list(
    config: Config = None,
    reason: HeldFor = "",
    tenant: OfTenant = "",
    template: OfTemplate = "",
    user: Annotated[str, typer.Option("--user", help="Only this person's; not who waits in a page.")] = "",
    limit: Annotated[int, typer.Option(min=0, help="How many to list; all are counted.")] = 50,
    as_json: Json = False,
) -> None:
    """What waits in hold, the longest waiting first."""
    from deploy.commands import holds as command

    found = asyncio.run(command.held(_settings(config), command.Wish(reason, tenant, template, user=user)))
    if as_json:
        print(json.dumps({"held": [entry.told() for entry in found[:limit]], "counts": command.counts(found)}))
        return
    out.print(command.table(found, limit), highlight=False, markup=False)
    out.print(command.summary(found), highlight=False, markup=False)


@holds.command("release")
def holds_release(
    notifications: Notifications = None,
    config: Config = None,
    reason: HeldFor = "",
    tenant: OfTenant = "",
    template: OfTemplate = "",
    as_json: Json = False,
) -> None:
    """Let these go now, or all of a --reason and --template; a look-alike is sent although it is one."""
    _order_held("release", config, (reason, tenant, template), notifications, as_json)


@holds.command("drop")
def holds_drop(
    notifications: Notifications = None,
    config: Config = None,
    reason: HeldFor = "",
    tenant: OfTenant = "",
    template: OfTemplate = "",
    as_json: Json = False,
) -> None:
    """End these unsent (cancelled, dropped_by_operator), or all of a --reason and --template."""
    _order_held("drop", config, (reason, tenant, template), notifications, as_json)


def _order_held(
    word: str, config: Path | None, meant: tuple[str, str, str], notifications: list[str] | None, as_json: bool
) -> None:
    from deploy.commands import holds as command

    wish = command.Wish(*meant, frozenset(notifications or ()))
    ordered = asyncio.run(command.order(_settings(config), wish, HoldOrder(word)))
    if as_json:
        print(json.dumps({"order": word, "held": [entry.told() for entry in ordered]}))
    else:
        out.print(f"ordered to {word}: {len(ordered)}; dispatch does it within a second", highlight=False)


@breaker.command("list")
def breaker_list(config: Config = None, as_json: Json = False) -> None:
    """How each provider stands: its breaker, why and since when, and how far it is slowed down."""
    from deploy.commands import breakers as command

    found = command.stands(_settings(config), SystemClock())
    _show(command.sheet(found), command.as_lines(found), as_json)


@breaker.command("open")
def breaker_open(provider: Provider, config: Config = None, as_json: Json = False) -> None:
    """Call this provider no more, from now on and until `close`: the channel's other one is used, or all waits."""
    from deploy.commands import breakers as command

    found = [command.order(_settings(config), SystemClock(), provider, is_open=True)]
    _show(command.sheet(found), command.as_lines(found), as_json)


@breaker.command("close")
def breaker_close(provider: Provider, config: Config = None, as_json: Json = False) -> None:
    """Call it again, whyever it was open."""
    from deploy.commands import breakers as command

    found = [command.order(_settings(config), SystemClock(), provider, is_open=False)]
    _show(command.sheet(found), command.as_lines(found), as_json)


def _show(sheet: Table, lines: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    if as_json:
        print(json.dumps(lines))
    else:
        out.print(sheet, highlight=False, markup=False)


@local.command("up")
def local_up(as_json: Json = False) -> None:
    """Start Kafka and Redis; they run until `tidings local down`."""
    from deploy.commands import local as command

    stack = command.up()
    found = stack.environment()
    for words in command.taken(stack, os.environ):
        print(f"{running.SAYS}{words}", file=sys.stderr)
    if as_json:
        print(json.dumps(found))
        return
    table = Table(show_header=False, box=None)
    for variable, value in found.items():
        table.add_row("export", f"{variable}={value}")
    out.print(table)


@local.command("down")
def local_down() -> None:
    """Stop them; their data stay."""
    from deploy.commands import local as command

    print("stopped" if command.down() else "nothing was running")


@local.command("keep", hidden=True)
def local_keep(tell: Annotated[int, typer.Option()]) -> None:
    from deploy.commands import local as command

    command.keep(tell, os.environ)


@app.command(hidden=True)
def reference(folder: Path) -> None:
    """Write the generated pages."""
    from deploy import reference as pages

    pages.write(folder)


@app.command()
def version() -> None:
    """Which release this is."""
    print(installed_version("tidings"))


if __name__ == "__main__":
    main()
