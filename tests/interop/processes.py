"""The relay and the Envoys as processes, and what they say of themselves at their admin addresses."""

import contextlib
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys

from envoy.config.bootstrap.v3 import bootstrap_pb2
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import protocol_pb2
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2
from google.protobuf import duration_pb2, json_format

from resources import address, endpoints, packed
from web import get, wait_for

# Linux gives connections ports from here on for their own ends, unless it is told otherwise.
FIRST_OF_CONNECTIONS = 32_768
GIVEN = set()
PART = [0, 1]


def use_ports(part):
    """Of this many scenarios at the same time, this one has ports that no other is given."""
    PART[:] = part
    random.seed()


def free_port():
    """One that nobody has, and that no connection is given for its own end before somebody listens on it."""
    first, step = PART
    while True:
        port = random.randrange(10_000 + first, FIRST_OF_CONNECTIONS, step)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            if port not in GIVEN:
                GIVEN.add(port)
                return port


class Processes:
    def __init__(self, folder):
        self.folder, self.running = pathlib.Path(folder), []

    def start(self, name, *command, **options):
        log = open(self.folder / f"{name}.log", "ab")
        process = subprocess.Popen(command, **{"stdout": log, "stderr": log, **options})
        self.running.append(process)
        return process

    def show_logs(self):
        for log in sorted(self.folder.glob("*.log")):
            print(f"--- {log.name}\n{log.read_text(errors='replace')[-6000:]}", file=sys.stderr)

    def stop(self, *chosen):
        chosen = chosen or tuple(self.running)
        for process in chosen:
            process.terminate()
        for process in chosen:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Relay:
    """`authorities` are names, each with the control plane that is asked for what it is the authority of. `key` is a list of fields, or all of
    `views`."""

    def __init__(self, processes, program, planes, upstream, log, authorities, more, listen, server, key=("cluster",)):
        self.port, self.admin = free_port(), free_port()
        self.config = config = processes.folder / "weir.yaml"

        def servers(planes):
            return json.dumps([{"uri": f"http://127.0.0.1:{plane.port}", "variant": upstream, **server} for plane in planes])

        listeners = [{"address": f"127.0.0.1:{self.port}"}, *(listen(processes.folder) if listen else [])]
        others = ", ".join(f"{name}: {{servers: {servers([plane])}}}" for name, plane in authorities.items())
        brakes = "" if "brakes:" in more else "brakes: {enabled: false}"  # scenarios remove what they want to see go
        config.write_text(f"""
listen: {json.dumps(listeners)}
admin: {{address: '127.0.0.1:{self.admin}'}}
upstream: {{servers: {servers(planes)}, authorities: {{{others}}}}}
views: {json.dumps(key if isinstance(key, dict) else {"key": key})}
{brakes}
{more}
""")
        self.processes, self.command = processes, [program, "--config", str(config), "--log", log]
        self.start()

    def start(self):
        # A file that may not grow is then an error, and ends no process.
        self.process = self.processes.start("weir", *self.command, env={**os.environ, "NO_COLOR": "1"}, restore_signals=False)
        wait_for("the relay is up", lambda: get(self.admin, "/healthz").good)

    def kill(self):
        """Without any time to say good-bye."""
        self.process.kill()
        self.process.wait()

    def reload(self, without):
        """The configuration file no longer has this text."""
        text = self.config.read_text()
        assert without in text, (without, text)
        self.config.write_text(text.replace(without, ""))
        self.process.send_signal(signal.SIGHUP)
        taken = 'weir_config_reloads_total{result="taken"} 1'
        wait_for("the configuration is taken", lambda: taken in get(self.admin, "/metrics").body.splitlines())

    def upstreams(self):
        return json.loads(get(self.admin, "/upstreams").body)

    def refused(self):
        """What clients refuse and have accepted nothing for since, by type URL."""
        clients = json.loads(get(self.admin, "/clients").body)["clients"]
        return {f"type.googleapis.com/{kind['type']}": kind["last_nack"]
                for client in clients for kind in client["types"] if kind["nacked"]}


class Envoy:
    def __init__(self, processes, program, name, source, relay, reach=None):
        self.processes, self.admin = processes, free_port()
        path = processes.folder / f"{name}.json"
        path.write_text(json_format.MessageToJson(bootstrap(name, source, self.admin, relay.port, reach)))
        self.process = processes.start(
            name, program, "-c", str(path), "--base-id", base_id(), "--concurrency", "1", "-l", "warning")

    def stop(self):
        self.processes.stop(self.process)

    def shows(self, text, resource):
        """Whether a part of what is in use has this text."""
        return text in get(self.admin, f"/config_dump?resource={resource}").body

    def has_cluster(self, name, timeout):
        """Whether a cluster has hosts, and is in use with this connect timeout."""
        active = json.loads(get(self.admin, "/config_dump?resource=dynamic_active_clusters").body).get("configs", [])
        mine = [held["cluster"] for held in active if held["cluster"]["name"] == name]
        return self.has_hosts(name) and any(held["connect_timeout"] == f"{timeout}s" for held in mine)

    def has_hosts(self, cluster):
        return f"{cluster}::127.0.0.1" in get(self.admin, "/clusters").body


def base_id():
    """Envoys of one machine need different ones."""
    return str(1000 + free_port() % 30000)


def bootstrap(name, source, admin, relay_port, reach=None):
    http2 = http_protocol_options_pb2.HttpProtocolOptions()
    http2.explicit_http_config.http2_protocol_options.CopyFrom(protocol_pb2.Http2ProtocolOptions())
    relay = cluster_pb2.Cluster(
        name="relay", type=cluster_pb2.Cluster.STATIC, connect_timeout=duration_pb2.Duration(seconds=1),
        load_assignment=endpoints("relay", relay_port))
    if not source.polls:
        relay.typed_extension_protocol_options[http2.DESCRIPTOR.full_name].CopyFrom(packed(http2))
    if reach:
        reach(relay)
    made = bootstrap_pb2.Bootstrap()
    made.node.id, made.node.cluster = name, "interop"
    made.admin.address.CopyFrom(address(admin))
    made.static_resources.clusters.append(relay)
    made.dynamic_resources.cds_config.CopyFrom(source.config())
    made.dynamic_resources.lds_config.CopyFrom(source.config())
    if source.aggregated:
        made.dynamic_resources.ads_config.CopyFrom(source.server())
    layer = made.layered_runtime.layers.add(name="runtime")
    layer.rtds_layer.name = "runtime"
    layer.rtds_layer.rtds_config.CopyFrom(source.config())
    return made
