# syntax=docker/dockerfile:1
# The image of the relay:   docker build --build-arg WEIR_COMMIT=$(git rev-parse --short HEAD) -t weir .
# What it serves by itself: docker run --rm -p 18000:18000 -p 19001:19001 weir
# Your configuration:       docker run --rm -p 18000:18000 -v ./relay.yaml:/etc/weir/relay.yaml:ro weir
# deploy/image/rootfs makes the root file system, also without docker from a program that is built already.

FROM rust:1.91-bookworm AS build
WORKDIR /src

# The dependencies are a layer of their own, which lasts until a manifest changes: programs without content need the same ones.
COPY Cargo.toml Cargo.lock ./
COPY core/Cargo.toml core/
COPY loadtest/Cargo.toml loadtest/
COPY testkit/Cargo.toml testkit/
RUN mkdir -p src core/src loadtest/src testkit/src \
 && touch src/lib.rs core/src/lib.rs loadtest/src/lib.rs testkit/src/lib.rs \
 && echo 'fn main() {}' | tee src/main.rs core/build.rs loadtest/src/main.rs > build.rs \
 && cargo build --release --locked --bin weir \
 && rm -r src build.rs core/src core/build.rs

COPY build.rs ./
COPY proto proto
COPY config config
COPY core/build.rs core/README.md core/
COPY core/src core/src
COPY src src
# Cargo goes by times, and those of copied files are older than the programs without content.
ARG WEIR_COMMIT=unknown
RUN find src build.rs core -exec touch {} + \
 && WEIR_COMMIT=$WEIR_COMMIT cargo build --release --locked --bin weir

COPY deploy/strip deploy/strip
RUN mkdir /release && deploy/strip target/release/weir /release
COPY deploy/image deploy/image
RUN deploy/image/rootfs /release/weir /image

# The source lines of this build, for its panics and profiles: docker build --target debug --output . and the same arguments.
FROM scratch AS debug
COPY --from=build /release/weir.debug /

# The program, its libraries, CA certificates and a user; no shell and no package manager.
FROM scratch
COPY --from=build /image /
USER 65532:65532
EXPOSE 18000 19001
# Whether it is ready, and why not. WEIR_ADMIN is another address to ask, of admin or probes.
HEALTHCHECK --interval=10s --timeout=10s --start-period=30s CMD ["/usr/bin/weir", "status", "--ready"]
ENTRYPOINT ["/usr/bin/weir"]
CMD ["--config", "/etc/weir/relay.yaml"]
