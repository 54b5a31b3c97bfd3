# gen-svc: the program, libtorch, and glibc; without a shell. Build it in the repository's root:
#
#   docker build --file deploy/images/gen-svc.Dockerfile --tag localhost/tandem/gen-svc:0.1.0 \
#     --build-arg COMMIT="$(git rev-parse HEAD)" .
#   docker build ... --tag localhost/tandem/gen-svc:0.1.0-cuda --build-arg DEVICE=cuda .    # x86-64 only
#
# The tag names an exact version. Use its digest in your registry, so that it cannot change.
ARG RUST=1.95.0
ARG DEBIAN=bookworm

FROM rust:${RUST}-slim-${DEBIAN} AS build
RUN apt-get update && apt-get install --yes --no-install-recommends g++ python3 python3-pip python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
ARG DEVICE=cpu
ARG COMMIT=unknown
# Set-up fetches libtorch with pinned digests, and the default model, which the image leaves out.
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    case ${DEVICE} in cpu) cargo xtask setup ;; cuda) cargo xtask setup --cuda ;; *) echo "DEVICE is cpu or cuda" >&2; exit 1 ;; esac
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    TANDEM_DIST=1 TANDEM_COMMIT=${COMMIT} cargo build --locked --profile release --bin gen-svc \
    && strip -o /gen-svc target/release/gen-svc
# The program in /bin and libtorch in /lib, where the program looks. With CUDA, libtorch loads some
# libraries by name while it runs, so all are kept. Then glibc, libgcc, libstdc++ and the loader.
RUN mkdir --parents /image/bin /image/lib && cp LICENSE /image/ && cp /gen-svc /image/bin/ \
    && export LD_LIBRARY_PATH=/src/.tandem/libtorch/lib \
    && if [ "${DEVICE}" = cuda ]; then cp --dereference $LD_LIBRARY_PATH/*.so* /image/lib/; fi \
    && ldd /gen-svc /image/lib/* | grep --only-matching '/[^ ):]*' | sort --unique > /needed \
    && grep "^$LD_LIBRARY_PATH/" /needed | xargs -I{} cp --dereference {} /image/lib/ \
    && grep -E '^/(lib|lib64|usr/lib)/' /needed | xargs -I{} cp --dereference --parents {} /image/

# No shell, no package manager. Certificates of authorities are given by flags, so none is needed.
FROM scratch
ARG COMMIT=unknown
ARG DEVICE=cpu
LABEL org.opencontainers.image.title="gen-svc" \
      org.opencontainers.image.description="Runs one language model and streams its tokens (${DEVICE})" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${COMMIT}"
# The container runtime of NVIDIA mounts the driver, as these variables ask.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=build /image /
USER 65532:65532
EXPOSE 50052 8081 9464
ENTRYPOINT ["/bin/gen-svc"]
CMD ["serve", "--help"]
