# Nothing but the static binaries that `make build` made: no shell, no package manager, not root.
#
#   tidemark   the command line and both servers; what an image is for is said by its entrypoint
#   etcd       etcd itself, built from the version in go.mod, for who has no image of it; see deploy/README.md

FROM scratch AS etcd
COPY bin/etcd /usr/local/bin/etcd
# A volume mounted on /data takes over the owner that the directory has here.
COPY --chown=65532:65532 LICENSE /data/
USER 65532:65532
CMD ["etcd"]

FROM scratch AS tidemark
COPY bin/tidemark bin/tidemark-master bin/tidemark-executor LICENSE /
USER 65532:65532
ENTRYPOINT ["/tidemark"]
