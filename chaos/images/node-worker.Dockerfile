# The oracle's driver: real bullmq on Node. Build it with `python -m chaos.images.build`, which puts the pinned package
# into the context (`modules/`), because a build need not reach npm.
ARG BASE=node:20-bookworm-slim
FROM ${BASE}
COPY modules /kit/modules
COPY driver /kit/driver
ENV BULLMQ_CONFORMANCE_MODULES=/kit/modules
ENTRYPOINT ["node", "/kit/driver/driver.mjs"]
