"""Becomes the MLflow server of a cluster: runs and models in SQLite, artifacts in the cluster's store or in a folder.

    python -I -B tracking.py HOME PORT [ENDPOINT REGION S3-URI]

It is run by the Python of MLflow's environment. Everything is in HOME/mlflow, which is private. The login is asked for
from the first start: MLflow itself has no default password, and refuses to start without one.

Needs MLflow.
"""

import hashlib
import os
import sys

# What the server needs of the environment of its supervisor; the rest may be of the user's own MLflow or AWS.
KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "GPUCL_TAG", "GPUCL_HOST", "GPUCL_DIGEST")
USER = "gpucl"


def write(path, text):
    """Writes a private file."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def main():
    """Becomes the server."""
    home, port = sys.argv[1], sys.argv[2]
    os.umask(0o077)
    own = f"{home}/mlflow"
    os.makedirs(f"{own}/artifacts", mode=0o700, exist_ok=True)
    with open(f"{home}/secrets/mlflow_password", encoding="utf-8") as file:
        password = file.read().strip()
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
    if len(sys.argv) > 3:
        endpoint, region, artifacts = sys.argv[3:6]
        environment.update(
            {
                "MLFLOW_S3_ENDPOINT_URL": endpoint,
                "AWS_DEFAULT_REGION": region,
                "AWS_SHARED_CREDENTIALS_FILE": f"{home}/secrets/aws_credentials",
            }
        )
    os.chdir(own)
    words = [sys.executable, "-B", "-m", "mlflow", "server", "--app-name", "basic-auth", "--host", "127.0.0.1", "--port", port]
    words += ["--workers", "1", "--backend-store-uri", f"sqlite:///{own}/mlflow.db", "--artifacts-destination", artifacts]
    words += ["--allowed-hosts", "127.0.0.1:*,localhost:*"]
    os.execve(sys.executable, words, environment)


if __name__ == "__main__":
    main()
