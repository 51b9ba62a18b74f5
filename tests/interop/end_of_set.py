"""What go-control-plane answers to a client that states what it has and a name that does not exist: that name is removed, once, with all
that the client lacks. This is how the relay learns that a set has ended (docs/upstream.md)."""

from delta_client import DeltaClient
from go_plane import GoPlane
from resources import Source, cluster, endpoints, listener_pb2, type_of

SOURCE = Source(aggregated=True, delta=True)
CLUSTERS, LISTENERS = type_of(cluster(SOURCE, "")), type_of(listener_pb2.Listener)
MADE_UP = "weir.end-of-set/abc"
UNKNOWN = "weir-unknown"
QUIET = 0.3


def run(options, cache):
    plane = GoPlane(cache)
    try:
        for everything in [(), ("*",)]:
            fills_later(plane, everything, answers_at_once=cache == "linear")
            opens_again(plane, everything)
            plane.apply(*((CLUSTERS, name) for name in ["c0", "c1", "c2", "c3"]))
        assert not plane.nacks, plane.nacks
    finally:
        plane.stop()


def parts(response):
    return sorted(resource.name for resource in response.resources), sorted(response.removed_resources)


def fills_later(plane, everything, answers_at_once):
    """A linear cache without resources is an empty set, and a snapshot without them is one too; without a snapshot there is silence."""
    client = DeltaClient(plane.port)
    client.send(CLUSTERS, everything, {MADE_UP: UNKNOWN})
    if answers_at_once or everything:  # the second time there is a snapshot
        assert parts(client.receive()) == ([], [MADE_UP])
        gone = []
    else:
        assert client.is_silent(QUIET)
        gone = [MADE_UP]
    plane.apply(*(cluster(SOURCE, name) for name in ["c0", "c1", "c2"]), endpoints("c0", 1))
    assert parts(client.receive()) == (["c0", "c1", "c2"], gone)
    plane.apply(cluster(SOURCE, "c3"))
    assert parts(client.receive()) == (["c3"], [])
    client.close()


def opens_again(plane, everything):
    first = DeltaClient(plane.port)
    first.send(CLUSTERS, everything)
    response = first.receive()
    held = {resource.name: resource.version for resource in response.resources}
    assert parts(response) == (["c0", "c1", "c2", "c3"], [])
    first.close()
    for number, (lacks, others, news, gone) in enumerate([
            ([], {}, [], []),
            (["c1"], {}, ["c1"], []),
            ([], {"c1": "other"}, ["c1"], []),
            ([], {"c1": UNKNOWN, "c9": UNKNOWN}, ["c1"], ["c9"]),
            (sorted(held), {}, sorted(held), [])]):
        stated = {name: version for name, version in held.items() if name not in lacks} | others
        client = DeltaClient(plane.port)
        client.send(CLUSTERS, everything, {**stated, MADE_UP: UNKNOWN})
        assert parts(client.receive()) == (news, [*gone, MADE_UP])
        assert client.is_silent(QUIET)
        # The name has no consequences: a change and a removal come alone.
        plane.apply(cluster(SOURCE, "c2", timeout=2 + number))
        response = client.receive()
        assert parts(response) == (["c2"], [])
        held = {**held, "c2": response.resources[0].version}
        plane.apply((CLUSTERS, "c3"))
        assert parts(client.receive()) == ([], ["c3"])
        plane.apply(cluster(SOURCE, "c3"))
        assert parts(client.receive()) == (["c3"], [])
        # Another request is answered for itself, and the name is not said again.
        client.send(CLUSTERS, ["another"])
        assert parts(client.receive()) == ([], [])
        client.send(LISTENERS, everything, {MADE_UP: UNKNOWN})
        assert parts(client.receive()) == ([], [MADE_UP])
        client.close()
