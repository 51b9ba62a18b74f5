"""Everything that a scenario needs: a control plane, the relay, servers, Envoys, and traffic that must not fail."""

import contextlib
import tempfile

from plane import Plane
from processes import Envoy, Processes, Relay
from resources import runtime
from web import Traffic


class World:
    def __init__(self, options, source):
        self.options, self.source = options, source
        self.folder = tempfile.TemporaryDirectory()
        self.processes = Processes(self.folder.name)
        self.plane, self.traffics, self.relay = Plane(), [], None
        self.plane.apply(runtime("runtime"))  # an Envoy does not start without it

    @classmethod
    @contextlib.contextmanager
    def open(cls, options, source, upstream="delta"):
        """With a relay in it that speaks this variant to the control plane. Nothing is left of it in the end."""
        world = cls(options, source)
        try:
            world.relay = Relay(world.processes, options.weir, world.plane, upstream, options.log)
            yield world
        except BaseException:
            world.processes.show_logs()
            raise
        finally:
            world.close()

    def envoy(self, name):
        return Envoy(self.processes, self.options.envoy, name, self.source, self.relay)

    def traffic(self, *asks):
        traffic = Traffic(*asks)
        self.traffics.append(traffic)
        return traffic

    def end(self, traffic):
        """Traffic still flows, and nobody has objected to anything that the control plane did."""
        traffic.flows()
        traffic.stop()
        traffic.check()
        assert not self.plane.nacks, self.plane.nacks
        print(f"  {traffic.asked} requests, none failed")

    def close(self):
        for traffic in self.traffics:
            traffic.stop()
        self.processes.stop()
        self.plane.stop()
        self.folder.cleanup()
