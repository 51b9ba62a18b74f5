"""What a control plane is to serve, said once for all of them: services with endpoints, routes to them, and listeners."""

import copy
from dataclasses import dataclass, field


@dataclass
class Service:
    backend: str  # the name of the server behind it
    timeout: int = 1  # seconds that a connection may take


@dataclass
class State:
    """Each service has a path of its own, and `route` is the one that has all other paths. `second` names the port of one more listener."""
    services: dict = field(default_factory=lambda: {"s1": Service("a"), "s2": Service("b"), "s3": Service("a")})
    route: str = "s1"
    second: str | None = None

    def copy(self):
        return copy.deepcopy(self)


def change_at_random(dice, state):
    """One random change that takes no traffic away: s3 alone comes and goes, which nothing but its own path leads to."""
    kind = dice.choice(["endpoints", "endpoints", "cluster", "route", "listener", "service"])
    if kind == "endpoints":
        service = state.services[dice.choice(["s1", "s2"])]
        service.backend = "b" if service.backend == "a" else "a"
    elif kind == "cluster":
        state.services[dice.choice(["s1", "s2"])].timeout = dice.randrange(1, 9)
    elif kind == "route":
        state.route = "s2" if state.route == "s1" else "s1"
    elif kind == "listener":
        state.second = None if state.second else "second"
    elif state.services.pop("s3", None) is None:
        state.services["s3"] = Service("a")
    return kind
