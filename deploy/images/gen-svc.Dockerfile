# gen-svc: the root file system that `cargo xtask images` makes, for builds with a container engine:
#
#   cargo xtask images gen-svc
#   docker build --file deploy/images/gen-svc.Dockerfile --build-arg COMMIT=$(git rev-parse HEAD) \
#     --tag localhost/tandem/gen-svc:0.1.0 target/images/gen-svc
#
# With CUDA: cargo xtask setup --cuda, then the same with --build-arg GPUS=all and the tag 0.1.0-cuda.
#
# The tag names an exact version. Use its digest in your registry, so that it cannot change.
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
COPY root /
USER 65532:65532
EXPOSE 50052 8081 9464
ENTRYPOINT ["/bin/gen-svc"]
CMD ["serve", "--help"]
