# The reference client's driver. Build it with `python -m chaos.images.build`: wheels and the extracted Lua scripts of the
# pinned package are in the context, so that a build need not reach PyPI or npm.
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE}
COPY wheels /kit/wheels
RUN python3 -m venv /kit/environment \
    && /kit/environment/bin/pip install --no-cache-dir --no-index --find-links /kit/wheels bullmq-conformance \
    && rm -rf /kit/wheels
COPY cache /kit/cache
ENV BULLMQ_CONFORMANCE_CACHE=/kit/cache
ENTRYPOINT ["/kit/environment/bin/python", "-m", "conformance.reference_impl.driver"]
