"""Real clients get their configuration through the relay and route traffic: Envoys over ADS and over per-type streams, by delta
and state of the world, and a gRPC client. Not one request may fail through changes of any type, a burst that nobody ordered,
configuration that is refused, and the loss of the control plane."""

import argparse
import time

import changes
import grpc_by_xds
from resources import Source

SOURCES = [Source(aggregated, delta) for aggregated in [True, False] for delta in [True, False]]


def scenarios():
    """Names, and what to call with the options."""
    for source in SOURCES:
        for upstream in ["delta", "sotw"]:
            yield f"changes, {source}, upstream {upstream}", changes.run, (source, upstream)
    for upstream in ["delta", "sotw"]:
        yield f"gRPC by xds:///, upstream {upstream}", grpc_by_xds.run, (upstream,)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envoy", required=True)
    parser.add_argument("--weir", required=True)
    parser.add_argument("--log", default="weir=debug", help="what the relay logs, shown if a scenario fails")
    parser.add_argument("only", nargs="?", default="", help="only scenarios that have this in their names")
    options = parser.parse_args()
    passed = 0
    for name, run, arguments in scenarios():
        if options.only in name:
            print(name, flush=True)
            start = time.monotonic()
            run(options, *arguments)
            print(f"  {time.monotonic() - start:.1f} s", flush=True)
            passed += 1
    print(f"{passed} passed, 0 failed")


main()
