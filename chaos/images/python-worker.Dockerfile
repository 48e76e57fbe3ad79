# The reference client's driver. Build it with `python -m chaos.images.build`: wheels and the pinned package with its Lua
# scripts are in the context, so that a build need not reach PyPI or npm. Only what the driver reads stays in the image:
# an engine that copies whole images (storage driver vfs) starts containers of it several times as fast.
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE}
COPY wheels /kit/wheels
COPY cache /kit/cache
ENV BULLMQ_CONFORMANCE_CACHE=/kit/cache PYTHONPATH=/kit/packages
RUN if command -v node; then rm -f /kit/wheels/nodejs_bin-*; fi \
    && python3 -m venv /kit/installer \
    && /kit/installer/bin/pip install --no-cache-dir --no-index --no-deps --target /kit/packages /kit/wheels/*.whl \
    && rm -rf /kit/installer /kit/wheels \
    && python3 -c 'from conformance.reference_impl.scripts.runner import official_scripts; official_scripts()' \
    && find /kit/cache/*/node_modules -mindepth 1 -maxdepth 1 ! -name bullmq -exec rm -rf {} + \
    && rm -rf /kit/cache/*/node_modules/bullmq/dist/esm
ENTRYPOINT ["python3", "-m", "conformance.reference_impl.driver"]
