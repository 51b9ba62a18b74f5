package main

import (
	"context"
	"fmt"
	"log"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	clog "github.com/envoyproxy/go-control-plane/pkg/log"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
)

type resourceKey struct{ typeURL, name string }

// change has resources that are new or different, and nil for those that go.
type change map[resourceKey]types.Resource

// store is a cache that takes changes.
type store interface {
	take(change) error
	cache() cache.Cache
}

func kinds() []string { return []string{"snapshot", "snapshot-ads", "linear", "mux"} }

func newStore(kind string) (store, error) {
	switch kind {
	case "snapshot":
		return newSnapshots(false), nil
	case "snapshot-ads":
		return newSnapshots(true), nil
	case "linear":
		return newLinears(), nil
	case "mux":
		return newMixed(), nil
	}
	return nil, fmt.Errorf("unknown cache %q", kind)
}

// served are the types that an Envoy of these runs asks for.
var served = []string{
	resource.ClusterType, resource.EndpointType, resource.ListenerType, resource.RouteType, resource.RuntimeType,
}

// logger leaves out what each request causes.
var logger = clog.LoggerFuncs{
	WarnFunc:  func(format string, args ...any) { log.Printf("warning: "+format, args...) },
	ErrorFunc: func(format string, args ...any) { log.Printf("error: "+format, args...) },
}

// The clients of these runs and the relay between them have one cluster in their nodes.
const everybody = "interop"

type byCluster struct{}

func (byCluster) ID(node *corev3.Node) string { return node.GetCluster() }

// snapshots makes a snapshot of everything for each change, with a version that all types share.
type snapshots struct {
	cache.SnapshotCache
	version   int
	resources map[resourceKey]types.Resource
}

func newSnapshots(ads bool) *snapshots {
	return &snapshots{
		SnapshotCache: cache.NewSnapshotCache(ads, byCluster{}, logger),
		resources:     map[resourceKey]types.Resource{},
	}
}

func (s *snapshots) cache() cache.Cache { return s.SnapshotCache }

func (s *snapshots) take(next change) error {
	for key, resource := range next {
		if resource == nil {
			delete(s.resources, key)
		} else {
			s.resources[key] = resource
		}
	}
	byType := map[resource.Type][]types.Resource{}
	for _, typeURL := range served {
		byType[typeURL] = nil // an empty type has the version too
	}
	for key, resource := range s.resources {
		byType[key.typeURL] = append(byType[key.typeURL], resource)
	}
	s.version++
	made, err := cache.NewSnapshot(strconv.Itoa(s.version), byType)
	if err != nil {
		return err
	}
	return s.SetSnapshot(context.Background(), everybody, made)
}

// linears has a linear cache for each type.
type linears map[string]*cache.LinearCache

func newLinears() linears {
	made := linears{}
	for _, typeURL := range served {
		made[typeURL] = cache.NewLinearCache(typeURL, cache.WithLogger(logger))
	}
	return made
}

func (l linears) cache() cache.Cache {
	return muxed(func(typeURL string) cache.Cache {
		if of, ok := l[typeURL]; ok {
			return of
		}
		return nil
	})
}

func (l linears) take(next change) error {
	for _, typeURL := range served {
		changed, gone := map[string]types.Resource{}, []string{}
		for key, resource := range next {
			switch {
			case key.typeURL != typeURL:
			case resource == nil:
				gone = append(gone, key.name)
			default:
				changed[key.name] = resource
			}
		}
		if len(changed)+len(gone) == 0 {
			continue
		}
		if err := l[typeURL].UpdateResources(changed, gone); err != nil {
			return err
		}
	}
	return nil
}

// mixed has endpoints in a linear cache, and snapshots of the rest, which is how programs with many endpoints do it.
type mixed struct {
	endpoints linears
	rest      *snapshots
}

func newMixed() mixed { return mixed{newLinears(), newSnapshots(false)} }

func (m mixed) cache() cache.Cache {
	return muxed(func(typeURL string) cache.Cache {
		if typeURL == resource.EndpointType {
			return m.endpoints[typeURL]
		}
		return m.rest.SnapshotCache
	})
}

func (m mixed) take(next change) error {
	endpoints, rest := change{}, change{}
	for key, resource := range next {
		part := rest
		if isEndpoint(key) {
			part = endpoints
		}
		part[key] = resource
	}
	if err := m.endpoints.take(endpoints); err != nil {
		return err
	}
	if len(rest) == 0 {
		return nil
	}
	return m.rest.take(rest)
}

func isEndpoint(key resourceKey) bool { return key.typeURL == resource.EndpointType }

// muxed is one cache of those that types have. Without a function for each variant, a request in the other one is a panic.
func muxed(of func(typeURL string) cache.Cache) *cache.MuxCache {
	caches := map[string]cache.Cache{}
	for _, typeURL := range served {
		caches[typeURL] = of(typeURL)
	}
	return &cache.MuxCache{
		Classify:      func(request *cache.Request) string { return request.GetTypeUrl() },
		ClassifyDelta: func(request *discoveryv3.DeltaDiscoveryRequest) string { return request.GetTypeUrl() },
		Caches:        caches,
	}
}
