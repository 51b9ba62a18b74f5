"""go-control-plane with each of its caches."""

import go_plane
from real.lines import LinesPlane
from skipped import Skipped


class GoControlPlane(LinesPlane):
    NAME = "go-control-plane"
    CACHES = ["snapshot", "snapshot-ads", "linear", "mux"]

    def __init__(self, options, processes, ports, source, cache):
        super().__init__(options, processes, ports, source)
        self.cache = cache

    @staticmethod
    def build():
        if not go_plane.PROGRAM.exists():
            raise Skipped("there is no Go to build go-control-plane with")

    def command(self):
        return [go_plane.PROGRAM, "-cache", self.cache, "-port", str(self.port)]
