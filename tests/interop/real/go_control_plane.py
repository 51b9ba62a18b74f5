"""go-control-plane with each of its caches."""

import go_plane
from real import build
from real.lines import LinesPlane


class GoControlPlane(LinesPlane):
    NAME = "go-control-plane"
    CACHES = ["snapshot", "snapshot-ads", "linear", "mux"]

    def __init__(self, options, processes, ports, source, cache):
        super().__init__(options, processes, ports, source)
        self.cache = cache

    @staticmethod
    def build():
        build.needs("go")
        assert go_plane.PROGRAM.exists(), "go-control-plane could not be built"

    def command(self):
        return [go_plane.PROGRAM, "-cache", self.cache, "-port", str(self.port)]
