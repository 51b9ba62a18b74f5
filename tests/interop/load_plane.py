"""Where loads are reported to: a part of the small control plane."""

import threading

from envoy.service.load_stats.v3 import lrs_pb2, lrs_pb2_grpc
from google.protobuf import duration_pb2


class LoadPlane(lrs_pb2_grpc.LoadReportingServiceServicer):
    """Wants the loads of all clusters each second, and adds them up."""

    def __init__(self):
        self.lock = threading.Lock()
        self.nodes = []  # of each stream that was opened
        self.succeeded = {}  # (cluster, EDS name, region) -> requests
        self.in_progress = {}

    def StreamLoadStats(self, requests, context):
        with self.lock:
            self.nodes.append(next(requests).node.id)
        yield lrs_pb2.LoadStatsResponse(
            send_all_clusters=True, load_reporting_interval=duration_pb2.Duration(seconds=1))
        for request in requests:
            with self.lock:
                self.note(request)

    def note(self, request):
        for stats in request.cluster_stats:
            for locality in stats.upstream_locality_stats:
                key = stats.cluster_name, stats.cluster_service_name, locality.locality.region
                self.succeeded[key] = self.succeeded.get(key, 0) + locality.total_successful_requests
                self.in_progress[key] = locality.total_requests_in_progress
