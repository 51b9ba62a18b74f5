import io.grpc.CallOptions;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCalls;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** A gRPC client that finds its servers by xDS: each line on standard input is a target to ask, and it prints what it was told. */
public class Main {
  private static final MethodDescriptor<byte[], byte[]> NAME = MethodDescriptor.<byte[], byte[]>newBuilder()
      .setType(MethodDescriptor.MethodType.UNARY)
      .setFullMethodName("test.Echo/Name")
      .setRequestMarshaller(new Bytes())
      .setResponseMarshaller(new Bytes())
      .build();

  private static class Bytes implements MethodDescriptor.Marshaller<byte[]> {
    @Override
    public InputStream stream(byte[] value) {
      return new ByteArrayInputStream(value);
    }

    @Override
    public byte[] parse(InputStream stream) {
      try {
        return stream.readAllBytes();
      } catch (IOException error) {
        throw new RuntimeException(error);
      }
    }
  }

  public static void main(String[] arguments) throws IOException {
    Map<String, ManagedChannel> channels = new HashMap<>();
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      ManagedChannel channel = channels.computeIfAbsent(
          line, target -> Grpc.newChannelBuilder(target, InsecureChannelCredentials.create()).build());
      System.out.println(ask(channel));
      System.out.flush();
    }
    System.exit(0);
  }

  private static String ask(ManagedChannel channel) {
    CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(10, TimeUnit.SECONDS);
    try {
      return new String(ClientCalls.blockingUnaryCall(channel, NAME, options, new byte[0]));
    } catch (StatusRuntimeException error) {
      return error.getStatus().getCode() + ": " + error.getStatus().getDescription();
    }
  }
}
