# The service (`advise serve`) without torch. It runs as a non-root user and writes only to /tmp:
#   docker build -t advisor . && docker run --read-only --tmpfs /tmp --cap-drop ALL -p 8000:8000 \
#     -v "$PWD/token:/run/secrets/advisor-token:ro" advisor
FROM python:3.12-slim AS build
WORKDIR /src
COPY requirements-service.txt constraints.txt ./
RUN python -m venv /opt/advisor && /opt/advisor/bin/pip install --no-cache-dir --constraint constraints.txt -r requirements-service.txt
COPY . .
RUN /opt/advisor/bin/pip install --no-cache-dir --no-deps . && /opt/advisor/bin/python -m compileall -q /opt/advisor

FROM python:3.12-slim
COPY --from=build /opt/advisor /opt/advisor
ENV PATH=/opt/advisor/bin:$PATH XDG_CACHE_HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /work
USER 65534:65534
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://localhost:8000/healthz', timeout=4)"]
ENTRYPOINT ["advise", "serve", "--host", "0.0.0.0", "--token-file", "/run/secrets/advisor-token", "--allow-host", "localhost"]
