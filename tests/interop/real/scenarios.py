"""Real control planes, each put through the same steps directly and through Weir. Dumps have to be equal after each step, and no request may
fail that would not have without Weir."""

import difflib
import functools
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

from real import clients, consul_acls, istiod_sharing, record, report, steps
from real.build import VERSIONS
from real.consul import Consul
from real.course import Course
from real.envoy_gateway import EnvoyGateway
from real.go_control_plane import GoControlPlane
from real.istiod import Istiod
from real.java_control_plane import JavaControlPlane
from resources import Source
from skipped import Skipped

WAYS = ["direct", "Weir"]
# Seconds for one of them, once it is built. Longer changes at random make it longer, and a busy machine may need it.
LIMIT = int(os.environ.get("WEIR_LIMIT", max(360, steps.CHURN + 180)))
# What is no single control plane.
GROUPS = ["all", "always", "clients", "record"]
# What runs with every change: a part that is built and run within four minutes.
ALWAYS = ["real, go-control-plane, snapshot, delta", "real, go-control-plane, linear, sotw", "real, java-control-plane, delta"]


def kinds():
    """By name: what is built for it, and how it is made, for each form in which it runs."""
    for cache in GoControlPlane.CACHES:
        yield f"go-control-plane, {cache}", GoControlPlane, functools.partial(GoControlPlane, cache=cache)
    yield "istiod", Istiod, Istiod
    yield "consul", Consul, Consul
    yield "envoy-gateway", EnvoyGateway, EnvoyGateway
    yield "java-control-plane", JavaControlPlane, JavaControlPlane


def scenarios(wanted):
    if wanted == "record":
        for name, (plane, _, _) in record.RECORDINGS.items():
            yield f"real, record, {name}", record.run, (plane, name)
    if wanted == "clients":
        version, plane, make = VERSIONS["clients"]["older_envoy"], GoControlPlane, functools.partial(GoControlPlane, cache="snapshot")
        for variant in plane.VARIANTS:
            source = Source(aggregated=True, delta=variant == "delta")
            yield f"real, Envoy {version}, go-control-plane, {variant}", clients.run_older_envoy, (plane, run, make, source, variant)
        for language in [clients.GrpcGo, clients.GrpcJava]:
            for variant in plane.VARIANTS:
                yield f"real, {language.NAME}, upstream {variant}", clients.run_grpc, (language, variant)
    if wanted in ["all", Consul.NAME]:
        source = Source(aggregated=True, delta=True)
        yield "real, consul, ACLs", consul_acls.run, (Consul, source)
        yield "real, consul, killed five times", run, (Consul, Consul, source, "delta", steps.five_kills())
    if wanted in ["all", "istiod-sharing"]:
        yield "real, istiod-sharing", istiod_sharing.run, (Istiod, Source(aggregated=True, delta=True))
    for name, plane, make in kinds():
        for variant in plane.VARIANTS:
            whole = f"real, {name}, {variant}"
            if wanted in ["all", plane.NAME] or (wanted == "always" and whole in ALWAYS):
                yield whole, run, (plane, make, Source(aggregated=True, delta=variant == "delta"), variant)


def build(chosen, wanted):
    """Each program once, before scenarios that may run at the same time. One that cannot be built is the trouble of its scenarios, unless it was
    named alone."""
    for plane in {arguments[0] for _, _, arguments in chosen}:
        try:
            plane.build()
        except (Skipped, AssertionError, subprocess.CalledProcessError) as error:
            if wanted not in GROUPS:
                sys.exit(f"--real {wanted} cannot run: {error}")
            print(f"{plane.NAME}: {error}", flush=True)


def run(options, plane, make, source, upstream, made=None):
    """`made` are the steps, each with its name; without it, all of them."""
    plane.build()
    made = made or steps.all_steps()
    with tempfile.TemporaryDirectory() as folder:
        courses = {way: Course(make, options, source, upstream, way, pathlib.Path(folder, way)) for way in WAYS}
        errors = {}

        def go(way, course):
            try:
                course.run(made)
            except Exception as error:
                errors[way] = error

        threads = [threading.Thread(target=go, args=one) for one in courses.items()]
        for thread in threads:
            thread.start()
            if not getattr(plane, "AT_ONCE", True):
                thread.join()
        for thread in threads:
            thread.join()
        for way, error in errors.items():
            print(f"  {way}, {courses[way].step_name}: {str(error)[:500]}")
            report.note(courses[way].step_name, "", "", f"ended here, {way}: {str(error)[:200]}")
        compare(courses, plane.EXCEPTIONS, made)
        if errors:
            raise next(iter(errors.values()))


def compare(courses, exceptions, made):
    """Prints a row for each step. What differs is an error, unless it is an exception of this control plane."""
    direct, weir = courses.values()
    different = []
    for name, _ in made:
        if name not in direct.dumps or name not in weir.dumps:
            print(f"  {name}: not compared")
            report.note(name, "", "", "not compared")
            continue
        equal = direct.dumps[name] == weir.dumps[name]
        failed = [len(course.failures.get(name, [])) for course in [direct, weir]]
        print(f"  {name}: dumps {'equal' if equal else 'DIFFER'}; failed requests: {failed[0]} directly, {failed[1]} through Weir; "
              f"{direct.took[name]:.1f} s directly, {weir.took[name]:.1f} s through Weir")
        wrong = [] if equal else [difference(direct.dumps[name], weir.dumps[name])]
        if failed[1] > failed[0]:
            wrong.append(f"failed requests: {weir.failures[name][:5]}")
        known = exceptions.get(name) if wrong else None
        report.note(name, f"{failed[0]} failed, {direct.took[name]:.1f} s",
                    f"{failed[1]} failed, dump {'equal' if equal else 'DIFFERS'}, {weir.took[name]:.1f} s", known or "")
        if known:
            print(f"    known: {known}")
        elif wrong:
            different.append((name, wrong))
    for name, wrong in different:
        print(f"  {name}:", *wrong, sep="\n    ")
    assert not different, f"differs from the direct run: {[name for name, _ in different]}"


def difference(direct, weir):
    lines = [[f"{section} {text}" for section, texts in dump.items() for text in texts] for dump in [direct, weir]]
    return "\n".join(line[:1500] for line in difflib.unified_diff(*lines, "direct", "Weir", lineterm="", n=0))
