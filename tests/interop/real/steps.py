"""What every control plane is put through, directly and through Weir. Each step ends when what it changes has arrived."""

import os
import random
import time

from real.state import Service, change_at_random
from web import get, wait_for

CHURN = int(os.environ.get("WEIR_SECONDS", "180"))


def start(course):
    course.plane.start(course.state)
    course.start_relay()
    course.start_others()
    course.start_envoy("envoy-1")
    course.start_traffic()


def endpoints(course):
    course.service("s1", backend="b")
    course.answers("s1", "b")


def cluster_with_unchanged_endpoints(course):
    course.service("s1", timeout=3)
    course.has_timeout("s1")


def route(course):
    course.apply(route="s2")
    course.service("s2", backend="a")
    course.answers("", "a")


def listener(course):
    course.apply(second="second")
    wait_for("the second listener answers", lambda: course.plane.ask("", "second").body(), 60)
    course.apply(second=None)
    wait_for("the second listener is gone", lambda: "second" not in listeners(course), 60)


def listeners(course):
    shown = get(course.envoy.admin, "/listeners").body
    return {name for name, port in course.ports.items() if str(port) in shown}


def delete_and_add_again(course):
    course.answers("s3", "a")
    gone = course.state.services.pop("s3")
    course.apply()
    wait_for("s3 is gone", lambda: course.envoy.timeout_of(course.plane.cluster_part("s3")) is None, 60)
    course.state.services["s3"] = gone
    course.apply()
    course.answers("s3", "a")


def refusal_and_recovery(course):
    before = course.envoy.rejected()
    course.apply(second="busy")
    wait_for("the Envoy has refused a listener", lambda: course.envoy.rejected() > before, 60)
    course.service("s1", backend="a")
    course.answers("s1", "a")
    course.apply(second=None)
    course.service("s1", timeout=4)
    course.has_timeout("s1")
    if course.relay:
        wait_for("no refusal stands", lambda: not course.relay.refused(), 60)


def control_plane_killed(course):
    course.plane.kill()
    course.traffic.goes_on()
    course.state.services["s1"].backend = "b"
    course.state.services["s2"].timeout = 5
    course.plane.start(course.state)
    course.answers("s1", "b", 120)
    course.has_timeout("s2", 120)


def killed_again(course):
    """With a change meanwhile that differs from the last."""
    course.plane.kill()
    course.traffic.goes_on()
    service = course.state.services["s1"]
    service.backend, service.timeout = "b" if service.backend == "a" else "a", service.timeout % 8 + 1
    course.plane.start(course.state)
    course.answers("s1", service.backend, 120)
    course.has_timeout("s1", 120)


def relay_killed(course):
    if course.relay:
        course.relay.kill()
    course.traffic.goes_on()
    course.service("s1", backend="a")
    if course.relay:
        course.relay.start()
    course.answers("s1", "a", 120)


def late_client(course):
    """An Envoy that starts while the control plane is away. The direct run has none to compare with: its Envoy starts afterwards. The step ends
    with a change of what this Envoy itself is served: behind Consul, another one has the server of s1."""
    course.stop_traffic()
    if course.relay:
        course.plane.kill()
    course.envoy.stop()
    course.start_envoy("envoy-2")
    course.start_traffic()
    course.state.services["s1"].backend = "b"
    course.state.services["s2"].timeout = 6
    if course.relay:
        course.plane.start(course.state)
    else:
        course.apply()
    course.answers("s1", "b", 120)
    course.has_timeout("s2", 120)


def two_tiers(course):
    """The Envoy starts again behind a second relay."""
    course.stop_traffic()
    course.envoy.stop()
    server = None
    if course.relay:
        server = course.make_relay(course.second_tier, course.relay, {})
    course.start_envoy("envoy-3", server)
    course.start_traffic()
    course.service("s1", backend="a", timeout=6)
    course.answers("s1", "a")
    course.has_timeout("s1")


def churn(course):
    """Changes at random, the same on each way, half a second apart, for so many seconds."""
    dice, seconds = random.Random(4711), min(CHURN, getattr(course.plane, "CHURN", CHURN))
    kinds, start = [], time.monotonic()
    for _ in range(seconds * 2):
        kinds.append(change_at_random(dice, course.state))
        course.apply()
        time.sleep(max(0, start + len(kinds) / 2 - time.monotonic()))
    course.state.services["s3"] = Service("a")
    course.state.services["s1"] = Service("a", 7)
    course.apply(second=None, route="s1")
    course.has_timeout("s1")
    for path in ["", "s1", "s3"]:
        course.answers(path, "a")
    wait_for("the second listener is gone", lambda: "second" not in listeners(course), 60)


def all_steps():
    made = [start, endpoints, cluster_with_unchanged_endpoints, route, listener, delete_and_add_again, refusal_and_recovery,
            control_plane_killed, relay_killed, late_client, two_tiers, churn]
    return [(step.__name__.replace("_", " "), step) for step in made]


def five_kills():
    return [("start", start), *((f"control plane killed, {number} of 5", killed_again) for number in range(1, 6))]
