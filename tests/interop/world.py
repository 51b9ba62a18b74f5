"""Everything that a scenario needs: control planes, the relay, servers, Envoys, and traffic that must not fail."""

import contextlib
import tempfile

from plane import Plane
from processes import Envoy, Processes, Relay
from resources import runtime
from web import Traffic


class World:
    def __init__(self, options, source, planes, authorities):
        self.options, self.source = options, source
        self.folder = tempfile.TemporaryDirectory()
        self.processes = Processes(self.folder.name)
        self.planes = [Plane() for _ in range(planes)] if isinstance(planes, int) else planes
        self.authorities = {name: Plane() for name in authorities}
        self.traffics, self.relay = [], None
        for plane in self.planes:
            plane.apply(runtime("runtime"))  # an Envoy does not start without it

    @classmethod
    @contextlib.contextmanager
    def open(cls, options, source, upstream="delta", planes=1, authorities=(), more="", listen=None, server=None):
        """With a relay in it that speaks this variant to the control planes, of which it prefers the first, and each authority
        has one of its own; `planes` are so many or these, `more` is for its configuration, `listen` makes more
        listeners for a folder, `server` is what the configuration says of each control plane besides. Nothing is left of it in the end."""
        world = cls(options, source, planes, authorities)
        try:
            world.relay = Relay(world.processes, options.weir, world.planes, upstream, options.log, world.authorities, more, listen,
                                server or {})
            yield world
        except BaseException:
            world.processes.show_logs()
            raise
        finally:
            world.close()

    @property
    def plane(self):
        """The one that the relay prefers."""
        return self.planes[0]

    def bring_back(self, *changes, slowly=None):
        """The preferred control plane was stopped, and is there again, with these changes."""
        self.check()
        self.planes[0] = self.plane.back(*changes, slowly=slowly)

    def envoy(self, name, reach=None):
        """`reach` changes its cluster of the relay."""
        return Envoy(self.processes, self.options.envoy, name, self.source, self.relay, reach)

    def traffic(self, *asks):
        traffic = Traffic(*asks)
        self.traffics.append(traffic)
        return traffic

    def end(self, traffic):
        """Traffic still flows, and nobody has objected to anything that the control plane did."""
        traffic.flows()
        traffic.stop()
        traffic.check()
        self.check()
        print(f"  {traffic.asked} requests, none failed")

    def check(self):
        """Nobody has objected to anything that a control plane did."""
        nacks = [nack for plane in self.every_plane() for nack in plane.nacks]
        assert not nacks, nacks

    def every_plane(self):
        return [*self.planes, *self.authorities.values()]

    def close(self):
        for traffic in self.traffics:
            traffic.stop()
        self.processes.stop()
        for plane in self.every_plane():
            plane.stop()
        self.folder.cleanup()
