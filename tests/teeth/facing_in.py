"""What producers promise, broken one by one: accepting, telling repeats apart, refusing, taking reports."""

from __future__ import annotations

from tests.teeth.patch import Patch

_POST = "tests/contract/api/test_notifications.py::"
_REPORTS = "tests/integration/people/test_callbacks.py::"
_STARTS = (
    "tests/integration/deploy/test_cli.py::"
    "test_a_wrong_template_is_told_with_its_line_before_a_broker_is_waited_for_or_a_process_started"
)

PATCHES: tuple[Patch, ...] = (
    Patch(
        name="answers 202 before the log has it",
        promise=1,
        file="producers/api/notifications.py",
        old="    [placed] = await parts.publisher.publish(["
        "Outgoing(topic, key, codec.encode(message), traced.record_headers())])",
        new="""    import asyncio

    record = Outgoing(topic, key, codec.encode(message), traced.record_headers())
    parts.publisher.later = asyncio.ensure_future(parts.publisher.publish([record]))
    placed = Placed(0, 0)""",
        test=_POST + "test_an_unavailable_log_is_answered_503_and_nothing_is_kept_under_the_key",
        suffers="A shop is told that its order confirmation is on its way; the broker was away, and nobody has it.",
    ),
    Patch(
        name="keeps the answer under the key before the log has the request",
        promise=1,
        file="producers/api/notifications.py",
        old="        notification_id = await _write(parts, message, traced)",
        new="""        await parts.idempotency.finish(attempt, "n-to-come", 0)
        notification_id = await _write(parts, message, traced)""",
        test=_POST + "test_an_unavailable_log_is_answered_503_and_nothing_is_kept_under_the_key",
        suffers="The caller tries again under the same key and is told that it was accepted: nothing is ever sent.",
    ),
    Patch(
        name="takes an answer of the log for good although the write failed",
        promise=1,
        file="producers/publisher.py",
        old="        if latch.error:\n            raise Transient",
        new="        if latch.error and self._fatal:\n            raise Transient",
        test="tests/integration/producers/test_publisher.py::test_a_topic_that_does_not_exist_is_an_error",
        suffers="Records vanish between two stops of the road, and the offset behind them is committed.",
    ),
    Patch(
        name="places keys by CRC32, librdkafka's default",
        promise=6,
        file="producers/publisher.py",
        old='"partitioner": "murmur2_random"',
        new='"partitioner": "consistent_random"',
        test="tests/contract/test_partitioner.py::test_producer_faust_and_reader_place_a_key_in_the_same_partition",
        suffers="A row's events lie where its owner never looks: its status stays accepted for ever.",
    ),
    Patch(
        name="lets another body have the answer of a used key",
        promise=10,
        file="producers/idempotency.lua",
        old="  if string.sub(entry, 3, hash_end - 1) ~= ARGV[2] then",
        new="  if false then",
        test="tests/contract/test_idempotency.py::test_another_body_is_told_apart_while_running_and_when_answered",
        suffers="A caller with a bug in its keys is told 202 for a message that is never sent.",
    ),
    Patch(
        name="cancels an event published directly under the tenant that it names",
        promise=3,
        file="producers/api/accepted_records.py",
        old="NotificationRequested), tenant=tenant)",
        new="NotificationRequested))",
        test=_POST + "test_a_cancel_of_an_event_published_directly_stops_it_whatever_tenant_it_names[]",
        suffers="A shop is told that a wrong message is cancelled; it goes out a week later.",
    ),
    Patch(
        name="forgets with a campaign that its id is used",
        promise=1,
        file="producers/campaign_view.py",
        old="        self._dropped[key] = dropped\n",
        new="",
        test="tests/contract/api/test_used_ids.py::"
        "test_another_campaign_under_a_forgotten_id_is_refused_not_accepted_and_never_sent",
        suffers="A campaign is accepted under last month's id, and shown as running for ever; nobody gets it.",
    ),
    Patch(
        name="writes a campaign's request before all of its pages are in the log",
        promise=1,
        file="producers/upload.py",
        old="            await self._send()\n        await self._arrived()",
        new="            await self._send()",
        test="tests/contract/api/test_campaigns.py::test_inline_recipients_become_pages_and_then_a_request",
        suffers="A campaign is accepted whose last pages were never written: some hundreds of people hear nothing.",
    ),
    Patch(
        name="confirms a cancel that the log never heard of",
        promise=3,
        file="producers/api/cancellation.py",
        old="    await parts.publisher.publish([Outgoing(parts.topics.control, key, codec.encode(order), headers)])\n",
        new="    str((key, order, codec, Outgoing))\n",
        test=_POST + "test_a_cancel_before_any_plan_stops_all_of_it",
        suffers="A reminder that was called off goes out after Redis had to be rebuilt.",
    ),
    Patch(
        name="answers a change of a profile before senders can see it",
        promise=3,
        file="producers/api/people.py",
        old="    await parts.profiles.apply(tenant, user, writes)",
        new="    parts = writes",
        test="tests/integration/people/test_users_api.py"
        "::test_no_profile_write_undoes_an_opt_out_and_the_whole_list_does",
        suffers="Somebody is told that they have unsubscribed and gets the message that was on its way.",
    ),
    Patch(
        name="reads a notification by an id that nobody was given",
        promise=10,
        file="schemas/keys.py",
        old='not hmac.compare_digest(self._mac(tenant, b"id", body[0], ID_MAC_BYTES), body[1])',
        new="False",
        test=_POST + "test_a_guessed_id_or_one_of_another_tenant_is_unknown",
        suffers="One tenant reads what another sent to whom, by counting ids up.",
    ),
    Patch(
        name="lets every key do everything",
        promise=10,
        file="producers/auth.py",
        old="    if identity.scopes.isdisjoint((scope, *others)):",
        new="    if False:",
        test="tests/contract/api/test_door.py::test_a_key_opens_only_what_its_scopes_name_and_only_its_tenant",
        suffers="The key of a dashboard that may only read starts a campaign.",
    ),
    Patch(
        name="lets a campaign's values be of any length",
        promise=10,
        file="producers/requests.py",
        old="    params = params_text(body.params)\n    check_params(params, limits)",
        new="    params = params_text(body.params)",
        test="tests/contract/api/test_campaigns.py"
        "::test_a_wrong_definition_is_refused_naming_the_field[values_too_long]",
        suffers="Half a megabyte pasted into one field is copied into each of 10,000 deliveries.",
    ),
    Patch(
        name="makes up a key for an event without event_id",
        promise=9,
        file="producers/requests.py",
        old="    if not event.event_id:\n        raise Refused(",
        new="""    if not event.event_id:
        event = replace(event, event_id=f"made-up-{now_ms}")
    if event is None:
        raise Refused(""",
        test="tests/unit/producers/test_check_event.py::test_without_an_event_id_there_is_no_key_to_tell_repeats_by",
        suffers="A topic replayed after an incident sends every event a second time, since each gets a new key.",
    ),
    Patch(
        name="believes callbacks without a look at their signature",
        promise=7,
        file="producers/callbacks/server.py",
        old="    if not verifier.verify(request.headers, body, parts.clock.now_ms() / 1000):",
        new="    if verifier.verify(request.headers, body, parts.clock.now_ms() / 1000) is None:",
        test=_REPORTS + "test_every_bad_signature_gets_one_and_the_same_401_and_nothing_is_written",
        suffers="Anybody can mark messages as bounced and have addresses suppressed for good.",
    ),
    Patch(
        name="believes a signature of any age",
        promise=7,
        file="producers/callbacks/signatures.py",
        old="    return abs(now_s - int(timestamp)) <= TOLERANCE_S",
        new="    return True",
        test="tests/unit/producers/test_signatures.py::test_a_signature_ages_within_five_minutes_both_ways",
        suffers="A callback recorded once can be posted again a year later.",
    ),
    Patch(
        name="believes references that it never made",
        promise=7,
        file="schemas/keys.py",
        old="        if len(parts) != 8 or not hmac.compare_digest(\n"
        '            self._mac(parts[0], b"ref", body[0], REFERENCE_MAC_BYTES), body[1]\n'
        "        ):",
        new="        if len(parts) != 8:",
        test="tests/unit/schemas/test_references.py::test_another_deployments_reference_is_not_ours",
        suffers="A gateway that serves two companies turns the statuses of one by the reports of the other.",
    ),
    Patch(
        name="takes control characters in what becomes a header",
        promise=10,
        file="producers/fields.py",
        old='        raise ValueError("must not hold control characters")',
        new='        value = value.replace("\\x00", "")',
        test="tests/unit/producers/test_fields.py::test_bad_input_is_refused_naming_its_field",
        suffers="A user id with a line break forges a header of the mail that is sent to it.",
    ),
    Patch(
        name="accepts what no sender can put into words",
        promise=10,
        file="deploy/processes/facing_in.py",
        old="    templates.check(settings.templates.path)\n",
        new="    str(templates)\n",
        test=_STARTS + "[text-api]",
        suffers="Messages of a template with a slip in its text are answered 202, and no sender starts to send them.",
    ),
    Patch(
        name="looks at the templates after everything else has been started",
        promise=10,
        file="deploy/cli.py",
        old="    templates.check(chosen.templates.path)\n",
        new="    str(templates)\n",
        test=_STARTS + "[settings-up]",
        suffers="A deployment with a misspelt channel makes its topics and takes messages for a moment before it ends.",
    ),
    Patch(
        name="takes a column of addresses for a value of the template",
        promise=10,
        file="producers/recipient_lines.py",
        old="    if name in _OF_CONTACT and _TO + name not in names:",
        new="    if name in _OF_CONTACT and not names:",
        test="tests/contract/api/test_campaigns.py::test_a_wrong_table_is_refused_naming_the_line",
        suffers="A table of 200,000 addresses is answered 202; nobody of them is written to, for want of an address.",
    ),
)
