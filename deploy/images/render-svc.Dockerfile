# render-svc, built in a container. In the repository's root:
#
#   docker build --file deploy/images/render-svc.Dockerfile --build-arg COMMIT=$(git rev-parse HEAD) \
#     --tag localhost/tandem/render-svc:0.1.0 .
#
# Or from the root file system that `cargo xtask images render-svc` has made, without a compiler: add
# `--build-context files=target/images/render-svc`. Both have the same files.
#
# The tags name exact versions. Use their digests in your registry, so that they cannot change.
ARG RUST=docker.io/library/rust:1.95.0-bookworm
FROM ${RUST} AS build
RUN apt-get update && apt-get install --yes --no-install-recommends nasm python3-pip python3-venv
WORKDIR /source
COPY . .
ARG COMMIT=unknown
RUN TANDEM_COMMIT=${COMMIT} cargo xtask images render-svc

FROM scratch AS files
COPY --from=build /source/target/images/render-svc/root /root

# No shell, no package manager. Certificates of authorities are given by flags, so none is needed.
FROM scratch
ARG COMMIT=unknown
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="render-svc" \
      org.opencontainers.image.description="Turns conversations into the exact prompts of models" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT}"
COPY --from=files root /
USER 65532:65532
EXPOSE 50051 8081 9464
ENTRYPOINT ["/bin/render-svc"]
CMD ["serve", "--help"]
