"""A gRPC client that finds its servers by xDS: it asks once a line on standard input, and prints what it was told."""

import sys

import grpc

with grpc.insecure_channel("xds:///service") as channel:
    call = channel.unary_unary("/test.Echo/Name")
    for _ in sys.stdin:
        try:
            print(call(b"", timeout=10).decode(), flush=True)
        except grpc.RpcError as error:
            print(f"{error.code()}: {error.details()}", flush=True)
