# render-svc: the root file system that `cargo xtask images` makes, for builds with a container engine:
#
#   cargo xtask images render-svc
#   docker build --file deploy/images/render-svc.Dockerfile --build-arg COMMIT=$(git rev-parse HEAD) \
#     --tag localhost/tandem/render-svc:0.1.0 target/images/render-svc
#
# The tag names an exact version. Use its digest in your registry, so that it cannot change.
# No shell, no package manager. Certificates of authorities are given by flags, so none is needed.
FROM scratch
ARG COMMIT=unknown
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="render-svc" \
      org.opencontainers.image.description="Turns conversations into the exact prompts of models" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT}"
COPY root /
USER 65532:65532
EXPOSE 50051 8081 9464
ENTRYPOINT ["/bin/render-svc"]
CMD ["serve", "--help"]
