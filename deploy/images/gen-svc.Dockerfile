# gen-svc, built in a container. In the repository's root:
#
#   docker build --file deploy/images/gen-svc.Dockerfile --build-arg COMMIT=$(git rev-parse HEAD) \
#     --tag localhost/tandem/gen-svc:0.1.0 .
#
# Or from the root file system that `cargo xtask images gen-svc` has made, without a compiler: add
# `--build-context files=target/images/gen-svc`. Both have the same files.
#
# With CUDA: add `--build-arg GPUS=all`, and use the tag 0.1.0-cuda. Without libtorch: add
# `--build-arg IMAGE=gen-svc-text`, and use the tag 0.1.0-text.
#
# The tags name exact versions. Use their digests in your registry, so that they cannot change.
ARG RUST=docker.io/library/rust:1.95.0-bookworm
FROM ${RUST} AS build
RUN apt-get update && apt-get install --yes --no-install-recommends nasm python3-pip python3-venv
WORKDIR /source
COPY . .
ARG GPUS=void
RUN if [ "${GPUS}" != void ]; then cargo xtask setup --cuda; fi
ARG COMMIT=unknown
ARG IMAGE=gen-svc
RUN TANDEM_COMMIT=${COMMIT} cargo xtask images gen-svc $(test ${IMAGE} = gen-svc || echo --text-only)

FROM scratch AS files
ARG IMAGE=gen-svc
COPY --from=build /source/target/images/${IMAGE}/root /root

# No shell, no package manager. Certificates of authorities are given by flags, so none is needed.
FROM scratch
ARG COMMIT=unknown
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="gen-svc" \
      org.opencontainers.image.description="Runs one language model and streams its tokens" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT}"
# The container runtime of NVIDIA mounts the driver and the GPUs, as these variables ask. `void`: none.
ARG GPUS=void
ENV NVIDIA_VISIBLE_DEVICES=${GPUS} NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=files root /
USER 65532:65532
EXPOSE 50052 8081 9464
ENTRYPOINT ["/bin/gen-svc"]
CMD ["serve", "--help"]
