"""Becomes the MLflow server of a cluster: runs and models in SQLite, artifacts in the cluster's store or in a folder.

    python -I -B tracking.py HOME ADDRESS:PORT [--name NAME] [--store ENDPOINT REGION S3-URI]

It is run by the Python of MLflow's environment. Everything is in HOME/mlflow, which is private. The login is asked for
from the first start: MLflow itself has no default password, and refuses to start without one. NAME is what the cluster
calls this host, where that is not the loopback; under other names nothing is answered.

Needs MLflow.
"""

import argparse
import hashlib
import os
import sqlite3
import sys

# What the server needs of the environment of its supervisor; the rest may be of the user's own MLflow or AWS.
KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "GPUCL_TAG", "GPUCL_HOST", "GPUCL_DIGEST")
USER = "gpucl"
# How long another program may hold a database. The server itself gives up sooner, with a traceback.
LOCK_LIMIT_S = 20


def write(path, text):
    """Writes a private file."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def forget_other_logins(own, password):
    """Removes the logins of an earlier cluster whose runs are here."""
    path, mark = f"{own}/auth.of", hashlib.sha256(f"logins of {password}".encode()).hexdigest()
    try:
        with open(path, encoding="utf-8") as file:
            if file.read() == mark:
                return
    except FileNotFoundError:
        pass
    for name in ("auth.db", "auth.db-wal", "auth.db-shm", "auth.db-journal"):
        if os.path.exists(f"{own}/{name}"):
            os.remove(f"{own}/{name}")
    write(path, mark)


def holders(path):
    """Returns the processes of this user that have a file open."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else []):
        try:
            files = {os.path.realpath(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
            with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
                name = file.read().strip()
        except OSError:
            continue
        if os.path.realpath(path) in files and int(pid) != os.getpid():
            found.append(f"process {pid} ({name})")
    return ", ".join(found) or "another program"


def wait_for(path):
    """Waits until no other program holds a database; ends with an error that names it, if that takes too long."""
    if not os.path.exists(path):
        return
    database = sqlite3.connect(path, timeout=LOCK_LIMIT_S, isolation_level=None)
    try:
        database.execute("BEGIN IMMEDIATE")
        database.execute("ROLLBACK")
    except sqlite3.Error as error:
        # Of anything else the server says more.
        if "locked" in str(error):
            held = f"{path} has been locked for {LOCK_LIMIT_S} s by {holders(path)}"
            sys.exit(f"{held}; nothing was changed in it. End that program, then run `gpucl up` again")
    finally:
        database.close()


def arguments():
    """Returns the command line's arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("home")
    parser.add_argument("address")
    parser.add_argument("--name")
    parser.add_argument("--store", nargs=3, metavar=("ENDPOINT", "REGION", "S3-URI"))
    return parser.parse_args()


def main():
    """Becomes the server."""
    given = arguments()
    home = given.home
    host, _, port = given.address.rpartition(":")
    os.umask(0o077)
    own = f"{home}/mlflow"
    os.makedirs(f"{own}/artifacts", mode=0o700, exist_ok=True)
    with open(f"{home}/secrets/mlflow_password", encoding="utf-8") as file:
        password = file.read().strip()
    forget_other_logins(own, password)
    for name in ("mlflow.db", "auth.db"):
        wait_for(f"{own}/{name}")
    write(
        f"{own}/auth.ini",
        "[mlflow]\n"
        "default_permission = NO_PERMISSIONS\n"
        f"database_uri = sqlite:///{own}/auth.db\n"
        f"admin_username = {USER}\n"
        f"admin_password = {password}\n"
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
        # Each check of a password takes 100 ms otherwise, and a job logs many metrics.
        "auth_cache_ttl_seconds = 60\n",
    )
    environment = {name: os.environ[name] for name in KEPT if name in os.environ}
    environment.update(
        {
            "HOME": own,
            "MLFLOW_AUTH_CONFIG_PATH": f"{own}/auth.ini",
            "MLFLOW_FLASK_SERVER_SECRET_KEY": hashlib.sha256(f"cookies {password}".encode()).hexdigest(),
            # Its jobs of evaluation are seven more processes, of 1.2 GB, that nothing here uses.
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "DO_NOT_TRACK": "true",
            "GIT_PYTHON_REFRESH": "quiet",
        }
    )
    artifacts = f"{own}/artifacts"
    if given.store:
        endpoint, region, artifacts = given.store
        environment.update(
            {
                "MLFLOW_S3_ENDPOINT_URL": endpoint,
                "AWS_DEFAULT_REGION": region,
                "AWS_SHARED_CREDENTIALS_FILE": f"{home}/secrets/aws_credentials",
            }
        )
    os.chdir(own)
    words = [sys.executable, "-B", "-m", "mlflow", "server", "--app-name", "basic-auth", "--host", host, "--port", port]
    words += ["--workers", "1", "--backend-store-uri", f"sqlite:///{own}/mlflow.db", "--artifacts-destination", artifacts]
    names = ["127.0.0.1", "localhost", *([given.name] if given.name else [])]
    words += ["--allowed-hosts", ",".join(f"{name}:*" for name in names)]
    os.execve(sys.executable, words, environment)


if __name__ == "__main__":
    main()
