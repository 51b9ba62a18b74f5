import com.google.protobuf.Any;
import com.google.protobuf.Message;
import io.envoyproxy.controlplane.cache.Resources;
import io.envoyproxy.controlplane.cache.v3.SimpleCache;
import io.envoyproxy.controlplane.cache.v3.Snapshot;
import io.envoyproxy.controlplane.server.V3DiscoveryServer;
import io.envoyproxy.envoy.config.cluster.v3.Cluster;
import io.envoyproxy.envoy.config.endpoint.v3.ClusterLoadAssignment;
import io.envoyproxy.envoy.config.listener.v3.Listener;
import io.envoyproxy.envoy.config.route.v3.RouteConfiguration;
import io.envoyproxy.envoy.extensions.transport_sockets.tls.v3.Secret;
import io.envoyproxy.envoy.service.discovery.v3.Resource;
import io.grpc.Server;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * A control plane on java-control-plane for the runs with real clients. It serves what comes in on its standard input, in the lines that the
 * one on go-control-plane takes too. Each type has a version of its own, which is new when something of the type is.
 */
public class Main {
  private static final long START = System.currentTimeMillis();
  private static final Map<String, Map<String, Any>> HELD = new TreeMap<>();
  private static final Map<String, Integer> CHANGES = new TreeMap<>();

  public static void main(String[] arguments) throws Exception {
    SimpleCache<String> cache = new SimpleCache<>(node -> node.getCluster());
    V3DiscoveryServer discovery = new V3DiscoveryServer(cache);
    Server server = NettyServerBuilder.forAddress(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])))
        .addService(discovery.getAggregatedDiscoveryServiceImpl())
        .build()
        .start();
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      if (line.isEmpty()) {
        cache.setSnapshot("interop", snapshot());
        System.out.println("taken");
        System.out.flush();
      } else if (line.charAt(0) == '-') {
        String[] gone = line.substring(1).split(" ");
        change(gone[0]).remove(gone[1]);
      } else {
        Resource wrapper = Resource.parseFrom(Base64.getDecoder().decode(line));
        change(wrapper.getResource().getTypeUrl()).put(wrapper.getName(), wrapper.getResource());
      }
    }
    server.shutdownNow();
  }

  private static Map<String, Any> change(String type) {
    CHANGES.merge(type, 1, Integer::sum);
    return HELD.computeIfAbsent(type, unused -> new TreeMap<>());
  }

  private static Snapshot snapshot() throws Exception {
    return Snapshot.create(
        all(Resources.V3.CLUSTER_TYPE_URL, Cluster.class), version(Resources.V3.CLUSTER_TYPE_URL),
        all(Resources.V3.ENDPOINT_TYPE_URL, ClusterLoadAssignment.class), version(Resources.V3.ENDPOINT_TYPE_URL),
        all(Resources.V3.LISTENER_TYPE_URL, Listener.class), version(Resources.V3.LISTENER_TYPE_URL),
        all(Resources.V3.ROUTE_TYPE_URL, RouteConfiguration.class), version(Resources.V3.ROUTE_TYPE_URL),
        List.<Secret>of(), version(Resources.V3.SECRET_TYPE_URL));
  }

  private static <T extends Message> List<T> all(String type, Class<T> kind) throws Exception {
    List<T> found = new ArrayList<>();
    for (Any packed : HELD.getOrDefault(type, Map.of()).values()) {
      found.add(packed.unpack(kind));
    }
    return found;
  }

  /** No process has the versions of an earlier one. */
  private static String version(String type) {
    return START + "-" + CHANGES.getOrDefault(type, 0);
  }
}
