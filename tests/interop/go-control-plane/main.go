// A control plane on go-control-plane for the runs with real clients. It serves what comes in on its standard input, a line for each
// resource: a Resource in base64, or "-", a type URL and the name of one that goes. An empty line makes the lines before it one change.
// It prints what clients refuse.
package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	_ "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
)

var (
	kind = flag.String("cache", "snapshot", strings.Join(kinds(), ", "))
	port = flag.Int("port", 0, "where it listens")
)

func main() {
	flag.Parse()
	contents, err := newStore(*kind)
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		log.Fatal(err)
	}
	clients := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(
		clients, server.NewServer(context.Background(), contents.cache(), refusals()))
	go func() { log.Fatal(clients.Serve(listener)) }()
	if err := follow(contents); err != nil {
		log.Fatal(err)
	}
}

// follow takes changes in until the input ends.
func follow(contents store) error {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	next := change{}
	for lines.Scan() {
		line := lines.Text()
		switch {
		case line == "":
			if err := contents.take(next); err != nil {
				return err
			}
			fmt.Println("taken")
			next = change{}
		case line[0] == '-':
			var gone resourceKey
			if _, err := fmt.Sscan(line[1:], &gone.typeURL, &gone.name); err != nil {
				return err
			}
			next[gone] = nil
		default:
			key, resource, err := parse(line)
			if err != nil {
				return err
			}
			next[key] = resource
		}
	}
	return lines.Err()
}

func parse(line string) (resourceKey, types.Resource, error) {
	encoded, err := base64.StdEncoding.DecodeString(line)
	if err != nil {
		return resourceKey{}, nil, err
	}
	var wrapper discoveryv3.Resource
	if err := proto.Unmarshal(encoded, &wrapper); err != nil {
		return resourceKey{}, nil, err
	}
	resource, err := wrapper.GetResource().UnmarshalNew()
	return resourceKey{wrapper.GetResource().GetTypeUrl(), wrapper.GetName()}, resource, err
}

// refusals prints each NACK.
func refusals() server.Callbacks {
	note := func(node *corev3.Node, typeURL string, detail *status.Status) {
		if detail != nil {
			fmt.Println("refused", node.GetId(), typeURL, detail.GetMessage())
		}
	}
	return server.CallbackFuncs{
		StreamRequestFunc: func(_ int64, request *discoveryv3.DiscoveryRequest) error {
			note(request.GetNode(), request.GetTypeUrl(), request.GetErrorDetail())
			return nil
		},
		StreamDeltaRequestFunc: func(_ int64, request *discoveryv3.DeltaDiscoveryRequest) error {
			note(request.GetNode(), request.GetTypeUrl(), request.GetErrorDetail())
			return nil
		},
	}
}
