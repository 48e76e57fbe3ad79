"""The relay: messages between processes, through an inbox for each of them, by topics and patterns."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conformance.driver.ops import relay as relay_ops
from conformance.participants.expect import between, equal, holds, one_of
from conformance.participants.handles import RelayHandle
from conformance.participants.marks import scenario, shared
from conformance.participants.participant import Participant
from conformance.participants.redis_view import RedisView

LEASE_MS = 10 * 60_000
"""Longer than any scenario."""
SOON_MS = 100
"""Between two heartbeats or sweeps."""
OTHER = "other"
"""A node that the kit registers by hand: it keeps what is in its inbox."""


def _node(client: Participant, node: str = "one", **options: Any) -> RelayHandle:
    return client.relay(**{"nodeId": node, "leaseDuration": LEASE_MS, **options})


def _key(name: str, namespace: str = "default") -> str:
    return f"relay:{{{namespace}}}:{name}"


def _register_other(redis: RedisView, *patterns: str, keeps: int = 100) -> None:
    """Register a node as a process of its own would, with a subscription to each pattern."""
    record, subscriptions = _key(f"{OTHER}:node"), _key("subs")
    redis.set_field(record, "info", "{}", of_lost_job=True)
    redis.set_field(record, "maxLen", str(keeps), of_lost_job=True)
    redis.expire_in(record, LEASE_MS)
    for name in ("nodes", "started"):
        redis.set_score(_key(name), OTHER, redis.now_ms() + (LEASE_MS if name == "nodes" else 0))
    for number, pattern in enumerate(patterns, 1):
        views = [f"n|{OTHER}|e{number}|{pattern}", f"p|{pattern}|{OTHER}|e{number}", f"t|{pattern}"]
        if {"*", ">"} & {*pattern.split(".")}:
            root = pattern.split(".")[0]
            views.append(f"w|{'*' if root in {'*', '>'} else root}|{pattern}")
        for member in views:
            redis.set_score(subscriptions, member, 0)


def _inbox_of_other(redis: RedisView) -> list[dict[str, str]]:
    return [fields for _, fields in redis.stamped_events(_key(f"{OTHER}:inbox"))]


@pytest.mark.parametrize("data", [{"percent": 50}, None, "é🎉", [1, {"a": []}]], ids=["object", "null", "text", "list"])
@scenario("relay.delivers", bullmq=">=6.4")
def test_a_message_reaches_every_subscription(client: Participant, data: Any) -> None:
    """Each listener of each node gets it once, with its topic and data."""
    one, two = _node(client), _node(client, "two")
    for node, pattern in ((one, "mail.sent"), (two, "mail.sent"), (two, "mail.*")):
        node.subscribe(pattern)
    equal(one.publish("mail.sent", data), (2, 3), "the answer counts nodes and subscriptions")
    equal(one.publish("mail.lost", "last"), (1, 1), "one subscription matches the other topic")
    delivered = [two.next_message() for _ in range(3)]
    equal(sorted(each.pattern for each in delivered[:2]), ["mail.*", "mail.sent"], "each subscription gets it")
    equal([(each.topic, each.pattern) for each in delivered[2:]], [("mail.lost", "mail.*")], "and no message twice")
    first = one.next_message()
    equal((first.topic, first.retained), ("mail.sent", False), "the publisher's own listener gets it as well")
    texts = {message.data_raw for message in (first, *delivered[:2])}
    equal(len(texts), 1, "all listeners get the same data")
    equal(json.loads(texts.pop()), data, "it is the published message")


@scenario("relay.delivers", bullmq=">=6.4")
def test_messages_come_in_their_order(client: Participant) -> None:
    """Ids grow, whichever node publishes."""
    one, two = _node(client), _node(client, "two")
    two.subscribe("count.>")
    for number in range(6):
        (one, two)[number % 2].publish(f"count.{number % 3}", number)
    delivered = [two.next_message() for _ in range(6)]
    equal([message.data_raw for message in delivered], [str(number) for number in range(6)], "in order")
    ids = [int(message.mid) for message in delivered]
    equal(ids, sorted(set(ids)), "each message has a larger id than the one before")
    equal(len({message.ts for message in delivered} - {float(client.clock.now_ms())}), 0, "the time is the publisher's")


@shared("relay.delivers", bullmq=">=6.4")
def test_messages_cross_between_clients(client: Participant, oracle: Participant) -> None:
    """Nodes of both clients share a namespace: each gets what the other publishes, also what was retained."""
    mine, nodes = _node(client, "mine"), _node(oracle, "nodes")
    for node in (mine, nodes):
        node.subscribe("talk.*")
    for publisher, words in ((mine, "hello"), (nodes, "hello back")):
        equal(publisher.publish("talk.all", words, retain_ms=LEASE_MS), (2, 2), "it is for both nodes")
        for node in (mine, nodes):
            equal(node.next_message().data_raw, f'"{words}"', "the listener gets it")
    mine.subscribe("talk.all")
    equal(mine.next_message().data_raw, '"hello back"', "the message that the other client retained")


MATCHES = {
    "mail.sent": ["mail.sent"],
    "mail.*": ["mail.sent", "mail.lost"],
    "*.sent": ["mail.sent", "post.sent"],
    "mail.>": ["mail.sent", "mail.lost", "mail.sent.twice"],
    ">": ["mail", "mail.sent", "mail.lost", "mail.sent.twice", "post.sent"],
    "mail.*.twice": ["mail.sent.twice"],
    "*": ["mail"],
}
"""The topics that each pattern matches, out of those of `>`."""


@pytest.mark.parametrize("pattern", MATCHES)
@scenario("relay.patterns", bullmq=">=6.4")
def test_a_pattern_matches_by_segments(client: Participant, pattern: str) -> None:
    """The listener gets the topics of its pattern and no other; the index has it as other nodes look it up."""
    node = _node(client)
    node.subscribe(pattern)
    node.subscribe("end")
    # Twice: the first may come to the listener of `end` before it comes to that of the pattern.
    for topic in (*MATCHES[">"], "end", "end"):
        node.publish(topic)
    seen: list[tuple[str, str]] = []
    for _ in range(3 * len(MATCHES[">"])):
        message = node.next_message()
        seen.append((message.pattern, message.topic))
        if seen.count(("end", "end")) > 1:
            break
    matched = [topic for of, topic in seen if of == pattern and topic != "end"]
    equal(sorted(matched), sorted(MATCHES[pattern]), "the topics that match, each once")


TOO_LONG = "a" * 513
TOO_DEEP = ".".join("a" * 17)


@pytest.mark.parametrize("topic", ["", "a..b", ".a", "a b", "a.*", ">", "a|b", TOO_LONG, TOO_DEEP])
@scenario("relay.refused", bullmq=">=6.4")
def test_a_malformed_topic_is_refused(client: Participant, topic: str) -> None:
    """Nothing is published or retained."""
    node = _node(client)
    node.subscribe(">")
    with client.refuses("invalid-argument", "a malformed topic is refused"):
        node.publish(topic, "lost", retain_ms=LEASE_MS)
    node.publish("end")
    equal(node.next_message().topic, "end", "no listener gets it")
    equal(node.redis.exists(_key("retained")), False, "and nothing is retained")


@pytest.mark.parametrize("pattern", ["", "a..b", "a.>.b", "a*", "*>", "a|b", TOO_LONG, TOO_DEEP])
@scenario("relay.refused", bullmq=">=6.4")
def test_a_malformed_pattern_is_refused(client: Participant, pattern: str) -> None:
    """The index stays as it was."""
    node = _node(client)
    node.subscribe("plain")
    before = node.redis.members(_key("subs"))
    with client.refuses("invalid-argument", "a malformed pattern is refused"):
        node.subscribe(pattern)
    equal(node.redis.members(_key("subs")), before, "there is no further subscription")


@pytest.mark.parametrize(("length", "accepted"), [(18, True), (19, False)], ids=["fits", "larger"])
@scenario("relay.refused", bullmq=">=6.4")
def test_data_has_a_limit_in_bytes(client: Participant, length: int, accepted: bool) -> None:
    """`maxMessageSize` counts the bytes of the JSON text."""
    node = _node(client, maxMessageSize=20)
    node.subscribe("big")
    text = "é" * (length // 2) + "x" * (length % 2)
    if accepted:
        equal(node.publish("big", text), (1, 1), "20 bytes are accepted")
        return
    with client.refuses("invalid-argument", "21 bytes are refused"):
        node.publish("big", text)


@pytest.mark.parametrize("options", [{"nodeId": "a:b"}, {"namespace": "a b"}, {"leaseDuration": 0}], ids=str)
@scenario("relay.refused", bullmq=">=6.4")
def test_a_malformed_name_of_a_node_is_refused(client: Participant, options: dict[str, Any]) -> None:
    """Ids and namespaces are parts of keys."""
    _node(client, "sound").subscribe("plain")
    with client.refuses("invalid-argument", "the node is not opened"):
        _node(client, **options)


@scenario("relay.namespaces", bullmq=">=6.4")
def test_a_message_stays_in_its_namespace(client: Participant) -> None:
    """Another namespace has nodes, subscriptions and messages of its own."""
    here, there = _node(client, namespace="here"), _node(client, namespace="there")
    for node in (here, there):
        node.subscribe(">")
    equal(here.publish("news", "of here", retain_ms=LEASE_MS), (1, 1), "one node is there")
    there.publish("news", "of there")
    equal(there.next_message().data_raw, '"of there"', "the first message that the other namespace gets")
    kept = [name for name in here.redis.types() if name.endswith(":ret")]
    equal(kept, [_key("news:ret", "here")], "the message is kept under the name of its namespace")
    equal(sorted(here.redis.members("relay:namespaces")), ["here", "there"], "both are listed")


@scenario("relay.layout", bullmq=">=6.4")
def test_a_node_does_not_join_another_layout(client: Participant) -> None:
    """The version is written for others, and theirs is respected."""
    node = _node(client)
    node.subscribe("plain")
    equal(node.redis.hash(_key("layout")), {"layout": "1"}, "the layout that later nodes find")
    node.redis.set_field(_key("layout", "newer"), "layout", "2", of_lost_job=True)
    with client.refuses("other", "the namespace of a newer layout is not joined"):
        _node(client, namespace="newer")
    equal(node.redis.exists(_key("nodes", "newer")), False, "no node is registered there")
    node.redis.delete(_key("layout", "newer"))


@scenario("relay.inbox", bullmq=">=6.4")
def test_an_entry_of_an_inbox(client: Participant) -> None:
    """One entry for each node, which lists its matching subscriptions."""
    node = _node(client)
    node.subscribe("mine")
    _register_other(node.redis, "mail.sent", "mail.*", "post.>")
    equal(node.publish("mail.sent", {"to": "é"}), (1, 2), "the other node and two of its subscriptions")
    entries = _inbox_of_other(node.redis)
    equal(len(entries), 1, "there is one entry")
    fields = dict(entries[0])
    equal(sorted(fields.pop("e", "").split(",")), ["e1", "e2"], "for both of them")
    number = fields.pop("m", "")
    holds(number.isdigit(), "the id is a number", seen=number)
    told = {"k": "msg", "t": "mail.sent", "ts": str(client.clock.now_ms()), "d": '{"to":"é"}'}
    equal(fields, told, "kind, topic, time and data")
    between(node.redis.ttl_ms(_key(f"{OTHER}:inbox")), 1, LEASE_MS, "the inbox ends with the lease of its node")


@scenario("relay.inbox", bullmq=">=6.4")
def test_a_full_inbox_drops_its_oldest_messages(client: Participant) -> None:
    """The limit is that of the reader, not of the publisher."""
    node = _node(client)
    node.subscribe("mine")
    _register_other(node.redis, "count", keeps=3)
    for number in range(5):
        node.publish("count", number)
    equal([entry["d"] for entry in _inbox_of_other(node.redis)], ["2", "3", "4"], "the newest are kept")
    equal(node.redis.field(_key(f"{OTHER}:node"), "dropped"), "2", "the others are counted")


@scenario("relay.lag", bullmq=">=6.4")
def test_a_node_reports_that_it_is_behind(client: Participant) -> None:
    """While nothing reads its inbox, each heartbeat compares it with `lagThreshold`."""
    with client.tap.hold("XREAD", call=None) as reads:
        slow = _node(client, "slow", heartbeatInterval=SOON_MS, inboxMaxLength=3, lagThreshold=2)
        slow.subscribe("count")
        reads.wait()
        for number in range(4):
            slow.publish("count", number)
        one_of(slow.wait_local("lag").args["unread"], (2, 3), "it reports the number of unread messages")
        reads.release()
    equal([slow.next_message().data_raw for _ in range(3)], ["1", "2", "3"], "later it reads what is left")


@scenario("relay.lease", bullmq=">=6.4")
def test_a_node_renews_its_lease(client: Participant) -> None:
    """Each heartbeat prolongs the node's record, its inbox and the namespace."""
    node = _node(client, heartbeatInterval=SOON_MS)
    node.subscribe("plain")
    node.publish("plain", retain_ms=LEASE_MS)
    redis = node.redis
    first_ms = redis.expires_at_ms(_key("one:node"))
    between(first_ms - redis.now_ms(), LEASE_MS // 2, LEASE_MS, "the record lives as long as the lease")
    for what, read in (
        ("the record", lambda: redis.expires_at_ms(_key("one:node"))),
        ("the place among the nodes", lambda: redis.score(_key("nodes"), "one") or 0),
        ("the index of subscriptions", lambda: redis.expires_at_ms(_key("subs"))),
    ):
        client.eventually(read, lambda ends_ms: ends_ms > first_ms + 1, f"{what} is renewed")
    endless = [name for name in redis.types() if redis.ttl_ms(name) == -1]
    equal(endless, [], "every key expires if no node is left")


@scenario("relay.recovers", bullmq=">=6.4")
def test_a_node_that_lost_its_lease_registers_again(client: Participant) -> None:
    """As after a pause of the process that was longer than the lease."""
    node, other = _node(client, heartbeatInterval=SOON_MS), _node(client, "two")
    node.subscribe("mail.*")
    node.subscribe("mail.sent")
    node.redis.delete(_key("one:node"))
    node.wait_local("recovered")
    equal(other.publish("mail.sent", "after"), (1, 2), "both subscriptions are there again")
    equal({node.next_message().pattern for _ in range(2)}, {"mail.*", "mail.sent"}, "and get messages")


@scenario("relay.sweeps", bullmq=">=6.4")
def test_a_node_without_a_lease_is_removed(client: Participant) -> None:
    """Its inbox and subscriptions are removed, too, and the others go on."""
    node = _node(client, sweepInterval=SOON_MS)
    node.subscribe("mail.*")
    redis = node.redis
    _register_other(redis, "mail.*", "only.its")
    node.publish("mail.sent")
    redis.delete(_key(f"{OTHER}:node"))
    redis.set_score(_key("nodes"), OTHER, redis.now_ms() - 1)
    equal(node.wait_local("swept").args["nodes"], [OTHER], "it is reported")
    equal(redis.members(_key("nodes")), ["one"], "the other node is still registered")
    equal(redis.exists(_key(f"{OTHER}:inbox")), False, "the inbox is removed")
    left = [member for member in redis.members(_key("subs")) if OTHER in member or "only" in member]
    equal(left, [], "so are its subscriptions and their patterns")
    equal(node.publish("mail.sent"), (1, 1), "messages reach the nodes that are left")


@scenario("relay.retained", bullmq=">=6.4")
def test_a_new_subscription_gets_the_retained_message(client: Participant) -> None:
    """That of the exact topic, and the newest of it; a pattern gets none."""
    one, two = _node(client), _node(client, "two")
    for state in ("off", "on"):
        one.publish("mail.state", state, retain_ms=LEASE_MS)
    one.publish("mail.state", "not kept")
    between(one.redis.ttl_ms(_key("mail.state:ret")), 1, LEASE_MS, "it is kept for its time")
    two.subscribe("mail.*")
    two.subscribe("mail.state")
    first = two.next_message()
    equal((first.pattern, first.data_raw, first.retained), ("mail.state", '"on"', True), "only the exact topic gets it")
    one.publish("mail.state", "next")
    equal({two.next_message().retained for _ in range(2)}, {False}, "a later message is not marked")


@scenario("relay.retained", bullmq=">=6.4")
def test_a_retained_message_can_be_deleted(client: Participant) -> None:
    """The answer says whether there was one; other topics keep theirs."""
    node = _node(client)
    for topic in ("gone", "kept"):
        node.publish(topic, topic, retain_ms=LEASE_MS)
    answers = [node.call(relay_ops.DeleteRetained(topic="gone")).value for _ in range(2)]
    equal(answers, [True, False], "it can be deleted once")
    node.subscribe("gone")
    node.subscribe("kept")
    equal(node.next_message().data_raw, '"kept"', "a new subscription gets nothing of the deleted one")
    equal(node.redis.members(_key("retained")), ["kept"], "and the list has the other")


@scenario("relay.ends", bullmq=">=6.4")
def test_a_subscription_ends(client: Participant) -> None:
    """The pattern is gone with its last subscription."""
    one, two = _node(client), _node(client, "two")
    for node in (one, two):
        node.subscribe("mail.*")
        node.subscribe("end")
    one.call(relay_ops.Unsubscribe(pattern="mail.*"))
    equal(two.publish("mail.sent"), (1, 1), "the other node still gets messages")
    two.publish("end")
    equal(one.next_message().topic, "end", "this one gets nothing more of the pattern")
    two.call(relay_ops.Unsubscribe(pattern="mail.*"))
    left = [member for member in one.redis.members(_key("subs")) if "mail" in member]
    equal(left, [], "the index has nothing of it")


@pytest.mark.parametrize("retain_ms", [0, LEASE_MS], ids=["nothing", "retained"])
@scenario("relay.ends", bullmq=">=6.4")
def test_a_closed_node_leaves_nothing_of_its_own(client: Participant, retain_ms: int) -> None:
    """With the last node all of the namespace goes, but what is retained."""
    one, two = _node(client), _node(client, "two")
    for node in (one, two):
        node.subscribe("mail.*")
        node.subscribe("end")
    one.publish("mail.sent", "text", retain_ms=retain_ms)
    redis = one.redis
    one.close()
    equal([name for name in redis.types() if ":one:" in name], [], "its record and inbox are gone")
    equal([member for member in redis.members(_key("subs")) if "|one|" in member], [], "so are its subscriptions")
    equal(two.publish("end"), (1, 1), "the other node works on")
    two.close()
    kept = [_key(name) for name in ("layout", "mail.sent:ret", "mid", "retained")] if retain_ms else []
    equal([name for name in redis.types() if name != "relay:namespaces"], kept, "all else of the namespace is gone")


@scenario("relay.getters", bullmq=">=6.4")
def test_the_state_of_a_relay(client: Participant) -> None:
    """For dashboards: numbers, nodes, patterns, retained messages and namespaces."""
    node = _node(client, name="mailer")
    for pattern in ("mail.*", "end"):
        node.subscribe(pattern)
    _register_other(node.redis, "mail.*", keeps=1)
    for topic, kept_ms in (("mail.late", LEASE_MS), ("mail.soon", LEASE_MS // 2)):
        node.publish(topic, topic, retain_ms=kept_ms)
    _node(client, "away", namespace="else").subscribe("plain")
    counts = node.call(relay_ops.GetRelayCounts())
    equal((counts.nodes, counts.subscriptions, counts.patterns, counts.retained), (2, 3, 2, 2), "the numbers")
    first, second = node.call(relay_ops.GetNodes()).nodes
    equal((first.id, first.name, first.subscriptions), ("one", "mailer", 2), "the first node")
    equal((second.id, second.name, second.dropped, second.subscriptions), (OTHER, None, 1, 1), "the second")
    patterns = [(each.pattern, each.subscriptions) for each in node.call(relay_ops.GetPatterns()).patterns]
    equal(patterns, [("end", 1), ("mail.*", 2)], "the patterns")
    equal(node.call(relay_ops.GetPatterns(start=1, end=1)).patterns[0].pattern, "mail.*", "a part of them")
    retained = [(each.topic, each.data_raw) for each in node.call(relay_ops.GetRetained()).messages]
    equal(retained, [("mail.soon", '"mail.soon"'), ("mail.late", '"mail.late"')], "the next to expire comes first")
    equal(sorted(node.call(relay_ops.GetNamespaces()).namespaces), ["default", "else"], "the namespaces")
