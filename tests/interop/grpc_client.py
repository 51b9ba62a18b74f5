"""A gRPC client that finds its servers by xDS: each line on standard input is a target to ask, and it prints what it was told."""

import sys

import grpc

channels = {}
for line in sys.stdin:
    target = line.strip()
    if target not in channels:
        channels[target] = grpc.insecure_channel(target)
    try:
        print(channels[target].unary_unary("/test.Echo/Name")(b"", timeout=10).decode(), flush=True)
    except grpc.RpcError as error:
        print(f"{error.code()}: {error.details()}", flush=True)
