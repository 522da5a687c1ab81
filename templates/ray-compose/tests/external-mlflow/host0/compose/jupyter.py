# Jupyter's settings. gpucl made this file.
c = get_config()  # noqa: F821

import json
import os

# Notebooks find MLflow as jobs do. They have the server's environment.
with open("/run/gpucl/secrets/mlflow.json", encoding="utf-8") as file:
    os.environ.update(json.load(file))

with open("/run/gpucl/secrets/jupyter_token", encoding="utf-8") as file:
    c.IdentityProvider.token = file.read().strip()
c.ServerApp.open_browser = False
c.ServerApp.root_dir = "/workspace"
# Its page is reached through a port forward: the browser's address is the loopback's.
c.ServerApp.allow_remote_access = True
# It is alone in its container, whoever the image's user is.
c.ServerApp.allow_root = True
