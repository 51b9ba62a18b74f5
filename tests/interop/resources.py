"""The resources that the control plane serves, and where an Envoy is to get those that they refer to."""

from dataclasses import dataclass

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.common.mutation_rules.v3 import mutation_rules_pb2
from envoy.config.core.v3 import address_pb2, base_pb2, config_source_pb2, extension_pb2, grpc_service_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
from envoy.config.listener.v3 import api_listener_pb2, listener_components_pb2, listener_pb2
from envoy.config.route.v3 import route_components_pb2, route_pb2, scoped_route_pb2
from envoy.extensions.filters.http.header_mutation.v3 import header_mutation_pb2
from envoy.extensions.filters.http.on_demand.v3 import on_demand_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2, secret_pb2, tls_pb2
from envoy.service.runtime.v3 import rtds_pb2
from envoy.type.v3 import percent_pb2
from google.protobuf import any_pb2, duration_pb2, wrappers_pb2

PREFIX = "type.googleapis.com/"
SCOPE_HEADER, STAMP_HEADER = "x-scope", "x-stamp"
Host = route_components_pb2.VirtualHost


def type_of(message):
    """The type URL of a message, or of its class."""
    return PREFIX + message.DESCRIPTOR.full_name


def packed(message):
    value = any_pb2.Any()
    value.Pack(message, deterministic=True)
    return value


@dataclass(frozen=True)
class Source:
    """How an Envoy gets its configuration: on one stream for everything, or on one for each thing it asks for."""
    aggregated: bool
    delta: bool

    def __str__(self):
        return f"{'ADS' if self.aggregated else 'per-type streams'}, {'delta' if self.delta else 'SotW'}"

    def server(self):
        kinds = config_source_pb2.ApiConfigSource
        relay = grpc_service_pb2.GrpcService(envoy_grpc=grpc_service_pb2.GrpcService.EnvoyGrpc(cluster_name="relay"))
        return kinds(api_type=kinds.DELTA_GRPC if self.delta else kinds.GRPC, transport_api_version=config_source_pb2.V3,
                     grpc_services=[relay])

    @property
    def polls(self):
        return False

    def config(self):
        if self.aggregated:
            return config_source_pb2.ConfigSource(
                resource_api_version=config_source_pb2.V3, ads=config_source_pb2.AggregatedConfigSource())
        return config_source_pb2.ConfigSource(
            resource_api_version=config_source_pb2.V3, api_config_source=self.server())


@dataclass(frozen=True)
class Polling(Source):
    """Everything is asked for again and again, in JSON."""
    aggregated: bool = False
    delta: bool = False

    def __str__(self):
        return "REST"

    @property
    def polls(self):
        return True

    def server(self):
        delay = duration_pb2.Duration(nanos=200_000_000)
        return config_source_pb2.ApiConfigSource(
            api_type=config_source_pb2.ApiConfigSource.REST, transport_api_version=config_source_pb2.V3,
            cluster_names=["relay"], refresh_delay=delay)


def address(port):
    return address_pb2.Address(socket_address=address_pb2.SocketAddress(address="127.0.0.1", port_value=port))


def pipe(path):
    return address_pb2.Address(pipe=address_pb2.Pipe(path=path))


def proves(cluster, certificate, key, ca):
    """A cluster shows this certificate to its servers, which this authority signs for. All are paths."""
    def file(path):
        return base_pb2.DataSource(filename=path)
    shown = common_pb2.TlsCertificate(certificate_chain=file(certificate), private_key=file(key))
    context = tls_pb2.UpstreamTlsContext(common_tls_context=tls_pb2.CommonTlsContext(
        tls_certificates=[shown], validation_context=common_pb2.CertificateValidationContext(trusted_ca=file(ca))))
    cluster.transport_socket.CopyFrom(base_pb2.TransportSocket(name="tls", typed_config=packed(context)))


def cluster(source, name, timeout=1, trusts=None):
    """`trusts` names the secret by which the servers of a cluster are known, which are spoken to by TLS then."""
    made = cluster_pb2.Cluster(
        name=name, type=cluster_pb2.Cluster.EDS, connect_timeout=duration_pb2.Duration(seconds=timeout),
        eds_cluster_config=cluster_pb2.Cluster.EdsClusterConfig(eds_config=source.config()))
    if trusts:
        context = tls_pb2.UpstreamTlsContext(common_tls_context=tls_pb2.CommonTlsContext(
            validation_context_sds_secret_config=secret_pb2.SdsSecretConfig(name=trusts, sds_config=source.config())))
        made.transport_socket.CopyFrom(base_pb2.TransportSocket(name="tls", typed_config=packed(context)))
    return made


def endpoints(name, port):
    endpoint = endpoint_components_pb2.Endpoint(address=address(port))
    return endpoint_pb2.ClusterLoadAssignment(cluster_name=name, endpoints=[
        endpoint_components_pb2.LocalityLbEndpoints(  # gRPC passes over a locality without a weight
            locality=base_pb2.Locality(region="here"), load_balancing_weight=wrappers_pb2.UInt32Value(value=1),
            lb_endpoints=[endpoint_components_pb2.LbEndpoint(endpoint=endpoint)])])


def route_to(cluster_name, runtime_key=None, prefix="/"):
    """All paths to one cluster; with a key, only the percentage of requests that the runtime has under it, or none."""
    match = route_components_pb2.RouteMatch(prefix=prefix)
    if runtime_key:
        fraction = base_pb2.RuntimeFractionalPercent(default_value=percent_pb2.FractionalPercent(), runtime_key=runtime_key)
        match.runtime_fraction.CopyFrom(fraction)
    return route_components_pb2.Route(match=match, route=route_components_pb2.RouteAction(cluster=cluster_name))


def host(name, domain, *routes):
    return Host(name=name, domains=[domain], routes=routes)


def routes(name, *to):
    return route_pb2.RouteConfiguration(name=name, virtual_hosts=[host("all", "*", *to)])


def routes_elsewhere(source, name):
    """A route configuration whose virtual hosts are resources of their own."""
    return route_pb2.RouteConfiguration(name=name, vhds=route_pb2.Vhds(config_source=source.config()))


def scope(name, key, route_name):
    """Requests that have `key` in the scope header go by the given route configuration."""
    kinds = scoped_route_pb2.ScopedRouteConfiguration
    return kinds(name=name, route_configuration_name=route_name,
                 key=kinds.Key(fragments=[kinds.Key.Fragment(string_key=key)]))


def discovered_filter(source, name, kind):
    """An HTTP filter whose configuration is an extension resource of the same name, and of one kind only."""
    discovery = config_source_pb2.ExtensionConfigSource(config_source=source.config(), type_urls=[type_of(kind)])
    return hcm_pb2.HttpFilter(name=name, config_discovery=discovery)


def filter_of(name, config):
    return hcm_pb2.HttpFilter(name=name, typed_config=packed(config))


def extension(name, config):
    """An extension resource of any kind."""
    return extension_pb2.TypedExtensionConfig(name=name, typed_config=packed(config))


def stamp(value):
    """An HTTP filter that puts a header into each response."""
    header = base_pb2.HeaderValueOption(
        header=base_pb2.HeaderValue(key=STAMP_HEADER, value=value),
        append_action=base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD)
    mutation = mutation_rules_pb2.HeaderMutation(append=header)
    return header_mutation_pb2.HeaderMutation(mutations=header_mutation_pb2.Mutations(response_mutations=[mutation]))


def on_demand():
    """An HTTP filter that lets a request wait while its virtual host is asked for."""
    return on_demand_pb2.OnDemand()


def manager(source, route_name=None, scopes=None, label="first", filters=()):
    """An HTTP connection manager with the routes of one name, or of the scopes that the control plane has."""
    router = filter_of("router", router_pb2.Router())
    made = hcm_pb2.HttpConnectionManager(stat_prefix=label, http_filters=[*filters, router])
    if route_name:
        made.rds.CopyFrom(hcm_pb2.Rds(route_config_name=route_name, config_source=source.config()))
    if scopes:
        fragment = hcm_pb2.ScopedRoutes.ScopeKeyBuilder.FragmentBuilder
        by_header = fragment(header_value_extractor=fragment.HeaderValueExtractor(name=SCOPE_HEADER, index=0))
        made.scoped_routes.CopyFrom(hcm_pb2.ScopedRoutes(
            name=scopes, scope_key_builder=hcm_pb2.ScopedRoutes.ScopeKeyBuilder(fragments=[by_header]),
            rds_config_source=source.config(),
            scoped_rds=hcm_pb2.ScopedRds(scoped_rds_config_source=source.config())))
    return made


def listener(source, name, port, http, certificate=None):
    """`certificate` names the secret that the listener shows, which speaks TLS then."""
    chain = listener_components_pb2.FilterChain(
        filters=[listener_components_pb2.Filter(name="http", typed_config=packed(http))])
    if certificate:
        context = tls_pb2.DownstreamTlsContext(common_tls_context=tls_pb2.CommonTlsContext(
            tls_certificate_sds_secret_configs=[
                secret_pb2.SdsSecretConfig(name=certificate, sds_config=source.config())]))
        chain.transport_socket.CopyFrom(base_pb2.TransportSocket(name="tls", typed_config=packed(context)))
    return listener_pb2.Listener(name=name, address=address(port), filter_chains=[chain])


def api_listener(source, name, http):
    return listener_pb2.Listener(name=name, api_listener=api_listener_pb2.ApiListener(api_listener=packed(http)))


def inline(text):
    return base_pb2.DataSource(inline_string=text)


def certificate_secret(name, certificate):
    return secret_pb2.Secret(name=name, tls_certificate=common_pb2.TlsCertificate(
        certificate_chain=inline(certificate.pem), private_key=inline(certificate.key)))


def trust_secret(name, *certificates):
    return secret_pb2.Secret(name=name, validation_context=common_pb2.CertificateValidationContext(
        trusted_ca=inline("".join(certificate.pem for certificate in certificates))))


def runtime(name, **values):
    made = rtds_pb2.Runtime(name=name)
    made.layer.update(values)
    return made
