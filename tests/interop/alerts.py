"""Each alert fires while its fault lasts, and no other alert does. Faults are caused on a real relay, what it says of itself is recorded
before, during and after each, and promtool runs the rules over that, as if each had lasted for half an hour. What a fault counts is spread
over the second half of that."""

import contextlib
import json
import pathlib
import queue
import subprocess
import threading
import time
from dataclasses import dataclass

import grpc
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import base_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2
from google.rpc import status_pb2

from resources import Source, cluster, listener, manager, route_to, routes, type_of
from web import get, wait_for
from world import World

RULES = pathlib.Path(__file__).parents[2] / "deploy" / "prometheus" / "weir-alerts.yaml"
SOURCE = Source(True, True)
KIND = type_of(cluster_pb2.Cluster)
LISTENERS = type_of(listener_pb2.Listener)
MINUTES = 30
BRAKES = "brakes: {count: 5}"


class Client:
    """Of all clusters and listeners, on one stream. It answers with ACKs, with NACKs, or not at all."""

    def __init__(self, port, cluster="web", kinds=None):
        self.answer, self.delay, self.requests, self.received = "ack", 0, queue.Queue(), set()
        self.node = base_pb2.Node(id="client", cluster=cluster)
        for kind in kinds or (KIND, LISTENERS):
            self.ask(kind, "*")
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        stub = ads_pb2_grpc.AggregatedDiscoveryServiceStub(self.channel)
        self.stream = stub.DeltaAggregatedResources(iter(self.requests.get, None))
        threading.Thread(target=self.read, daemon=True).start()

    def ask(self, kind, *names):
        self.requests.put(discovery_pb2.DeltaDiscoveryRequest(node=self.node, type_url=kind, resource_names_subscribe=names))

    def read(self):
        with contextlib.suppress(grpc.RpcError, ValueError):
            for response in self.stream:
                error = status_pb2.Status(code=3, message="no") if self.answer == "nack" else None
                if self.answer != "silence":
                    time.sleep(self.delay)
                    self.requests.put(discovery_pb2.DeltaDiscoveryRequest(
                        type_url=response.type_url, response_nonce=response.nonce, error_detail=error))
                self.received.add(response.type_url)


def scrape(relay):
    """The series, each with the label that Prometheus adds."""
    series = {}
    for line in get(relay.admin, "/metrics").body.splitlines():
        if line and not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            if "_timestamp_seconds" in name:
                value = str(float(value) - time.time())  # where promtool begins, it is 1970
            name = name[:-1] + "," if name.endswith("}") else name + "{"
            series[f'{name}instance="relay"}}'] = value
    return series


@dataclass(frozen=True)
class Sign:
    """What the relay says of a fault: a series, summed, is above a value. What counts is above what it was before."""
    name: str
    label: str = ""
    above: float = 0
    times: float = 1  # what counts is judged as if it had grown by so many times as much: by a fault that lasts for seconds here

    def value(self, relay):
        return sum(float(value) for series, value in scrape(relay).items() if self.is_of(series))

    def is_of(self, series):
        return series.startswith(self.name + "{") and self.label in series

    @property
    def counts(self):
        return self.name.endswith("_total")


class Slow(Sign):
    """Observations of a histogram above a bound."""

    def value(self, relay):
        of = [(series, float(value)) for series, value in scrape(relay).items() if self.is_of(series)]
        return sum(value for series, value in of if 'le="+Inf"' in series) - sum(value for series, value in of if f'le="{self.above}"' in series)

    @property
    def counts(self):
        return True


class Below(Sign):
    """A series is below what `above` is the negative of."""

    def value(self, relay):
        return -super().value(relay)


def faults(world, client):
    """Alerts, each with what causes it, what the relay then says, and what ends it."""
    relay, count, others, late = world.relay, iter(range(1, 100)), [], []

    def change():
        world.plane.apply(cluster(SOURCE, "c0", timeout=next(count) + 10))

    def answers(answer):
        def act():
            client.answer = answer
            change()
        return act

    def many_views():
        others.extend(Client(relay.port, f"own-{number}") for number in range(60))
        wait_for("each has its clusters and listeners", lambda: all(other.received >= {KIND, LISTENERS} for other in others))

    def comes_with_a_set():
        """A client of a view of its own, in the state of the world, has clusters already; all of them come one by one."""
        world.plane.comes_by_slowly(KIND, 0.2)
        request = discovery_pb2.DiscoveryRequest(
            node=base_pb2.Node(id="late", cluster="late"), type_url=KIND, version_info="of another life")
        requests = queue.Queue()
        requests.put(request)
        stub = ads_pb2_grpc.AggregatedDiscoveryServiceStub(client.channel)
        late.append(stub.StreamAggregatedResources(iter(requests.get, None)))

    def gets_all():
        next(late[0])
        late[0].cancel()

    names = [(KIND, f"c{number}") for number in range(5, 40)]
    leads_nowhere = manager(SOURCE)
    leads_nowhere.route_config.CopyFrom(routes("inline", route_to("nowhere")))
    yield ("WeirServerDown", world.plane.stop, Sign("weir_ladder_state", 'state="down"'), world.bring_back)
    yield ("WeirClientsNack", answers("nack"), Sign("weir_client_streams_nacking"), answers("ack"))
    yield ("WeirBrakesHold", lambda: world.plane.remove_at_once(*names), Sign("weir_brake_held_removals"),
           lambda: world.plane.apply(*(cluster(SOURCE, name) for _, name in names)))
    yield ("WeirClustersMissing", lambda: world.plane.apply(listener(SOURCE, "leads", 1, leads_nowhere)),
           Sign("weir_clusters_missing"), lambda: world.plane.apply(cluster(SOURCE, "nowhere")))
    yield ("WeirUnusableResources", lambda: world.plane.apply(cluster(SOURCE, "")), Sign("weir_upstream_resources_rejected_total"),
           lambda: world.plane.apply((KIND, "")))
    yield ("WeirLimitReached", lambda: Client(relay.port).ask(KIND, "n" * 20_000), Sign("weir_limit_reached_total", "name_bytes"),
           change)
    yield ("WeirRepliesUnacknowledged", answers("silence"), Sign("weir_client_streams_unanswered", 'seconds="60"'), answers("ack"))
    yield "WeirSetBlocked", comes_with_a_set, Sign("weir_client_streams_blocked"), gets_all
    yield ("WeirTooManyViews", many_views, Sign("weir_views", above=50), lambda: [other.channel.close() for other in others])


def values(series, phases, sign):
    spread = sign.counts and sign.is_of(series)
    said, before = [], float(phases[0].get(series) or 0)
    at = before if spread else 0
    for phase in phases:
        value = phase.get(series)
        if value and "_timestamp_seconds" in series:
            said += [str(float(value) + at)] * MINUTES
            at += MINUTES * 60
        elif spread:
            grown = (float(value or 0) - before) * sign.times
            before = float(value or 0)
            said += [str(at + grown * max(0, 2 * (minute + 1) / MINUTES - 1)) for minute in range(MINUTES)]
            at += grown
        else:
            said += [value or "_"] * MINUTES
    return " ".join(said)


def judge(promtool, folder, alert, phases, sign):
    known = sorted(set().union(*phases))
    firing = 'max by (alertname) (ALERTS{alertstate="firing"})'
    expected = [[], [{"labels": f'{{alertname="{alert}"}}', "value": 1}], []]
    tests = [{"expr": firing, "eval_time": f"{(at + 1) * MINUTES - 2}m", "exp_samples": samples}
             for at, samples in enumerate(expected)]
    path = folder / f"{alert}.json"  # which is YAML too
    path.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [{
        "interval": "1m", "promql_expr_test": tests,
        "input_series": [{"series": series, "values": values(series, phases, sign)} for series in known]}]}))
    run = subprocess.run([promtool, "test", "rules", str(path)], capture_output=True, text=True)
    assert run.returncode == 0, f"{alert}: {run.stdout[-3000:]}{run.stderr[-3000:]}"


def run(options):
    with World.open(options, SOURCE, more=BRAKES) as world:
        world.plane.apply(*(cluster(SOURCE, f"c{number}") for number in range(40)))
        client = Client(world.relay.port)
        wait_for("the client has ACKed", lambda: Sign("weir_client_acks_total").value(world.relay) > 0)
        judge_each(options, world, faults(world, client))
        client.channel.close()


def judge_each(options, world, faults):
    for alert, cause, sign, end in faults:
        phases = [scrape(world.relay)]
        normal = sign.value(world.relay) if sign.counts else sign.above
        cause()
        wait_for(f"{alert}: the fault is seen", lambda: sign.value(world.relay) > normal, patience=90)
        phases.append(scrape(world.relay))
        end()
        if not sign.counts:
            wait_for(f"{alert}: the fault is over", lambda: sign.value(world.relay) <= normal, patience=120)
        phases.append(scrape(world.relay))
        judge(options.promtool, world.processes.folder, alert, phases, sign)
        print(f"  {alert} fires while its fault lasts")
