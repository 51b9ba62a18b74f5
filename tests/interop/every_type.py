"""Runtime, secrets, extensions and scopes change under traffic; then an Envoy starts while there is no control plane."""

from certificates import self_signed
from house import RUNTIME_KEY, House
from resources import (
    STAMP_HEADER, certificate_secret, endpoints, extension, route_to, routes, runtime, scope, stamp, trust_secret, type_of)
from web import backend, wait_for
from world import World


def change_runtime(house):
    for percent, server in [(100, "b"), (0, "a")]:
        house.plane.apply(runtime("runtime", **{RUNTIME_KEY: percent}))
        wait_for("the runtime moves requests", lambda: house.plain.body() == server)


def change_certificate(house):
    """Another certificate under the same name, then a listener with another name."""
    certificate = self_signed("shown")
    assert house.tls.answer().certificate == house.shown.pem
    house.plane.apply(certificate_secret("shown", certificate))
    wait_for("the new certificate is shown", lambda: house.tls.answer().certificate == certificate.pem)
    other = self_signed("other")
    house.plane.apply(house.tls_listener("other"), certificate_secret("other", other))
    wait_for("the listener shows its other certificate", lambda: house.tls.answer().certificate == other.pem)


def change_trust(house, envoy):
    """Both certificates are trusted while servers change from one to the other."""
    certificate = self_signed("trusted as well")
    both, moved = trust_secret("trusted", house.trusted, certificate), endpoints("safe", backend("safer", certificate))
    if house.source.aggregated:
        house.plane.apply(both, moved)
    else:
        # Between streams there is no order, so the control plane waits until the secret is in use.
        house.plane.apply(both)
        wait_for("both are trusted", lambda: envoy.shows(certificate.some_line, "dynamic_active_secrets"))
        house.plane.apply(moved)
    wait_for("the server with the new certificate is used", lambda: house.tls.body() == "safer")
    house.plane.apply(trust_secret("trusted", certificate))
    wait_for("only one is trusted", lambda: not envoy.shows(house.trusted.some_line, "dynamic_active_secrets"))


def change_cluster(house, envoy):
    """A cluster that has to wait for its endpoints and its secret again, then a new one with a new secret."""
    house.plane.apply(house.cluster("safe", timeout=2, trusts="trusted"))
    wait_for("the changed cluster is active", lambda: envoy.has_cluster("safe", timeout=2), patience=5)
    certificate = self_signed("the safest")
    route, safest = routes("tls", route_to("safest")), house.cluster("safest", trusts="trusts safest")
    needs = endpoints("safest", backend("safest", certificate)), trust_secret("trusts safest", certificate)
    if house.source.aggregated:
        # Requests to a cluster that still waits for its secret fail, and an Envoy asks for the secret only when it has the
        # cluster: it is the relay that keeps the route back until then.
        house.plane.apply(safest, *needs, route)
    else:
        house.plane.apply(safest, *needs)
        wait_for("the new cluster is active", lambda: envoy.has_cluster("safest", timeout=1))
        house.plane.apply(route)
    wait_for("the route moved", lambda: house.tls.body() == "safest")


def change_extension(house):
    assert house.plain.answer().headers[STAMP_HEADER] == "old"
    house.plane.apply(extension("stamp", stamp("new")))
    wait_for("the extension changed", lambda: house.plain.answer().headers[STAMP_HEADER] == "new")


def change_scopes(house):
    kind = type_of(scope("", "", ""))
    three = house.scoped("three")
    assert three.answer().status == 404
    house.plane.apply(routes("red", route_to("b")), scope("third", "three", "red"))
    wait_for("a new scope is there", lambda: three.body() == "b")
    # An Envoy answers 404 from when a scope has other routes until it has these, so they have to be there for another scope.
    house.plane.apply(scope("first", "one", "red"))
    wait_for("a scope has other routes", lambda: house.scoped("one").body() == "b")
    house.plane.apply(routes("red", route_to("a")))
    wait_for("the routes of a scope change", lambda: house.scoped("one").body() == "a")
    house.plane.apply((kind, "third"))
    wait_for("a scope is gone", lambda: three.answer().status == 404)


def run(options, source, upstream):
    with World.open(options, source, upstream) as world:
        house = House(world)
        envoy = world.envoy("envoy-1")
        print(f"  every kind of request routed after {house.wait_until_open():.1f} s")
        traffic = world.traffic(*house.asks())
        change_runtime(house)
        change_certificate(house)
        change_trust(house, envoy)
        change_cluster(house, envoy)
        change_extension(house)
        change_scopes(house)
        house.plane.apply(house.plain_listener("second"))
        wait_for("a listener with an extension changed", lambda: envoy.shows('"stat_prefix": "second"', "dynamic_listeners"))
        world.end(traffic)
        assert not world.relay.refused(), world.relay.refused()

        # What the relay holds is enough for an Envoy that has nothing.
        world.plane.stop()
        envoy.stop()
        world.envoy("envoy-2")
        bodies = ["a", "safest", "a", "b"]
        took = wait_for("everything without a control plane", lambda: [ask.body() for ask in house.asks()] == bodies)
        print(f"  everything routed without a control plane after {took:.1f} s")
