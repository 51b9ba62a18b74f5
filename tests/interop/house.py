"""An Envoy that has something of every type (but virtual hosts): what it is given, and what can be asked of it."""

from certificates import self_signed
from processes import free_port
from resources import (
    SCOPE_HEADER, certificate_secret, cluster, discovered_filter, endpoints, extension, listener, manager, route_to, routes,
    runtime, scope, stamp, trust_secret)
from web import Ask, backend, wait_for

RUNTIME_KEY = "interop.to_b"


class House:
    def __init__(self, world):
        self.source, self.plane = world.source, world.plane
        self.plain_port, self.tls_port, self.scoped_port = free_port(), free_port(), free_port()
        self.plain, self.tls = Ask(self.plain_port), Ask(self.tls_port, tls=True)
        self.shown, self.trusted = self_signed("shown"), self_signed("trusted")
        self.ports = {"a": backend("a"), "b": backend("b"), "safe": backend("safe", self.trusted)}
        self.plane.apply(
            self.cluster("a"), self.cluster("b"), self.cluster("safe", trusts="trusted"),
            *(endpoints(name, port) for name, port in self.ports.items()),
            trust_secret("trusted", self.trusted), certificate_secret("shown", self.shown),
            self.plain_routes(), routes("tls", route_to("safe")),
            routes("blue", route_to("a")), routes("green", route_to("b")),
            scope("first", "one", "blue"), scope("second", "two", "green"),
            extension("stamp", stamp("old")), runtime("runtime", **{RUNTIME_KEY: 0}),
            self.plain_listener(), self.tls_listener(),
            listener(self.source, "scoped", self.scoped_port, manager(self.source, scopes="scopes")))

    def cluster(self, name, timeout=1, trusts=None):
        return cluster(self.source, name, timeout, trusts)

    def tls_listener(self, certificate="shown"):
        return listener(self.source, "tls", self.tls_port, manager(self.source, "tls"), certificate)

    def plain_routes(self, other="a"):
        """To `b` as far as the runtime says so."""
        return routes("plain", route_to("b", RUNTIME_KEY), route_to(other))

    def plain_listener(self, label="first"):
        filters = [discovered_filter(self.source, "stamp", stamp(""))]
        return listener(self.source, "plain", self.plain_port, manager(self.source, "plain", label=label, filters=filters))

    def scoped(self, key):
        return Ask(self.scoped_port, headers=((SCOPE_HEADER, key),))

    def asks(self):
        return self.plain, self.tls, self.scoped("one"), self.scoped("two")

    def wait_until_open(self):
        """Until every way in leads to where it should, and sooner than an Envoy gives up on what it waits for."""
        wanted = ["a", "safe", "a", "b"]
        return wait_for("every kind of request is routed", lambda: [ask.body() for ask in self.asks()] == wanted)
