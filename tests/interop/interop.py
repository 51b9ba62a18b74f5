"""Real clients get their configuration through the relay and route traffic: Envoys over ADS and over per-type streams, by delta
and state of the world, and a gRPC client. Not one request may fail through changes of any type, a burst that nobody ordered,
configuration that is refused, and the loss of the control plane, whether or not there is a second one. And what a newcomer
meets, and an Envoy that moves from its control plane to the relay."""

import argparse
import multiprocessing
import multiprocessing.connection
import os
import sys
import tempfile
import time
import traceback

import alerts
import alerts_of_the_machine
import brakes
import changes
import end_of_set
import every_type
import evidence
import failover
import federation
import first_minute
import gateway
import go_plane
import grpc_by_xds
import identity
import leds
import loads
import migrate
import moved
import on_demand
import order
import polling
import processes
import refusals
import reload
import renamed
import warm_start
import web
from real import report
from real import scenarios as real
from resources import Source
from skipped import Skipped

SOURCES = [Source(aggregated, delta) for aggregated in [True, False] for delta in [True, False]]


def scenarios():
    """Names, and what to call with the options."""
    yield "first minute", first_minute.run, ()
    yield "alerts", alerts.run, ()
    yield "alerts of the machine", alerts_of_the_machine.run, ()
    for source in SOURCES:
        for upstream in ["delta", "sotw"]:
            for scenario in [changes, every_type, refusals]:
                name = scenario.__name__.replace("_", " ")
                yield f"{name}, {source}, upstream {upstream}", scenario.run, (source, upstream)
    for source in SOURCES:
        if source.aggregated:  # between streams there is no order
            yield f"order, {source}, upstream delta", order.run, (source, "delta")
            for upstream in ["delta", "sotw"]:
                yield f"brakes, {source}, upstream {upstream}", brakes.run, (source, upstream)
                yield f"renamed listener, {source}, upstream {upstream}", renamed.run, (source, upstream)
                yield f"warm start, {source}, upstream {upstream}", warm_start.run, (source, upstream)
                yield f"reload, {source}, upstream {upstream}", reload.run, (source, upstream)
    for source in SOURCES:
        if source.delta:  # virtual hosts have no other variant, towards an Envoy or the control plane
            yield f"on demand, {source}, upstream delta", on_demand.run, (source,)
            yield f"failover, {source}, upstream delta", failover.run_envoy, (source,)
            yield f"collections, {source}, upstream delta", leds.run, (source,)
    for upstream in ["delta", "sotw"]:
        yield f"polling, REST, upstream {upstream}", polling.run, (upstream,)
        yield f"gRPC by xds:///, upstream {upstream}", grpc_by_xds.run, (upstream,)
        yield f"gateway, upstream {upstream}", gateway.run, (upstream,)
        yield f"failover, gRPC, upstream {upstream}", failover.run_grpc, (upstream,)
        yield f"federation, gRPC, upstream {upstream}", federation.run, (upstream,)
    for source in SOURCES:
        if source.aggregated:
            yield f"evidence, relay restarted, {source}", evidence.run_restart, (source,)
            yield f"evidence, slow primary, {source}", evidence.run_return, (source,)
        if source.delta:
            yield f"evidence, stopped control plane, {source}", evidence.run_stopped, (source,)
    yield "evidence, stopped control plane, gRPC", evidence.run_stopped_grpc, ()
    for source in SOURCES:
        yield f"identity, TLS, {source}", identity.run_tls, (source,)
    for source in SOURCES:
        if source.aggregated:
            yield f"identity, Unix socket, {source}", identity.run_unix, (source,)
            yield f"identity, balancer, {source}", identity.run_balancer, (source, "V2" if source.delta else "V1")
    yield "identity, TLS, gRPC", identity.run_grpc, ()
    for cache in go_plane.CACHES:
        yield f"end of a set, go-control-plane, {cache}", end_of_set.run, (cache,)
    for view in ["cold", "warm"]:
        for cache in go_plane.CACHES:
            yield f"moved, {view} view, go-control-plane, {cache}", moved.run_go, (cache, view == "warm")
        for habit in moved.HABITS:
            yield f"moved, {view} view, sets in pieces, {habit}", moved.run_pieces, (habit, view == "warm")
    for source in SOURCES:
        if source.aggregated:
            yield f"migrate, {source}, upstream delta", migrate.run, (source, "delta")
    for mode in ["pass_through", "aggregate"]:
        yield f"loads, gRPC, {mode}", loads.run, ("delta", mode)


# How the process of a scenario ends; otherwise it has failed.
PASSED, SKIPPED = 0, 2
ENDS = {PASSED: "passed", SKIPPED: "skipped"}

# What runs with every change: one of each kind, in all variants.
GATE = [
    "first minute", "changes, per-type streams, SotW, upstream delta", "every type, ADS, delta, upstream sotw", "refusals, ADS, SotW, upstream delta",
    "order, ADS, delta, upstream delta", "warm start, ADS, delta, upstream sotw", "reload, ADS, SotW, upstream delta",
    "on demand, per-type streams, delta, upstream delta", "failover, ADS, delta, upstream delta", "polling, REST, upstream sotw",
    "gRPC by xds:///, upstream delta", "federation, gRPC, upstream sotw", "identity, TLS, per-type streams, SotW", "loads, gRPC, aggregate"]

# Their machine has to be quiet.
ALONE = ["alerts of the machine"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envoy", required=True)
    parser.add_argument("--weir", required=True)
    parser.add_argument("--promtool", required=True)
    parser.add_argument("--log", default="weir=debug", help="what the relay logs, shown if a scenario fails")
    parser.add_argument("--jobs", type=int, default=1, help="how many scenarios run at the same time")
    parser.add_argument("--gate", action="store_true", help="only one scenario of each kind")
    parser.add_argument("--real", metavar="NAME|all|always|clients|record",
                        help="instead: this real control plane, directly and through the relay")
    parser.add_argument("only", nargs="?", default="", help="only scenarios that have this in their names")
    options = parser.parse_args()
    every = real.scenarios(options.real) if options.real else scenarios()
    chosen = [scenario for scenario in every if options.only in scenario[0] and (not options.gate or scenario[0] in GATE)]
    assert not options.gate or options.only or len(chosen) == len(GATE), "GATE names scenarios that are not there"
    if not chosen:
        parser.error("no scenario has this name")
    if any("go-control-plane" in name for name, _, _ in chosen):
        go_plane.build()
    if options.real:
        real.build(chosen, options.real)
    jobs = 1 if options.real == "all" else options.jobs  # one of them has a fixed port, and each wants the machine
    ended = run_together([scenario for scenario in chosen if scenario[0] not in ALONE], options, jobs)
    ended += run_together([scenario for scenario in chosen if scenario[0] in ALONE], options, 1)
    if options.real:
        report.show([(name, ENDS.get(code, "FAILED"), seconds, rows) for name, code, seconds, rows in ended])
    outcomes = [code for _, code, _, _ in ended]
    passed, skipped = outcomes.count(PASSED), outcomes.count(SKIPPED)
    failed = len(outcomes) - passed - skipped
    print(f"{passed} passed, {failed} failed" + (f", {skipped} SKIPPED: this machine lacks what they need, see above" if skipped else ""))
    sys.exit(0 if passed and not failed else 1)


def run_together(waiting, options, jobs):
    """Runs each scenario in a process of its own, so many at a time. Prints what they print, one after another, and returns of each its name,
    how it has ended, after how many seconds, and the rows that it has noted."""
    forking = multiprocessing.get_context("fork")  # what is imported is shared; nothing has used gRPC yet
    parts, running, ended = list(range(jobs)), {}, []
    while waiting or running:
        while waiting and parts:
            scenario, part, output, rows = waiting.pop(0), parts.pop(), tempfile.TemporaryFile(), tempfile.TemporaryFile()
            process = forking.Process(target=run_one, args=(scenario, options, (part, jobs), output, rows))
            process.start()
            running[process.sentinel] = process, scenario[0], part, output, rows, time.monotonic()
        for sentinel in multiprocessing.connection.wait(running):
            process, name, part, output, rows, start = running.pop(sentinel)
            process.join()
            output.seek(0)
            printed, seconds = output.read().decode(errors="replace"), time.monotonic() - start
            print(f"{name}\n{printed}  {seconds:.1f} s", flush=True)
            parts.append(part)
            ended.append((name, process.exitcode, seconds, report.read(rows)))
    return ended


def run_one(scenario, options, part, output, rows):
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    processes.use_ports(part)
    _, run, arguments = scenario
    if options.real:
        web.end_within(real.LIMIT)
    try:
        run(options, *arguments)
    except Skipped as why:
        print(f"  SKIPPED: {why}")
        report.note("none", "", "", str(why))
        sys.exit(SKIPPED)
    except Exception as error:
        traceback.print_exc()
        report.note("where it failed", "", "", str(error)[:300])
        sys.exit(1)
    finally:
        report.write(rows)


if __name__ == "__main__":
    main()
