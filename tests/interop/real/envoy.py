"""An Envoy with the node that a control plane wants, and what it has in use."""

import json
import re

from google.protobuf import json_format

from processes import Envoy, base_id, bootstrap, free_port
from web import get

# These say when, under which version, which each server makes for itself, what was refused, and what is used no more.
NOT_COMPARED = {"version_info", "last_updated", "last_update_attempt", "client_status", "error_state", "draining_state"}
# What an Envoy calls itself, for what only pretends to be one.
AGENT = {"user_agent_name": "envoy", "user_agent_build_version": {"version": {"major_number": 1, "minor_number": 40}}}
SECTIONS = ["dynamic_listeners", "dynamic_active_clusters", "dynamic_warming_clusters", "dynamic_route_configs", "dynamic_endpoint_configs"]


class RealEnvoy(Envoy):
    def __init__(self, processes, program, name, source, server, node, reach=None, headers=None):
        """`headers` are shown to the control plane on its stream."""
        self.processes, self.admin = processes, free_port()
        made = bootstrap(name, source, self.admin, server.port, reach)
        made.ClearField("layered_runtime")  # most of these servers have none
        made.node.Clear()
        json_format.ParseDict(node, made.node)
        for key, value in (headers or {}).items():
            made.dynamic_resources.ads_config.grpc_services[0].initial_metadata.add(key=key, value=value)
        path = processes.folder / f"{name}.json"
        path.write_text(json_format.MessageToJson(made))
        self.process = processes.start(
            name, program, "-c", str(path), "--base-id", base_id(), "--concurrency", "1", "-l", "warning")

    def dump(self, ports):
        """What is in use, by section, with the names of ports in place of their numbers."""
        names = {str(number): name for name, number in ports.items()}
        numbers = re.compile(rf"(?<!\d)({'|'.join(names)})(?!\d)")
        found = {}
        for section in SECTIONS:
            path = f"/config_dump?include_eds&resource={section}"
            held = json.loads(get(self.admin, path).body).get("configs", [])
            used = [one for one in map(without_what_varies, held) if section != "dynamic_listeners" or "active_state" in one]
            texts = [json.dumps(one, sort_keys=True) for one in used]
            found[section] = sorted(numbers.sub(lambda match: f"<{names[match[0]]}>", text) for text in texts)
        return found

    def timeout_of(self, part):
        """The connect timeout of the cluster that is in use and has this in its name; None if there is none."""
        held = json.loads(get(self.admin, "/config_dump?resource=dynamic_active_clusters").body).get("configs", [])
        return next((one["cluster"].get("connect_timeout") for one in held if part in one["cluster"]["name"]), None)

    def rejected(self):
        lines = get(self.admin, "/stats?filter=lds.update_rejected").body.splitlines()
        return sum(int(line.split(": ")[1]) for line in lines)


def without_what_varies(value):
    if isinstance(value, dict):
        return {key: without_what_varies(inner) for key, inner in value.items() if key not in NOT_COMPARED}
    return [without_what_varies(inner) for inner in value] if isinstance(value, list) else value
