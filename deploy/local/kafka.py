"""One Kafka node in KRaft mode as a child process."""

from __future__ import annotations

import subprocess
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from deploy import children
from deploy.local import places
from schemas.errors import Misconfigured

START_TIMEOUT_S = 90.0
_ASK_TIMEOUT_S = 2.0
_RECHECK_S = 0.05

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
num.partitions=1
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
offsets.retention.minutes=43200
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=10
log.cleaner.dedupe.buffer.size=16777216
log.retention.check.interval.ms=60000
"""

# A young broker shares its cores with everything else. Compiling its code thoroughly takes longer than it ever gives
# back here: in a campaign of 60,000 Kafka cost 257 and 276 us a delivery so, and 110 and 91 us without.
_QUICK = ("-XX:TieredStopAtLevel=1",)

# Warnings only: the broker tells about every segment of every partition otherwise.
_LOG4J = """\
<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="WARN">
  <Appenders>
    <Console name="out"><PatternLayout pattern="%d{{ISO8601}} %p %c{{1}} %m%n"/></Console>
  </Appenders>
  <Loggers>
    <Root level="WARN"><AppenderRef ref="out"/></Root>
    <Logger name="kafka.server.KafkaRaftServer" level="INFO"/>
  </Loggers>
</Configuration>
"""


@dataclass(frozen=True, slots=True)
class Broker:
    """A running node. log: what it printed."""

    child: subprocess.Popen[bytes]
    bootstrap: str
    log: Path


def start(java: str, jars: Path, folder: Path, heap_mb: int = 768, preferred_port: int = 0) -> Broker:
    """A node whose data live in `folder`, answering requests when this returns.

    Raises Misconfigured with the end of its log when it does not come up.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = places.free_port(preferred_port)
    run = [java, f"-Xmx{heap_mb}m", "-Xms256m", "-XX:+UseSerialGC", *_QUICK]
    run += [f"-Dlog4j2.configurationFile={_write(folder / 'log4j2.xml', _LOG4J.format())}", "-cp", f"{jars}/*"]
    properties = _write_properties(folder, port)
    _format(run, folder, properties)
    log = folder / "kafka.log"
    child = children.spawn([*run, "kafka.Kafka", str(properties)], log)
    broker = Broker(child, f"127.0.0.1:{port}", log)
    _await_answer(broker)
    return broker


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def _write_properties(folder: Path, port: int) -> Path:
    """The controller's port is written to the quorum's state, but a single node finds itself by its own setting."""
    text = _PROPERTIES.format(port=port, controller_port=places.free_port(), data=folder / "data")
    return _write(folder / "server.properties", text)


def _format(run: list[str], folder: Path, properties: Path) -> None:
    """Gives an empty folder its cluster id; does nothing to one that has it."""
    if (folder / "data" / "meta.properties").exists():
        return
    cluster_id = uuid.uuid4().hex[:22]
    command = [*run, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False)
    if answer.returncode != 0:
        raise Misconfigured(
            f"Kafka's folder {folder} could not be prepared:\n{(answer.stdout + answer.stderr)[-2000:]}"
        )


def _await_answer(broker: Broker) -> None:
    ends = time.monotonic() + START_TIMEOUT_S
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200})
    while time.monotonic() < ends:
        try:
            admin.list_topics(timeout=_ASK_TIMEOUT_S)
            return
        except KafkaException:
            if children.ended_within(broker.child, _RECHECK_S):
                break
    children.stop(broker.child)
    raise Misconfigured(f"Kafka did not start; the end of {broker.log}:\n{places.tail(broker.log)}")
