# render-svc: the program, its license, and glibc; without a shell. Build it in the repository's root:
#
#   docker build --file deploy/images/render-svc.Dockerfile --tag localhost/tandem/render-svc:0.1.0 \
#     --build-arg COMMIT="$(git rev-parse HEAD)" .
#
# The tag names an exact version. Use its digest in your registry, so that it cannot change.
ARG RUST=1.95.0
ARG DEBIAN=bookworm

FROM rust:${RUST}-slim-${DEBIAN} AS build
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
ARG COMMIT=unknown
# The flags of `cargo xtask dist`. No libtorch is built or linked.
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    TANDEM_DIST=1 TANDEM_COMMIT=${COMMIT} cargo build --locked --profile release --package render-svc --bin render-svc \
    && strip -o /render-svc target/release/render-svc

# The program, its libraries and the loader: everything that the image has.
RUN mkdir /image && cp LICENSE /render-svc /image/ \
    && ldd /render-svc | grep --only-matching '/[^ )]*' | xargs -I{} cp --dereference --parents {} /image/

# No shell, no package manager. Certificates of authorities are given by flags, so none is needed.
FROM scratch
ARG COMMIT=unknown
LABEL org.opencontainers.image.title="render-svc" \
      org.opencontainers.image.description="Turns conversations into the exact prompts of models" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${COMMIT}"
COPY --from=build /image /
USER 65532:65532
EXPOSE 50051 8081 9464
ENTRYPOINT ["/render-svc"]
CMD ["serve", "--help"]
