"""ensure.py: makes the resources that a fresh cloud needs, unless they exist. Run by up with the services' Python.
usage: ensure.py identity | resources | blazar | credentials"""
import ipaddress
import json
import os
import sys
import time
import uuid

import requests

KS, REGION, PASS, ROOT = (os.environ["GPUCL_" + k] for k in ("KS", "REGION", "PASS", "ROOT"))
PUBLIC, FIXED, GATEWAY = (os.environ["GPUCL_" + k] for k in ("PUBLIC", "FIXED", "FIXED_GATEWAY"))
PLACEMENT, GLANCE, NEUTRON, NOVA, BLAZAR, FAULTS, CONTROL = ("http://127.0.0.1:" + p for p in os.environ["GPUCL_PORTS"].split())
NODES = [n.split(":") for n in os.environ["GPUCL_NODES"].split()]
V3, COMPUTE, NETWORK, IMAGE, LEASE = KS + "/v3", NOVA + "/v2.1", NEUTRON + "/v2.0", GLANCE + "/v2", BLAZAR + "/v1"
# Accounts: alice owns what tests make, bob is in her project, carol is in another.
ACCOUNTS = (("alice", "CHI-TEST"), ("bob", "CHI-TEST"), ("carol", "CHI-OTHER"))
IMAGES = ("CC-Ubuntu24.04-CUDA", "CC-Ubuntu24.04-ROCm", "CC-Ubuntu24.04")
SESSION = requests.Session()
SESSION.trust_env = False


def node_id(name):
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


class Api:
    def __init__(self, user, project):
        domain = {"name": "Default"}
        auth = {"identity": {"methods": ["password"], "password": {"user": {"name": user, "domain": domain, "password": PASS}}},
                "scope": {"project": {"name": project, "domain": domain}}}
        answer = SESSION.post(V3 + "/auth/tokens", json={"auth": auth})
        answer.raise_for_status()
        self.token, self.headers = answer.json()["token"], {"X-Auth-Token": answer.headers["X-Subject-Token"], "Accept": "application/json"}

    def __call__(self, method, url, body=None, **more):
        answer = SESSION.request(method, url, headers={**self.headers, **more.pop("headers", {})}, json=body, **more)
        if answer.status_code not in (200, 201, 202, 204):
            raise SystemExit("%s %s: %s %s" % (method, url, answer.status_code, answer.text[:600]))
        return answer.json() if answer.content and "json" in answer.headers.get("content-type", "") else None

    def find(self, url, many, **match):
        return next((x for x in self("GET", url)[many] if all(x.get(k) == v for k, v in match.items())), None)

    def ensure(self, url, many, one, body, **match):
        return self.find(url, many, **(match or {"name": body["name"]})) or self("POST", url, {one: body})[one]


def identity(admin):
    def project(name):
        return admin.ensure(V3 + "/projects", "projects", "project", {"name": name, "domain_id": "default"})

    roles = {n: admin.ensure(V3 + "/roles", "roles", "role", {"name": n})["id"] for n in ("admin", "member", "reader", "service")}

    def user(name, where, *names):
        u = admin.ensure(V3 + "/users", "users", "user", {"name": name, "domain_id": "default", "password": PASS})
        for n in names:
            admin("PUT", "%s/projects/%s/users/%s/roles/%s" % (V3, where["id"], u["id"], roles[n]))
        return u

    service = project("service")
    for name in ("placement", "glance", "neutron", "nova", "blazar"):
        user(name, service, "admin", "service")
    for name, where in ACCOUNTS:
        user(name, project(where), "member", "reader")
    services = (("placement", "placement", PLACEMENT), ("glance", "image", GLANCE), ("neutron", "network", NEUTRON), ("nova", "compute", COMPUTE), ("blazar", "reservation", LEASE))
    for name, kind, url in services:
        s = admin.ensure(V3 + "/services", "services", "service", {"name": name, "type": kind})
        for side in ("public", "internal", "admin"):
            admin.ensure(V3 + "/endpoints", "endpoints", "endpoint", {"service_id": s["id"], "interface": side, "region_id": REGION, "url": url}, service_id=s["id"], interface=side)


def resources(admin):
    # As large as a whole host of the fake driver (2 processors, 8 GiB), so that one server fills it, as on bare metal.
    flavors = COMPUTE + "/flavors"
    for name, body in (("baremetal", {"id": "baremetal", "vcpus": 2, "ram": 8192, "disk": 20}), ("m1.small", {"id": "2", "vcpus": 1, "ram": 512, "disk": 1})):
        admin.find(flavors + "/detail", "flavors", name=name) or admin("POST", flavors, {"flavor": {"name": name, **body}})
    for name in IMAGES:
        image = admin.find(IMAGE + "/images", "images", name=name) or admin(
            "POST", IMAGE + "/images", {"name": name, "disk_format": "raw", "container_format": "bare", "visibility": "public"})
        if image["status"] == "queued":
            admin("PUT", IMAGE + "/images/%s/file" % image["id"], data=b"\0" * 1024, headers={"Content-Type": "application/octet-stream"})

    def network(body):
        return admin.ensure(NETWORK + "/networks", "networks", "network", body)

    def subnet(body):
        return admin.ensure(NETWORK + "/subnets", "subnets", "subnet", {"ip_version": 4, **body})

    public = network({"name": "public", "router:external": True, "shared": False, "provider:network_type": "flat", "provider:physical_network": "public"})
    subnet({"name": "public-subnet", "network_id": public["id"], "cidr": PUBLIC + ".0/24", "gateway_ip": PUBLIC + ".1", "enable_dhcp": False,
            "allocation_pools": [{"start": PUBLIC + ".10", "end": PUBLIC + ".199"}]})
    inner = ipaddress.ip_network(FIXED)
    shared = network({"name": "sharednet1", "shared": True, "provider:network_type": "vlan", "provider:physical_network": "physnet1", "provider:segmentation_id": 150})
    inside = subnet({"name": "sharednet1-subnet", "network_id": shared["id"], "cidr": FIXED, "gateway_ip": GATEWAY, "enable_dhcp": True,
                     "allocation_pools": [{"start": str(inner[266]), "end": str(inner[968])}]})
    router = admin.ensure(NETWORK + "/routers", "routers", "router", {"name": "sharednet1-router", "external_gateway_info": {"network_id": public["id"]}})
    ports = admin("GET", NETWORK + "/ports?device_id=" + router["id"])["ports"]
    if not any(p["fixed_ips"] and p["fixed_ips"][0]["subnet_id"] == inside["id"] for p in ports):
        admin("PUT", NETWORK + "/routers/%s/add_router_interface" % router["id"], {"subnet_id": inside["id"]})


def blazar(admin):
    have = {h["hypervisor_hostname"] for h in admin("GET", LEASE + "/os-hosts")["hosts"]}
    wanted = {node_id(n[0]) for n in NODES if n[4] != "plain"} - have
    end = time.monotonic() + 120
    while wanted:
        up = {s["host"] for s in admin("GET", COMPUTE + "/os-services?binary=nova-compute")["services"] if s["state"] == "up"}
        missing = wanted - (up & {h["hypervisor_hostname"] for h in admin("GET", COMPUTE + "/os-hypervisors")["hypervisors"]})
        if not missing:
            break
        if time.monotonic() > end:
            raise SystemExit("compute hosts are missing after 120 s: %s" % ", ".join(sorted(missing)))
        time.sleep(0.5)
    admin.find(COMPUTE + "/os-aggregates", "aggregates", name="freepool") or admin("POST", COMPUTE + "/os-aggregates", {"aggregate": {"name": "freepool"}})
    for i, (name, kind, model, count, _) in enumerate(NODES):
        if node_id(name) not in wanted:
            continue
        admin("POST", LEASE + "/os-hosts", {
            "name": node_id(name), "node_name": name, "node_type": kind, "uid": node_id(name), "gpu.gpu": "True", "gpu.gpu_count": count, "gpu.gpu_model": model,
            "gpu.gpu_vendor": "AMD" if model.startswith("MI") else "NVIDIA", "architecture.platform_type": "x86_64", "architecture.smt_size": "64",
            "main_memory.humanized_ram_size": "256 GiB", "placement.rack": "3", "placement.node": str(i + 1), "su_factor": "1.0", "reservable_by": "any"})
    public = admin.find(NETWORK + "/networks", "networks", name="public")
    floating = {f["floating_ip_address"] for f in admin("GET", LEASE + "/floatingips")["floatingips"]}
    for address in ("%s.%d" % (PUBLIC, i) for i in range(200, 206)):
        if address not in floating:
            admin("POST", LEASE + "/floatingips", {"floating_network_id": public["id"], "floating_ip_address": address})


def write_private(path, text):
    with os.fdopen(os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
        f.write(text)
    os.rename(path + ".new", path)


def credentials(admin):
    names = {"restricted": False, "unrestricted": True}
    out = {"version": 1, "auth_url": V3, "region_name": REGION, "faults": {"auth_url": FAULTS + "/identity/v3", "control_url": CONTROL},
           "services": {"identity": V3, "compute": COMPUTE, "network": NEUTRON, "image": GLANCE, "reservation": LEASE, "placement": PLACEMENT},
           "network": "sharednet1", "public_network": "public", "flavor": "baremetal", "images": list(IMAGES), "root": ROOT, "clouds_yaml": ROOT + "/clouds.yaml", "accounts": {}}
    clouds = {}

    def cloud(name, auth_url, kind, auth):
        clouds[name] = {"auth_type": kind, "auth": {"auth_url": auth_url, **auth}, "region_name": REGION, "interface": "public", "identity_api_version": 3}

    for user, project in ACCOUNTS + (("admin", "admin"),):
        api = Api(user, project)
        out["accounts"][user] = {"username": user, "password": PASS, "user_id": api.token["user"]["id"], "domain": "Default",
                                 "project_name": project, "project_id": api.token["project"]["id"]}
        cloud(user + "-password", V3, "v3password", {"username": user, "password": PASS, "project_name": project, "user_domain_name": "Default", "project_domain_name": "Default"})
        if user == "admin":
            continue
        base = "%s/users/%s/application_credentials" % (V3, api.token["user"]["id"])
        for name, unrestricted in names.items():
            old = api.find(base, "application_credentials", name=name)
            if old:
                api("DELETE", base + "/" + old["id"])
            made = api("POST", base, {"application_credential": {"name": name, "unrestricted": unrestricted, "description": "testbed"}})["application_credential"]
            out["accounts"][user][name] = {"id": made["id"], "secret": made["secret"]}
            auth = {"application_credential_id": made["id"], "application_credential_secret": made["secret"]}
            cloud(user if unrestricted else user + "-restricted", V3, "v3applicationcredential", auth)
            if user == "alice" and unrestricted:
                cloud("alice-faults", FAULTS + "/identity/v3", "v3applicationcredential", auth)
    # JSON is YAML.
    write_private(ROOT + "/clouds.yaml", json.dumps({"clouds": clouds}, indent=1) + "\n")
    write_private(ROOT + "/credentials.json", json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    {"identity": identity, "resources": resources, "blazar": blazar, "credentials": credentials}[sys.argv[1]](Api("admin", "admin"))
