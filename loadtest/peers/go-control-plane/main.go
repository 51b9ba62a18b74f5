// A control plane on go-control-plane, to compare a relay with. It subscribes to all resources of one type at another control plane,
// keeps them in a linear or a snapshot cache, and serves that cache.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"net"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	_ "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
)

var (
	kind     = flag.String("cache", "linear", "linear or snapshot")
	upstream = flag.String("upstream", "", "address of the control plane")
	typeURL  = flag.String("type", resource.ClusterType, "type of the resources")
)

// store is a cache that takes changes.
type store interface {
	change(resources map[string]types.Resource) error
	cache() cache.Cache
}

type linear struct{ *cache.LinearCache }

func (l linear) change(resources map[string]types.Resource) error {
	return l.UpdateResources(resources, nil)
}

func (l linear) cache() cache.Cache { return l.LinearCache }

type snapshot struct {
	cache.SnapshotCache
	version   int
	resources map[string]types.Resource
}

func (s *snapshot) change(resources map[string]types.Resource) error {
	for name, resource := range resources {
		s.resources[name] = resource
	}
	all := make([]types.Resource, 0, len(s.resources))
	for _, resource := range s.resources {
		all = append(all, resource)
	}
	s.version++
	next, err := cache.NewSnapshot(strconv.Itoa(s.version), map[resource.Type][]types.Resource{*typeURL: all})
	if err != nil {
		return err
	}
	return s.SetSnapshot(context.Background(), everybody, next)
}

func (s *snapshot) cache() cache.Cache { return s.SnapshotCache }

const everybody = "everybody"

type sameForAll struct{}

func (sameForAll) ID(*corev3.Node) string { return everybody }

func main() {
	flag.Parse()
	var contents store
	switch *kind {
	case "linear":
		contents = linear{cache.NewLinearCache(*typeURL)}
	case "snapshot":
		contents = &snapshot{SnapshotCache: cache.NewSnapshotCache(false, sameForAll{}, nil), resources: map[string]types.Resource{}}
	default:
		log.Fatalf("unknown cache %q", *kind)
	}
	stream, err := subscribe()
	if err != nil {
		log.Fatal(err)
	}
	if err := receive(stream, contents); err != nil {
		log.Fatal(err)
	}
	go func() {
		for {
			if err := receive(stream, contents); err != nil {
				log.Fatal(err)
			}
		}
	}()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("listening", listener.Addr())
	clients := grpc.NewServer(grpc.MaxConcurrentStreams(math.MaxUint32))
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(clients, server.NewServer(context.Background(), contents.cache(), nil))
	log.Fatal(clients.Serve(listener))
}

type deltaStream = grpc.BidiStreamingClient[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]

func subscribe() (deltaStream, error) {
	unlimited := grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32))
	plane, err := grpc.NewClient(*upstream, grpc.WithTransportCredentials(insecure.NewCredentials()), unlimited)
	if err != nil {
		return nil, err
	}
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(plane).DeltaAggregatedResources(context.Background())
	if err != nil {
		return nil, err
	}
	return stream, stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: *typeURL, ResourceNamesSubscribe: []string{"*"}})
}

// receive takes one response into the cache and acknowledges it.
func receive(stream deltaStream, contents store) error {
	response, err := stream.Recv()
	if err != nil {
		return err
	}
	changed := make(map[string]types.Resource, len(response.GetResources()))
	for _, wrapper := range response.GetResources() {
		message, err := wrapper.GetResource().UnmarshalNew()
		if err != nil {
			return err
		}
		changed[wrapper.GetName()] = message
	}
	if err := contents.change(changed); err != nil {
		return err
	}
	return stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: response.GetTypeUrl(), ResponseNonce: response.GetNonce()})
}
