"""java-control-plane with its `SimpleCache`, grouped by the cluster of the node."""

from real import build
from real.lines import LinesPlane


class JavaControlPlane(LinesPlane):
    NAME = "java-control-plane"
    # It groups by the node of each request, ACKs too.
    SERVER = {"node_in_every_request": True}

    @staticmethod
    def build():
        build.java_program()

    def command(self):
        return ["java", "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", build.java_program(), "Main", str(self.port)]
