"""What has to hold of a set of objects, beyond their schemas. Each rule yields what is wrong; RULES has them all."""

from manifests import (configuration_of, containers, is_sidecar, name_of, of_kind, pod_labels, port_number, relay_of,
                       relays, selects, workloads)
from relay_configuration import seconds, size


def pods_have_time_to_drain(objects):
    for one in relays(objects):
        given, taken = one["spec"]["template"]["spec"].get("terminationGracePeriodSeconds", 30), configuration_of(one, objects).drain_seconds()
        if given <= taken:
            yield f"{name_of(one)}: terminationGracePeriodSeconds is {given}, and to drain takes {taken}"


def relays_notice_their_end_before_endpoints_do(objects):
    for one in relays(objects):
        configuration = configuration_of(one, objects)
        if configuration.client_ports() and configuration.get("drain", "delay") in ("0s", 0):
            yield f"{name_of(one)}: no drain.delay, while connections still arrive"


def nothing_needs_a_shell(objects):
    for one in workloads(objects):
        for container in containers(one):
            if "exec" in str(container.get("lifecycle", "")) or any("exec" in probe for probe in probes(container).values()):
                yield f"{name_of(one)}: {container['name']} runs a command; the image has none"


def probes(container):
    return {key: container[key] for key in ("startupProbe", "livenessProbe", "readinessProbe") if key in container}


def probes_ask_the_right_paths_at_the_port_of_probes(objects):
    paths = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/ready"}
    for one in relays(objects):
        relay, port = relay_of(one), configuration_of(one, objects).probes_port()
        expected = {"startupProbe", "livenessProbe"} | (set() if is_sidecar(one) else {"readinessProbe"})
        if set(probes(relay)) != expected:
            yield f"{name_of(one)}: probes are {sorted(probes(relay))}, expected {sorted(expected)}"
        for key, probe in probes(relay).items():
            asked = probe.get("httpGet", {})
            if asked.get("path") != paths[key] or port_number(relay, asked.get("port")) != port:
                yield f"{name_of(one)}: {key} asks {asked}, expected {paths[key]} at {port}"


def container_ports_are_those_of_the_configuration(objects):
    for one in relays(objects):
        configuration = configuration_of(one, objects)
        stated = sorted(port["containerPort"] for port in relay_of(one)["ports"])
        listening = sorted([*configuration.client_ports(), configuration.probes_port()])
        if stated != listening:
            yield f"{name_of(one)}: ports are {stated}, and the relay listens on {listening}"


def services_lead_to_the_ports_of_clients(objects):
    for service in of_kind(objects, "Service"):
        for one in relays(objects):
            if selects(service["spec"]["selector"], one):
                ports = [port_number(relay_of(one), port["targetPort"]) for port in service["spec"]["ports"]]
                if ports != configuration_of(one, objects).client_ports():
                    yield f"{name_of(service)}: leads to {ports} of {name_of(one)}"


def services_say_what_is_spoken_at_their_ports(objects):
    for service in of_kind(objects, "Service"):
        for one in relays(objects):
            if selects(service["spec"]["selector"], one):
                has_certificates = any(volume["name"] == "tls" for volume in one["spec"]["template"]["spec"]["volumes"])
                expected = "tls" if has_certificates else "grpc"
                stated = {port.get("appProtocol") for port in service["spec"]["ports"]}
                if stated != {expected}:
                    yield f"{name_of(service)}: appProtocol is {stated}, expected {expected}"


def each_tier_has_one_of_each(objects):
    """Service, disruption budget and network policy select one tier each, and no tier is without."""
    selectors = {
        "Service": lambda spec: spec["selector"],
        "PodDisruptionBudget": lambda spec: spec["selector"]["matchLabels"],
        "NetworkPolicy": lambda spec: spec["podSelector"].get("matchLabels", {}),
    }
    tiers = [one for one in relays(objects) if not is_sidecar(one)]
    for kind, selector in selectors.items():
        selected = [[name_of(tier) for tier in tiers if selects(selector(one["spec"]), tier)] for one in of_kind(objects, kind)]
        if sorted(selected) != sorted([name_of(tier)] for tier in tiers):
            yield f"{kind}: selects {selected}, expected one for each tier"


def pods_are_spread_among_their_like(objects):
    for one in relays(objects):
        for spread in one["spec"]["template"]["spec"].get("topologySpreadConstraints", []):
            if spread["labelSelector"]["matchLabels"] != one["spec"]["selector"]["matchLabels"]:
                yield f"{name_of(one)}: {spread['topologyKey']} spreads pods of another selector"


def replicas_of(workload, objects):
    scalers = [one for one in of_kind(objects, "HorizontalPodAutoscaler") if scales(one, workload)]
    return scalers[0]["spec"]["minReplicas"] if scalers else workload["spec"].get("replicas", 1)


def one_relay_may_go_and_not_all(objects):
    for budget in of_kind(objects, "PodDisruptionBudget"):
        for one in relays(objects):
            if selects(budget["spec"]["selector"]["matchLabels"], one):
                replicas, spec = replicas_of(one, objects), budget["spec"]
                most = spec["maxUnavailable"] if "maxUnavailable" in spec else replicas - spec["minAvailable"]
                if not 1 <= most < replicas:
                    yield f"{name_of(budget)}: lets {most} of {replicas} go"


def rollouts_make_before_they_break(objects):
    for one in of_kind(relays(objects), "Deployment"):
        if not is_sidecar(one) and one["spec"]["strategy"].get("rollingUpdate", {}).get("maxUnavailable") != 0:
            yield f"{name_of(one)}: a rollout removes relays before new ones are ready"


def scales(scaler, workload):
    target = scaler["spec"]["scaleTargetRef"]
    return (target["kind"], target["name"]) == (workload["kind"], workload["metadata"]["name"])


# Connections end up to a tenth after their maximum age.
LATEST_AGE = 1.1


def scalers_shrink_slower_than_relays_drain(objects):
    for scaler in of_kind(objects, "HorizontalPodAutoscaler"):
        scaled = [one for one in relays(objects) if scales(scaler, one)]
        if len(scaled) != 1:
            yield f"{name_of(scaler)}: scales {[name_of(one) for one in scaled]}"
        down, up = scaler["spec"]["behavior"]["scaleDown"], scaler["spec"]["behavior"]["scaleUp"]
        for one in scaled:
            if "replicas" in one["spec"]:
                yield f"{name_of(one)}: states replicas, which {name_of(scaler)} has"
            for policy in down["policies"]:
                if policy["type"] != "Pods" or policy["value"] != 1 or policy["periodSeconds"] <= configuration_of(one, objects).drain_seconds():
                    yield f"{name_of(scaler)}: {policy} removes a relay before another has drained"
            age = seconds(configuration_of(one, objects).get("clients", "max_connection_age"))
            if not 0 < age * LATEST_AGE <= down["stabilizationWindowSeconds"]:
                yield f"{name_of(scaler)}: shrinks by a load that connections of up to {age} s have not spread"
        if down["stabilizationWindowSeconds"] <= up["stabilizationWindowSeconds"]:
            yield f"{name_of(scaler)}: shrinks as fast as it grows"


def pods_are_restricted(objects):
    """The Pod Security Standard `restricted`, and a root file system that cannot be written."""
    for one in workloads(objects):
        pod = one["spec"]["template"]["spec"]
        if pod.get("automountServiceAccountToken") is not False:
            yield f"{name_of(one)}: has a token of Kubernetes"
        for container in containers(one):
            context = {**pod.get("securityContext", {}), **container.get("securityContext", {})}
            kept = {
                "runAsNonRoot": context.get("runAsNonRoot") is True,
                "runAsUser": context.get("runAsUser", 0) > 0,
                "seccompProfile": context.get("seccompProfile") == {"type": "RuntimeDefault"},
                "allowPrivilegeEscalation": context.get("allowPrivilegeEscalation") is False,
                "readOnlyRootFilesystem": context.get("readOnlyRootFilesystem") is True,
                "capabilities": context.get("capabilities") == {"drop": ["ALL"]},
            }
            yield from (f"{name_of(one)}: {container['name']}: {key}" for key, is_kept in kept.items() if not is_kept)


def memory_is_limited_and_what_relays_use_follows_from_it(objects):
    for one in relays(objects):
        resources = relay_of(one)["resources"]
        if resources["requests"]["memory"] != resources["limits"].get("memory"):
            yield f"{name_of(one)}: its memory is not reserved, or not limited"
        elif beyond := configuration_of(one, objects).bounds_beyond(size(resources["limits"]["memory"].replace("i", "iB"))):
            yield f"{name_of(one)}: {', '.join(beyond)} is more than fits into {resources['limits']['memory']}"


def state_is_on_a_volume(objects):
    for one in relays(objects):
        state = configuration_of(one, objects).content.get("state")
        mounted = {mount["mountPath"] for mount in relay_of(one)["volumeMounts"] if not mount.get("readOnly")}
        if state and state["path"].rsplit("/", 1)[0] not in mounted:
            yield f"{name_of(one)}: {state['path']} is not on a volume"


def policies_let_relays_reach_their_servers(objects):
    for policy in of_kind(objects, "NetworkPolicy"):
        for one in relays(objects):
            if selects(policy["spec"]["podSelector"].get("matchLabels", {}), one):
                allowed = {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]}
                needed = {53} | {port for _, port in configuration_of(one, objects).servers()}
                if allowed != needed:
                    yield f"{name_of(policy)}: allows ports {sorted(allowed)}, and {name_of(one)} needs {sorted(needed)}"
                opened = {port_number(relay_of(one), port["port"]) for rule in policy["spec"]["ingress"] for port in rule["ports"]}
                configuration = configuration_of(one, objects)
                if opened != {*configuration.client_ports(), configuration.probes_port()}:
                    yield f"{name_of(policy)}: opens {opened}"


def upper_tiers_exist_and_have_the_same_key(objects):
    tiers = {}
    for service in of_kind(objects, "Service"):
        host = f"{service['metadata']['name']}.{service['metadata'].get('namespace', 'default')}.svc"
        for one in relays(objects):
            if selects(service["spec"]["selector"], one):
                tiers[host] = (service["spec"]["ports"][0]["port"], configuration_of(one, objects).view_key())
    for one in relays(objects):
        configuration = configuration_of(one, objects)
        for host, port in configuration.servers():
            if host.endswith(".xds.svc") and host not in tiers:
                yield f"{name_of(one)}: no Service is {host}"
            if host in tiers and not is_sidecar(one) and (port, configuration.view_key()) != tiers[host]:
                yield f"{name_of(one)}: {host} has port and views.key {tiers[host]}"
            if host in tiers and configuration.get("brakes", "enabled"):
                yield f"{name_of(one)}: has brakes behind a tier that has them"


def monitors_scrape_relays(objects):
    """The fields of PodMonitor that are used: no package carries its schema."""
    for monitor in of_kind(objects, "PodMonitor"):
        spec = monitor["spec"]
        if monitor["apiVersion"] != "monitoring.coreos.com/v1" or set(spec) - {"selector", "podMetricsEndpoints", "podTargetLabels"}:
            yield f"{name_of(monitor)}: unknown fields"
        for one in [one for one in relays(objects) if not is_sidecar(one)]:
            if not selects(spec["selector"]["matchLabels"], one):
                yield f"{name_of(monitor)}: does not select {name_of(one)}"
            for endpoint in spec["podMetricsEndpoints"]:
                port = port_number(relay_of(one), endpoint["port"])
                if set(endpoint) - {"port", "path", "interval"} or (endpoint["path"], port) != ("/metrics", configuration_of(one, objects).probes_port()):
                    yield f"{name_of(monitor)}: scrapes {endpoint}"
            if set(spec.get("podTargetLabels", [])) - set(pod_labels(one)):
                yield f"{name_of(monitor)}: {name_of(one)} lacks labels"


RULES = [
    pods_have_time_to_drain, relays_notice_their_end_before_endpoints_do, nothing_needs_a_shell,
    probes_ask_the_right_paths_at_the_port_of_probes, container_ports_are_those_of_the_configuration,
    services_lead_to_the_ports_of_clients, services_say_what_is_spoken_at_their_ports, each_tier_has_one_of_each, pods_are_spread_among_their_like,
    one_relay_may_go_and_not_all, rollouts_make_before_they_break, scalers_shrink_slower_than_relays_drain,
    pods_are_restricted, memory_is_limited_and_what_relays_use_follows_from_it, state_is_on_a_volume, policies_let_relays_reach_their_servers,
    upper_tiers_exist_and_have_the_same_key, monitors_scrape_relays,
]


def faults(objects):
    return [f"{rule.__name__}: {fault}" for rule in RULES for fault in rule(objects)]
