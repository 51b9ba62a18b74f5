"""A gRPC client that finds its servers by xDS: each line on standard input is a target to ask, and it prints what it was told. The
method may be given."""

import sys

import grpc

method = sys.argv[1] if len(sys.argv) > 1 else "/test.Echo/Name"
channels = {}
for line in sys.stdin:
    target = line.strip()
    if target not in channels:
        channels[target] = grpc.insecure_channel(target)
    try:
        print(channels[target].unary_unary(method)(b"", timeout=10).decode(), flush=True)
    except grpc.RpcError as error:
        print(f"{error.code()}: {error.details()}", flush=True)
