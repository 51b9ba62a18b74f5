"""What kustomize makes of the overlays, and how its objects refer to each other."""

import os
import shlex
import subprocess

import yaml

from relay_configuration import RelayConfiguration

KUBERNETES = "deploy/kubernetes"


def build(folder):
    """Returns the objects of a kustomization."""
    command = [*shlex.split(os.environ["KUSTOMIZE"]), folder]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{folder}: {done.stderr}"
    assert "deprecated" not in done.stderr.lower(), done.stderr
    return list(yaml.safe_load_all(done.stdout))


def of_kind(objects, *kinds):
    return [one for one in objects if one["kind"] in kinds]


def name_of(one):
    return f"{one['kind']} {one['metadata']['name']}"


def workloads(objects):
    return of_kind(objects, "Deployment", "StatefulSet")


def containers(workload):
    pod = workload["spec"]["template"]["spec"]
    return [*pod.get("initContainers", []), *pod["containers"]]


def relay_of(workload):
    """Returns the container of the relay."""
    return next((one for one in containers(workload) if one["name"] == "weir"), None)


def is_sidecar(workload):
    return relay_of(workload) not in workload["spec"]["template"]["spec"]["containers"]


def relays(objects):
    """Returns the workloads with a relay in their pods."""
    return [one for one in workloads(objects) if relay_of(one)]


def pod_labels(workload):
    return workload["spec"]["template"]["metadata"]["labels"]


def selects(labels, workload):
    """Whether labels to match select the pods of a workload. An empty selector selects all."""
    return labels.items() <= pod_labels(workload).items()


def port_number(container, port):
    """Returns the number of a container's port by its name or number."""
    named = {one["name"]: one["containerPort"] for one in container.get("ports", [])}
    return named.get(port) if isinstance(port, str) else port


def configuration_of(workload, objects):
    """Returns the configuration that the relay of a workload reads: argument, mount, volume, ConfigMap."""
    relay = relay_of(workload)
    path = relay["args"][relay["args"].index("--config") + 1]
    folder, file = path.rsplit("/", 1)
    mount = next(one for one in relay["volumeMounts"] if one["mountPath"] == folder)
    volume = next(one for one in workload["spec"]["template"]["spec"]["volumes"] if one["name"] == mount["name"])
    source = volume["configMap"]["name"]
    maps = [one for one in of_kind(objects, "ConfigMap") if one["metadata"]["name"] == source]
    assert len(maps) == 1, f"{name_of(workload)}: no ConfigMap {source}"
    return RelayConfiguration(maps[0]["data"][file])
