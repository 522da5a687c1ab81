"""Starts a process of Serve: its HTTP proxy asks every request for a key, and its replicas stay on the loopback.

Ray executes this in place of its own `default_worker.py`, which follows, where `gpucl serve` has started Serve: its
controller, and with it the proxy, and the replicas have GPUCL_SERVE in their environment. `worker.py` decides it.

A replica listens for other replicas on all addresses of its machine, at a port that no firewall can know, with no setting
for it (ray 2.60.0). Nothing asks there unless RAY_SERVE_USE_GRPC_BY_DEFAULT is 1, which works within one node then.
Another Ray may need no change, or another: the check `closed ports` finds that.

Needs the standard library, and in the proxy Starlette, which Serve has; Ray's own script follows.
"""

import functools
import hashlib
import hmac
import importlib.util
import os
import runpy
import sys

# The module that Serve takes its proxy's middlewares from: this one.
NAME = "gpucl_serving"
CALLBACK = "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"
# In a pod whose service is open to others: the proxy listens on all addresses.
OPEN = "GPUCL_SERVE_OPEN"
NO_KEY = b"no key: `gpucl serve url` prints the address and the key\n"


def key():
    """Returns the key to the applications. It is made of the cluster's token, and says nothing about it."""
    return hashlib.sha256(f"key to applications of {token().strip()}".encode()).hexdigest()


def token():
    """Returns the cluster's token, from where Ray takes it: a variable in pods, a file on hosts."""
    if os.environ.get("RAY_AUTH_TOKEN"):
        return os.environ["RAY_AUTH_TOKEN"]
    with open(os.environ["RAY_AUTH_TOKEN_PATH"], encoding="utf-8") as file:
        return file.read()


class KeyGate:
    """Lets a request through that has the key, as `Authorization: Bearer KEY` or as `X-Gpucl-Key: KEY`.

    The application does not see it, and may ask for an authorization of its own beside the second."""

    def __init__(self, app):
        self.app, self.key = app, key().encode()

    def is_key(self, name, value):
        """Whether a header is the key."""
        wanted = {b"authorization": b"Bearer " + self.key, b"x-gpucl-key": self.key}.get(name.lower())
        return wanted is not None and hmac.compare_digest(value, wanted)

    async def __call__(self, scope, receive, send):
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        others = [(name, value) for name, value in scope["headers"] if not self.is_key(name, value)]
        if len(others) < len(scope["headers"]):
            return await self.app({**scope, "headers": others}, receive, send)
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close", "code": 1008})
        length = str(len(NO_KEY)).encode()
        headers = [(b"content-type", b"text/plain"), (b"content-length", length), (b"www-authenticate", b"Bearer")]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": NO_KEY})


def middlewares():
    """Returns what Serve's proxy puts before all applications."""
    from starlette.middleware import Middleware

    return [Middleware(KeyGate)]


def after_import(name, change):
    """Calls a function with this module once it is imported."""

    class Finder:
        """Finds the module where it is, once."""

        @staticmethod
        def find_spec(wanted, path=None, target=None):
            """Returns the module's spec, with a loader that changes the module."""
            if wanted != name:
                return None
            sys.meta_path.remove(Finder)
            spec = importlib.util.find_spec(name)
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                change(module)

            spec.loader.exec_module = exec_module
            return spec

    sys.meta_path.insert(0, Finder)


def on_loopback(module):
    """Has replicas listen for each other on the loopback."""
    add = getattr(module, "add_port_to_grpc_server", None)
    if add is not None:
        module.add_port_to_grpc_server = lambda server, at: add(server, at.replace("[::]", "127.0.0.1"))


def on_all_addresses(module):
    """Has the proxy listen on all addresses, if it asks for a key."""
    configure = module.configure_http_middlewares

    # Ray sends the proxy's class as it is, with this function as a name of its module.
    @functools.wraps(configure)
    def configured(options):
        options = configure(options)
        if any(one.cls is KeyGate for one in options.middlewares):
            options.host = "0.0.0.0"
        return options

    module.configure_http_middlewares = configured


def main():
    """Prepares both, and goes on as Ray's own script."""
    sys.modules[NAME] = sys.modules[__name__]
    os.environ[CALLBACK] = f"{NAME}:middlewares"
    after_import("ray.serve._private.replica", on_loopback)
    if os.environ.get(OPEN) == "1":
        after_import("ray.serve._private.http_util", on_all_addresses)
    place = os.path.dirname(importlib.util.find_spec("ray").origin)
    script = os.path.join(place, "_private", "workers", "default_worker.py")
    sys.path[0] = os.path.dirname(script)
    sys.argv[0] = script
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
