"""Who a client is: Envoys and a gRPC client with certificates, an Envoy on a Unix socket, and one behind a balancer. Each has everything
that its rule gives it, secrets too; strangers get nothing; renewed certificates end no stream."""

import json
import os
import time

import grpc_by_xds
from certificates import Authority
from grpc_by_xds import Client, grpc_backend
from house import House
from processes import base_id, free_port
from resources import (
    address, api_listener, cluster, endpoints, manager, packed, pipe, proves, route_to, routes)
from web import get, wait_for
from world import World

SECRETS = "secrets: [shown, trusted]"


def rules(*rules):
    lines = [f"- {{name: {name}, identities: [{identity}], free: [cluster], {given}}}" for name, identity, given in rules]
    return "\n".join(["permissions:", *lines])


def sessions(world):
    """Numbers and peers of the streams that are open."""
    return {client["session"]: client["peer"] for client in json.loads(get(world.relay.admin, "/clients").body)["clients"]}


class Trust:
    """A listener with TLS, and who signs for it and for its clients."""

    def __init__(self):
        self.port, self.own, self.prod = free_port(), Authority("own"), Authority("prod")

    def listen(self, folder):
        self.folder = folder
        (folder / "own.pem").write_text(self.own.pem)
        (folder / "prod.pem").write_text(self.prod.pem)
        self.renew(days=1)
        domains = [{"name": "prod", "bundle": "prod.pem"}]
        tls = {"certificate": "server.pem", "key": "server.key", "trust_domains": domains}
        return [{"address": f"127.0.0.1:{self.port}", "tls": tls}]

    def renew(self, days):
        certificate = self.own.sign(names=["localhost"], addresses=["127.0.0.1"], days=days)
        (self.folder / "server.key").write_text(certificate.key)
        (self.folder / "server.pem").write_text(certificate.pem)

    def files(self, name):
        """Writes a certificate for a workload, and returns the paths of it, its key, and who signs for the relay."""
        certificate = self.prod.sign(uris=[f"spiffe://prod/ns/{name}/web"])
        paths = [str(self.folder / file) for file in [f"{name}.pem", f"{name}.key", "own.pem"]]
        for path, text in zip(paths, [certificate.pem, certificate.key]):
            with open(path, "w") as file:
                file.write(text)
        return paths

    def reach(self, name):
        return lambda relay: (point_at(relay, address(self.port)), proves(relay, *self.files(name)))


def point_at(relay, at):
    relay.load_assignment.endpoints[0].lb_endpoints[0].endpoint.address.CopyFrom(at)


def expiry(world):
    lines = get(world.relay.admin, "/metrics").body.splitlines()
    return next(line for line in lines if line.startswith("weir_tls_certificate_expires_timestamp_seconds"))


def run_tls(options, source):
    trust = Trust()
    permissions = rules(("houses", "{spiffe: 'spiffe://prod/ns/house/*'}", SECRETS))
    with World.open(options, source, more=permissions, listen=trust.listen) as world:
        house = House(world)
        world.envoy("house", trust.reach("house"))
        house.wait_until_open()
        traffic = world.traffic(*house.asks())
        stranger = world.envoy("stranger", trust.reach("other"))
        denied = 'reason="denied"'
        wait_for("the stranger is refused", lambda: any(
            denied in line and not line.endswith(" 0") for line in get(world.relay.admin, "/metrics").body.splitlines()))
        assert not stranger.has_hosts("a")
        before, expires = sessions(world), expiry(world)
        assert before and all("(spiffe://prod/ns/house/web)" in peer for peer in before.values()), before
        trust.renew(days=3)
        wait_for("the renewed certificate is in use", lambda: expiry(world) != expires)
        world.plane.apply(endpoints("a", house.ports["b"]))
        wait_for("a change arrives", lambda: house.scoped("one").body() == "b")
        assert sessions(world) == before, "a stream ended"
        stranger.stop()
        world.end(traffic)


def run_unix(options, source):
    sockets = []

    def listen(folder):
        (folder / "run").mkdir(mode=0o755)
        sockets.append(str(folder / "run" / "weir.sock"))
        return [{"address": f"unix:{sockets[0]}"}]

    permissions = rules(("own", f"{{uid: {os.getuid()}}}", SECRETS))
    with World.open(options, source, more=permissions, listen=listen) as world:
        house = House(world)
        world.envoy("house", lambda relay: point_at(relay, pipe(sockets[0])))
        house.wait_until_open()
        traffic = world.traffic(*house.asks())
        assert set(sessions(world).values()) == {f"unix (uid:{os.getuid()})"}, sessions(world)
        world.plane.apply(endpoints("a", house.ports["b"]))
        wait_for("a change arrives", lambda: house.scoped("one").body() == "b")
        world.end(traffic)


def run_balancer(options, source, version):
    """The balancer is an Envoy too. The client's connections come from an address of their own, by which it is known."""
    port, front, own = free_port(), free_port(), "127.0.0.2"

    def listen(_folder):
        return [{"address": f"127.0.0.1:{port}", "proxy_protocol_from": ["127.0.0.1"]}]

    def reach(relay):
        point_at(relay, address(front))
        relay.upstream_bind_config.source_address.address = own
        relay.upstream_bind_config.source_address.port_value = 0

    with World.open(options, source, listen=listen) as world:
        path = world.processes.folder / "balancer.json"
        path.write_text(json.dumps(balancer(front, port, version)))
        world.processes.start(
            "balancer", options.envoy, "-c", str(path), "--base-id", base_id(), "--concurrency", "1", "-l", "warning")
        house = House(world)
        world.envoy("house", reach)
        house.wait_until_open()
        traffic = world.traffic(*house.asks())
        peers = set(sessions(world).values())
        assert peers and all(peer.startswith(f"{own}:") for peer in peers), peers
        time.sleep(0.2)
        world.end(traffic)


def balancer(front, port, version):
    kinds = "type.googleapis.com/envoy.extensions"
    plain = {"name": "plain", "typed_config": {"@type": f"{kinds}.transport_sockets.raw_buffer.v3.RawBuffer"}}
    states = {"@type": f"{kinds}.transport_sockets.proxy_protocol.v3.ProxyProtocolUpstreamTransport",
              "config": {"version": version}, "transport_socket": plain}
    passes = {"@type": f"{kinds}.filters.network.tcp_proxy.v3.TcpProxy", "stat_prefix": "balancer", "cluster": "relay"}

    def at(port):
        return {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}

    chain = {"filters": [{"name": "pass", "typed_config": passes}]}
    return {"static_resources": {
        "listeners": [{"name": "front", **at(front), "filter_chains": [chain]}],
        "clusters": [{
            "name": "relay", "type": "STATIC", "connect_timeout": "1s",
            "load_assignment": {"cluster_name": "relay", "endpoints": [{"lb_endpoints": [{"endpoint": at(port)}]}]},
            "transport_socket": {"name": "states", "typed_config": states}}]}}


def run_grpc(options):
    trust, source = Trust(), grpc_by_xds.SOURCE
    permissions = rules(("clients", "{spiffe: 'spiffe://prod/ns/house/*'}", SECRETS))
    with World.open(options, source, more=permissions, listen=trust.listen) as world:
        servers = [grpc_backend("a"), grpc_backend("b")]
        service = api_listener(source, "service", manager(source, "routes"))
        ports = [port for _, port in servers]
        world.plane.apply(cluster(source, "c"), endpoints("c", ports[0]), service, routes("routes", route_to("c")))
        client = Client(world, at=f"localhost:{trust.port}", files=trust.files("house"))
        assert client.ask() == "a", client.answers
        world.plane.apply(endpoints("c", ports[1]))
        wait_for("endpoints change", lambda: client.ask() == "b")
        client.check("a", "b")
        stranger = Client(world, at=f"localhost:{trust.port}", files=trust.files("other"), node="stranger")
        assert stranger.ask() not in {"a", "b"}, stranger.answers
        world.check()
        for server, _ in servers:
            server.stop(None)
