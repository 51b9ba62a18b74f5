"""Each alert fires while its fault lasts, and no other alert does. Faults are caused on a real relay, what it says of itself is recorded
before, during and after each, and promtool runs the rules over that, as if each had lasted for half an hour."""

import contextlib
import json
import pathlib
import queue
import subprocess
import threading

import grpc
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import base_pb2
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2
from google.rpc import status_pb2

from resources import Source, cluster, type_of
from web import get, wait_for
from world import World

RULES = pathlib.Path(__file__).parents[2] / "deploy" / "prometheus" / "weir-alerts.yaml"
SOURCE = Source(True, True)
KIND = type_of(cluster_pb2.Cluster)
MINUTES = 30
BRAKES = "brakes: {count: 5}"


class Client:
    """Of all clusters, on one stream. It answers with ACKs, with NACKs, or not at all."""

    def __init__(self, port):
        self.answer, self.requests = "ack", queue.Queue()
        node = base_pb2.Node(id="client", cluster="web")
        self.requests.put(discovery_pb2.DeltaDiscoveryRequest(node=node, type_url=KIND, resource_names_subscribe=["*"]))
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        stub = ads_pb2_grpc.AggregatedDiscoveryServiceStub(self.channel)
        self.stream = stub.DeltaAggregatedResources(iter(self.requests.get, None))
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        with contextlib.suppress(grpc.RpcError, ValueError):
            for response in self.stream:
                error = status_pb2.Status(code=3, message="no") if self.answer == "nack" else None
                if self.answer != "silence":
                    self.requests.put(discovery_pb2.DeltaDiscoveryRequest(
                        type_url=KIND, response_nonce=response.nonce, error_detail=error))


def scrape(relay):
    """The series, each with the label that Prometheus adds."""
    series = {}
    for line in get(relay.admin, "/metrics").body.splitlines():
        if line and not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            name = name[:-1] + "," if name.endswith("}") else name + "{"
            series[f'{name}instance="relay"}}'] = value
    return series


def total(relay, name, *labels):
    found = [float(value) for series, value in scrape(relay).items()
             if series.startswith(name + "{") and all(label in series for label in labels)]
    return sum(found)


def faults(world, client):
    """Alerts, each with what causes it, what the relay then says, and what ends it."""
    relay, count = world.relay, iter(range(1, 100))

    def change():
        world.plane.apply(cluster(SOURCE, "c0", timeout=next(count) + 10))

    def answers(answer):
        def act():
            client.answer = answer
            change()
        return act

    names = [(KIND, f"c{number}") for number in range(5, 40)]
    yield ("WeirServerDown", world.plane.stop, ("weir_ladder_state", 'state="down"'), world.bring_back)
    yield ("WeirClientsNack", answers("nack"), ("weir_client_streams_nacking",), answers("ack"))
    yield ("WeirBrakesHold", lambda: world.plane.remove_at_once(*names), ("weir_brake_held_removals",),
           lambda: world.plane.apply(*(cluster(SOURCE, name) for _, name in names)))
    yield ("WeirRepliesUnacknowledged", answers("silence"), ("weir_client_streams_unanswered", 'seconds="60"'), answers("ack"))


def values(series, phases):
    return " ".join(" ".join([phase.get(series, "_")] * MINUTES) for phase in phases)


def judge(promtool, folder, alert, phases):
    known = sorted(set().union(*phases))
    firing = 'max by (alertname) (ALERTS{alertstate="firing"})'
    expected = [[], [{"labels": f'{{alertname="{alert}"}}', "value": 1}], []]
    tests = [{"expr": firing, "eval_time": f"{(at + 1) * MINUTES - 2}m", "exp_samples": samples}
             for at, samples in enumerate(expected)]
    path = folder / f"{alert}.json"  # which is YAML too
    path.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [{
        "interval": "1m", "promql_expr_test": tests,
        "input_series": [{"series": series, "values": values(series, phases)} for series in known]}]}))
    run = subprocess.run([promtool, "test", "rules", str(path)], capture_output=True, text=True)
    assert run.returncode == 0, f"{alert}: {run.stdout[-3000:]}{run.stderr[-3000:]}"


def run(options):
    with World.open(options, SOURCE, more=BRAKES) as world:
        world.plane.apply(*(cluster(SOURCE, f"c{number}") for number in range(40)))
        client = Client(world.relay.port)
        wait_for("the client has ACKed", lambda: total(world.relay, "weir_client_acks_total") > 0)
        for alert, cause, shown, end in faults(world, client):
            phases = [scrape(world.relay)]
            cause()
            wait_for(f"{alert}: the fault is seen", lambda: total(world.relay, *shown) > 0, patience=90)
            phases.append(scrape(world.relay))
            end()
            wait_for(f"{alert}: the fault is over", lambda: total(world.relay, *shown) == 0, patience=30)
            phases.append(scrape(world.relay))
            judge(options.promtool, world.processes.folder, alert, phases)
            print(f"  {alert} fires while its fault lasts")
        client.channel.close()
