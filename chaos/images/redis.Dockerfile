# Redis for container mode: `docker build -f chaos/images/redis.Dockerfile --build-arg BASE=... -t bullmq-conformance/redis .`
# Any image with redis-server on its PATH does as well; the kit's default is redis:7.4.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
RUN command -v redis-server || (apt-get update && apt-get install -y --no-install-recommends redis-server && rm -rf /var/lib/apt/lists/*)
RUN mkdir -p /data && chown redis /data
USER redis
WORKDIR /data
EXPOSE 6379
CMD ["redis-server", "--protected-mode", "no", "--dir", "/data"]
