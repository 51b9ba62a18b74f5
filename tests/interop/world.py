"""Everything that a scenario needs: a control plane, the relay, servers, Envoys, and traffic that must not fail."""

import tempfile

from plane import Plane
from processes import Envoy, Processes, Relay
from resources import runtime
from web import Traffic


class World:
    def __init__(self, options, source, upstream="delta"):
        self.options, self.source = options, source
        self.folder = tempfile.TemporaryDirectory()
        self.processes = Processes(self.folder.name)
        self.plane, self.traffics = Plane(), []
        self.plane.apply(runtime("runtime"))  # an Envoy does not start without it
        self.relay = Relay(self.processes, options.weir, self.plane, upstream, options.log)

    def envoy(self, name):
        return Envoy(self.processes, self.options.envoy, name, self.source, self.relay)

    def traffic(self, *asks):
        traffic = Traffic(*asks)
        self.traffics.append(traffic)
        return traffic

    def end(self, traffic, at_least=200):
        """Traffic ends here, and nobody has objected to anything that the control plane did."""
        traffic.stop()
        assert traffic.asked >= at_least, f"only {traffic.asked} requests"
        traffic.check()
        assert not self.plane.nacks, self.plane.nacks
        print(f"  {traffic.asked} requests, none failed")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        for traffic in self.traffics:
            traffic.stop()
        self.processes.stop()
        self.plane.stop()
        if kind:
            self.processes.show_logs()
        self.folder.cleanup()
