"""The manifests of deploy/kubernetes: they build, fit the schemas of Kubernetes, and keep the rules; each rule finds its fault."""

import copy
import os
import re
import subprocess
import tempfile
import unittest

import kubernetes_validate

import rules
from manifests import KUBERNETES, build, configuration_of, name_of, of_kind, relay_of, relays

OVERLAYS = ["regional", "sidecar", "tiers"]
# `trafficDistribution` is new in the first; the last is the newest that the package carries.
VERSIONS = ["1.31", "1.34", "1.37"]
# Kinds of the Prometheus operator, which are not in the schemas.
WITHOUT_SCHEMA = {"PodMonitor"}
COMPONENTS = ["state-on-disk", "scale-by-streams", "tls"]


def with_components():
    """Builds the regional overlay with the components that no overlay uses."""
    with tempfile.TemporaryDirectory(dir="target") as folder:
        up = os.path.relpath(KUBERNETES, folder)
        with open(f"{folder}/kustomization.yaml", "w") as file:
            file.write(f"resources: [{up}/overlays/regional]\n")
            file.write(f"components: [{', '.join(f'{up}/components/{one}' for one in COMPONENTS)}]\n")
        return build(folder)


class Manifests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.built = {one: build(f"{KUBERNETES}/overlays/{one}") for one in OVERLAYS}
        cls.built["components"] = with_components()
        cls.built["base"] = build(f"{KUBERNETES}/base")
        # The sidecars connect to the regional tier, which another overlay has.
        cls.built["sidecar"] += cls.built["regional"]

    def test_each_object_fits_the_schemas_of_kubernetes(self):
        for overlay, objects in self.built.items():
            for one in objects:
                if one["kind"] not in WITHOUT_SCHEMA:
                    for version in VERSIONS:
                        with self.subTest(overlay=overlay, object=name_of(one), version=version):
                            kubernetes_validate.validate(one, version, strict=True)

    def test_a_field_that_is_misspelt_does_not_fit(self):
        one = copy.deepcopy(relays(self.built["regional"])[0])
        one["spec"]["template"]["spec"]["terminationGracePeriod"] = 60
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(one, VERSIONS[0], strict=True)

    def test_the_rules_hold(self):
        self.assertEqual([fault for objects in self.built.values() for fault in rules.faults(objects)], [])

    def test_components_change_what_they_are_for(self):
        tier, = relays(self.built["components"])
        scaler, = of_kind(self.built["components"], "HorizontalPodAutoscaler")
        self.assertEqual((tier["kind"], tier["spec"]["volumeClaimTemplates"][0]["metadata"]["name"]), ("StatefulSet", "state"))
        self.assertEqual([volume["name"] for volume in tier["spec"]["template"]["spec"]["volumes"]], ["config", "tls"])
        self.assertEqual([mount["name"] for mount in relay_of(tier)["volumeMounts"]], ["config", "state", "tls"])
        self.assertEqual(scaler["spec"]["metrics"][0]["pods"]["metric"]["name"], "weir_client_streams_open")

    def test_namespaces_enforce_what_the_pods_keep(self):
        for objects in self.built.values():
            for namespace in of_kind(objects, "Namespace"):
                self.assertEqual(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "restricted")

    def test_weir_accepts_each_configuration(self):
        for overlay, objects in self.built.items():
            for one in relays(objects):
                with self.subTest(overlay=overlay, relay=name_of(one)), tempfile.TemporaryDirectory() as folder:
                    text = configuration_of(one, objects).text.replace("/var/lib/weir/", f"{folder}/")
                    with open(f"{folder}/relay.yaml", "w") as file:
                        file.write(text)
                    done = subprocess.run([os.environ["WEIR"], "check", "--config", file.name], capture_output=True, text=True)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    # That clients connect in plain text is decided here, and said in docs/deploy.md.
                    warnings = [line for line in done.stderr.splitlines() if "no TLS: every machine" not in line]
                    self.assertEqual(warnings, [])

    def test_each_rule_finds_its_fault(self):
        for rule, overlay, change in FAULTS:
            with self.subTest(rule=rule):
                objects = copy.deepcopy(self.built[overlay])
                self.assertEqual(rules.faults(objects), [])
                change(objects)
                found = {fault.split(":")[0] for fault in rules.faults(objects)}
                self.assertIn(rule, found)
        self.assertEqual({rule for rule, _, _ in FAULTS}, {rule.__name__ for rule in rules.RULES})


def pod(objects, place=0):
    return relays(objects)[place]["spec"]["template"]["spec"]


def spec(objects, kind, place=0):
    return of_kind(objects, kind)[place]["spec"]


def rewrite(old, new):
    """Returns a change of the text of each configuration."""

    def change(objects):
        for one in of_kind(objects, "ConfigMap"):
            text = re.sub(old, new, one["data"]["relay.yaml"])
            assert text != one["data"]["relay.yaml"], old
            one["data"]["relay.yaml"] = text

    return change


FAULTS = [
    ("pods_have_time_to_drain", "regional", rewrite("grace: 10s", "grace: 46s")),
    ("pods_have_time_to_drain", "base", lambda all: pod(all).update(terminationGracePeriodSeconds=24)),
    ("relays_notice_their_end_before_endpoints_do", "regional", rewrite("delay: 5s, ", "")),
    ("nothing_needs_a_shell", "regional", lambda all: pod(all)["containers"][0].update(lifecycle={"preStop": {"exec": {"command": ["sleep", "5"]}}})),
    ("probes_ask_the_right_paths_at_the_port_of_probes", "regional", rewrite(":19001", ":19002")),
    ("probes_ask_the_right_paths_at_the_port_of_probes", "regional", lambda all: pod(all)["containers"][0]["livenessProbe"]["httpGet"].update(path="/ready")),
    ("container_ports_are_those_of_the_configuration", "regional", rewrite(":18000", ":18001")),
    ("services_lead_to_the_ports_of_clients", "regional", lambda all: spec(all, "Service")["ports"][0].update(targetPort="probes")),
    ("services_say_what_is_spoken_at_their_ports", "regional", lambda all: spec(all, "Service")["ports"][0].pop("appProtocol")),
    ("services_say_what_is_spoken_at_their_ports", "components", lambda all: spec(all, "Service")["ports"][0].update(appProtocol="grpc")),
    ("each_tier_has_one_of_each", "tiers", lambda all: spec(all, "Service").update(selector={"app.kubernetes.io/name": "weir"})),
    ("each_tier_has_one_of_each", "tiers", lambda all: spec(all, "NetworkPolicy")["podSelector"].clear()),
    ("each_tier_has_one_of_each", "tiers", lambda all: all.remove(of_kind(all, "PodDisruptionBudget")[1])),
    ("pods_are_spread_among_their_like", "tiers", lambda all: pod(all)["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"].popitem()),
    ("one_relay_may_go_and_not_all", "regional", lambda all: spec(all, "PodDisruptionBudget").update(maxUnavailable=0)),
    ("one_relay_may_go_and_not_all", "regional", lambda all: spec(all, "HorizontalPodAutoscaler").update(minReplicas=1)),
    ("rollouts_make_before_they_break", "regional", lambda all: relays(all)[0]["spec"]["strategy"]["rollingUpdate"].update(maxUnavailable=1)),
    ("scalers_shrink_slower_than_relays_drain", "regional", lambda all: spec(all, "HorizontalPodAutoscaler")["behavior"]["scaleDown"]["policies"][0].update(periodSeconds=20)),
    ("scalers_shrink_slower_than_relays_drain", "regional", lambda all: relays(all)[0]["spec"].update(replicas=2)),
    ("scalers_shrink_slower_than_relays_drain", "components", lambda all: spec(all, "HorizontalPodAutoscaler")["scaleTargetRef"].update(kind="Deployment")),
    ("scalers_shrink_slower_than_relays_drain", "regional", rewrite("max_connection_age: 25m", "max_connection_age: 28m")),
    ("scalers_shrink_slower_than_relays_drain", "regional", rewrite("max_connection_age: 25m", "max_connection_age: 0s")),
    ("pods_are_restricted", "regional", lambda all: pod(all)["securityContext"].update(runAsNonRoot=False)),
    ("pods_are_restricted", "sidecar", lambda all: pod(all)["containers"][0]["securityContext"].pop("readOnlyRootFilesystem")),
    ("memory_is_limited_and_what_relays_use_follows_from_it", "regional", rewrite("drain:", "limits: {cached_bytes: 2GiB}\ndrain:")),
    ("memory_is_limited_and_what_relays_use_follows_from_it", "regional", rewrite("drain:", "limits: {memory: 2GiB}\ndrain:")),
    ("memory_is_limited_and_what_relays_use_follows_from_it", "regional", rewrite("drain:", "limits: {memory: 100%}\ndrain:")),
    ("memory_is_limited_and_what_relays_use_follows_from_it", "sidecar", lambda all: relay_of(relays(all)[0])["resources"]["limits"].pop("memory")),
    ("state_is_on_a_volume", "regional", rewrite("/var/lib/weir/", "/var/lib/")),
    ("policies_let_relays_reach_their_servers", "regional", rewrite(":18010", ":18011")),
    ("upper_tiers_exist_and_have_the_same_key", "tiers", rewrite("weir.xds.svc|locality.region", "other.xds.svc")),
    ("upper_tiers_exist_and_have_the_same_key", "tiers", lambda all: rewrite("locality.region", "tenant")(of_kind(all, "ConfigMap")[1:])),
    ("monitors_scrape_relays", "regional", lambda all: spec(all, "PodMonitor")["podMetricsEndpoints"][0].update(port="xds")),
]
