# The image of the operator and of the health daemon; with EXTRAS also of training jobs:
#
#   docker build -t clusterops:0.1.0 .
#   docker build -t clusterops-train:0.1.0 --build-arg EXTRAS=rlhf .

ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
ARG EXTRAS=cluster
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY clusterops clusterops
COPY health health
COPY rlhf rlhf
COPY manifests manifests
RUN python -m venv /opt/clusterops \
    && /opt/clusterops/bin/pip install --no-cache-dir --compile ".[${EXTRAS}]"

FROM python:${PYTHON}-slim
COPY --from=build /opt/clusterops /opt/clusterops
ENV PATH=/opt/clusterops/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
# By number, so that Kubernetes can tell that it is not root.
USER 65532:65532
ENTRYPOINT ["clusterops"]
