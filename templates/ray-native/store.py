"""Starts the object store of a cluster: SeaweedFS, one process. Standard library only.

    python3 store.py PROGRAM HOME FIRST-PORT SOCKETS

PROGRAM is `weed`, HOME the host's folder, SOCKETS a folder with a short path for Unix sockets. The data is in
`store/data` below HOME. It listens on eight ports of the loopback, from FIRST-PORT on:

    +0  S3, which wants a signature made with the cluster's keys
    +1  S3, control      +2 +3  master, HTTP and control
    +4 +5  volumes       +6 +7  filer

All but the first are for the store's own parts. Each of them accepts only TLS with the cluster's certificate, on both
sides; the volumes' and the filer's HTTP want a signed token as well. The keys of these tokens are made anew at each
start, since nobody else needs them.

This process becomes the store: it does not return.
"""

import json
import os
import secrets
import sys

# Parts of the store that talk to each other.
CONTROL = ("volume", "master", "filer", "s3", "msg_broker", "msg_agent", "admin", "worker", "mq", "client")
HTTP = ("volume", "master", "filer")
# Variables that it needs of the caller's; others, such as WEED_… and AWS_…, would change what it does.
KEPT = ("PATH", "LANG", "TZ", "GPUCL_TAG", "GPUCL_HOST", "GPUCL_DIGEST")
# The size of a volume's file in MiB: volumes are filled one after another, and what is deleted is compacted in place.
VOLUME_MIB = 1024


def write(path, text):
    """Writes a file for this user alone."""
    with open(os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(f"{path}.new", path)


def read(path):
    """Returns a file's text without the spaces at its ends."""
    with open(path, encoding="utf-8") as file:
        return file.read().strip()


def security(certificate, key):
    """Returns the settings that close the inner ports."""
    lines = []
    for section in ("jwt.signing", "jwt.signing.read", "jwt.filer_signing", "jwt.filer_signing.read"):
        lines += [f"[{section}]", f'key = "{secrets.token_hex(32)}"']
    lines += ["[access]", "ui = false", "[filer.expose_directory_metadata]", "enabled = false"]
    pair = [f"cert = {json.dumps(certificate)}", f"key = {json.dumps(key)}"]
    authority = f"ca = {json.dumps(certificate)}"
    lines += ["[grpc]", authority]
    for part in CONTROL:
        lines += [f"[grpc.{part}]", *pair]
    for part in HTTP:
        lines += [f"[https.{part}]", *pair, authority]
    lines += ["[https.client]", "enabled = true", *pair, authority]
    return "\n".join(lines) + "\n"


def identities(folder):
    """Returns the only identity that S3 knows: the cluster's keys."""
    pairs = {}
    for line in read(f"{folder}/aws_credentials").splitlines():
        name, found, value = line.partition("=")
        if found:
            pairs[name.strip()] = value.strip()
    keys = {"accessKey": pairs["aws_access_key_id"], "secretKey": pairs["aws_secret_access_key"]}
    return json.dumps({"identities": [{"name": "cluster", "credentials": [keys], "actions": ["Admin"]}]})


def main():
    """Becomes the store."""
    program, home, first, sockets = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    os.umask(0o077)
    own = f"{home}/store"
    os.makedirs(f"{own}/data", mode=0o700, exist_ok=True)
    write(f"{own}/security.toml", security(f"{home}/secrets/store_certificate.pem", f"{home}/secrets/store_key.pem"))
    write(f"{own}/s3.json", identities(f"{home}/secrets"))
    for name in os.listdir(sockets):
        os.remove(f"{sockets}/{name}")
    options = {
        "dir": f"{own}/data",
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "s3": "true",
        "s3.port": first,
        "s3.port.grpc": first + 1,
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "s3.config": f"{own}/s3.json",
        "s3.iam": "false",
        "s3.localSocket": f"{sockets}/s3",
        "master.port": first + 2,
        "master.port.grpc": first + 3,
        # It is alone, so that a restarted one need not wait for the votes of others.
        "master.electionTimeout": "1s",
        "master.telemetry": "false",
        "master.volumeSizeLimitMB": VOLUME_MIB,
        "volume.port": first + 4,
        "volume.port.grpc": first + 5,
        "volume.max": 0,
        "volume.preStopSeconds": 0,
        "filer": "true",
        "filer.port": first + 6,
        "filer.port.grpc": first + 7,
        "filer.localSocket": f"{sockets}/filer",
    }
    words = [program, f"-config_dir={own}", "-logtostderr=true", "server"]
    words += [f"-{name}={value}" for name, value in options.items()]
    environment = {name: os.environ[name] for name in KEPT if name in os.environ}
    os.chdir(own)
    os.execve(program, words, {**environment, "HOME": own})


if __name__ == "__main__":
    main()
