# gen-bridge, built in a container. In the repository's root:
#
#   docker build --file deploy/images/gen-bridge.Dockerfile --build-arg COMMIT=$(git rev-parse HEAD) \
#     --tag localhost/tandem/gen-bridge:0.1.0 .
#
# Or from the root file system that `cargo xtask images gen-bridge --text-only` has made, without a compiler: add
# `--build-context files=target/images/gen-bridge`. Both have the same files.
#
# The tags name exact versions. Use their digests in your registry, so that they cannot change.
ARG RUST=docker.io/library/rust:1.95.0-bookworm
FROM ${RUST} AS build
WORKDIR /source
COPY . .
ARG COMMIT=unknown
RUN TANDEM_COMMIT=${COMMIT} cargo xtask images gen-bridge --text-only

FROM scratch AS files
COPY --from=build /source/target/images/gen-bridge/root /root

# No shell, no package manager. Certificates of authorities are given by flags, so none is needed.
FROM scratch
ARG COMMIT=unknown
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="gen-bridge" \
      org.opencontainers.image.description="Serves the generation contract in front of another engine" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT}"
COPY --from=files root /
USER 65532:65532
EXPOSE 50052 8081 9464
ENTRYPOINT ["/bin/gen-bridge"]
CMD ["serve", "--help"]
