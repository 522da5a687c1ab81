//! A check's results count only if it ran to its end: what a killed or hanging program printed before proves nothing.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use super::render;

/// A stand-in for Docker: the client's check prints its first result and ends as said; the others print nothing.
const DOCKER: &str = r#"#!/bin/sh
case " $* " in
    *" probe.py client "* | *"/probe.py client "*)
        echo 'a warning of a library' >&2
        echo '::check {"check": "client", "target": "jupyter", "ok": true, "saw": "it joined", "gpus": []}'
        exit "$ENDS_WITH"
        ;;
esac
"#;

/// A stand-in for Ray: a client joins, and the task on the second worker never ends.
const RAY: &str = r#"
import time

__version__ = "0"

def init(*_, **__):
    pass

def nodes():
    return [{"NodeID": "node", "Alive": True, "Resources": {"first": 1}}]

class look:
    def __init__(self, place=None):
        self.place = place

    def options(self, resources):
        return look(list(resources)[0])

    def remote(self):
        return self.place

def remote(**_):
    return lambda function: look()

def wait(places, timeout):
    return ["first"] if "first" in places else time.sleep(timeout) or [], []

def get(place):
    return "here", 1, "node"
"#;

/// A worker's task, which tries a GPU: nvidia-smi says of which processes its memory is, and a process of the worker has
/// the driver open. Stand-ins for Ray and the driver.
const TASK: &str = r#"
import ctypes, json, os, sys, types
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import probe

code, gpus, beside_jobs = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "beside"
context = types.SimpleNamespace(get_node_id=lambda: "node")
sys.modules["ray"] = types.SimpleNamespace(get_runtime_context=lambda: context)

class Driver:
    def __getattr__(self, name):
        def call(*arguments):
            if name == "cuDeviceGetCount":
                arguments[0]._obj.value = gpus
            return code if name == "cuCtxCreate_v2" else int(name == "cuGetErrorName")
        self.__dict__[name] = call
        return call

ctypes.CDLL = lambda name: Driver()
link = os.readlink
os.readlink = lambda path: "/dev/nvidia-uvm" if link(path) == sys.argv[5] else link(path)
seen = probe.look(gpus, True, beside_jobs)
print(json.dumps({"wrong": seen["wrong"], "busy": [gpu.get("busy") for gpu in seen["gpus"]]}))
"#;

/// The check of a GPU whose memory is full, with a stand-in for the driver; processes that have the file of the second
/// argument open are taken for users of the GPU.
const FULL_GPU: &str = r#"
import sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import probe

class Driver:
    def __init__(self, *_):
        pass

    def has(self, name):
        return True

    def __call__(self, name, *arguments):
        if name == "cuDeviceGetCount":
            arguments[0]._obj.value = 1
        if name == "cuCtxCreate_v2":
            raise probe.Refused("cuCtxCreate_v2: CUDA_ERROR_OUT_OF_MEMORY (2)", 2)

users = probe.users
probe.users = lambda device: users(sys.argv[2])
probe.Driver = Driver
probe.tool_nvidia = lambda: ({"GPU-00000000-0000-0000-0000-000000000000": "A GPU"}, "")
probe.gpu({"target": "worker-0", "vendor": "nvidia", "count": 1})
"#;

/// A program in a folder of its own.
fn program(folder: &Path, name: &str, text: &str) {
    fs_err::create_dir_all(folder).unwrap();
    fs_err::write(folder.join(name), text).unwrap();
    fs_err::set_permissions(folder.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn what_a_killed_check_printed_proves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    program(&folder.path().join("bin"), "docker", DOCKER);
    let case = render("nvidia-two-gpus");
    // Results that passed are kept below the host's own folder.
    let script = case.deployments[0].checks.replace("/var/lib/gpucl", &folder.path().join("kept").to_string_lossy());
    let client = |code: &str| -> Vec<serde_json::Value> {
        let path = format!("{}:{}", folder.path().join("bin").display(), std::env::var("PATH").unwrap());
        let run = Command::new("sh").args(["-c", &script]).env("PATH", path).env("ENDS_WITH", code).output().unwrap();
        let printed = String::from_utf8(run.stdout).unwrap();
        let results = printed.lines().filter_map(|line| line.strip_prefix("::check "));
        let results = results.map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        results.filter(|result| result["check"] == "client").collect()
    };
    let passed = |result: &serde_json::Value| result["ok"] == true;
    assert!(client("0").iter().all(passed));
    for (code, why) in
        [("137", "the check ended with exit code 137: a warning of a library "), ("124", "no answer within 100 s")]
    {
        let results = client(code);
        let failed: Vec<_> = results.iter().filter(|result| !passed(result)).collect();
        assert_eq!(failed.len(), 1, "{results:?}");
        assert_eq!((failed[0]["target"].as_str(), failed[0]["saw"].as_str()), (Some("jupyter"), Some(why)));
    }
}

#[test]
fn a_client_names_what_has_not_answered_in_time() {
    let folder = tempfile::tempdir().unwrap();
    fs_err::write(folder.path().join("ray.py"), RAY).unwrap();
    let workers = ["first", "second"].map(|name| serde_json::json!({"target": name, "resource": name}));
    let want = serde_json::json!({"target": "jupyter", "address": "ray://", "workers": workers, "timeout_s": 2});
    let probe = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates/ray-compose/probe.py");
    let mut python = Command::new("python3");
    let run = python.arg(probe).args(["client", &want.to_string()]).env("PYTHONPATH", folder.path()).output().unwrap();
    let printed = String::from_utf8(run.stdout).unwrap();
    let results: Vec<(String, String, bool, String)> = printed
        .lines()
        .map(|line| serde_json::from_str(line.strip_prefix("::check ").unwrap()).unwrap())
        .map(|result: serde_json::Value| {
            let text = |name: &str| result[name].as_str().unwrap().to_owned();
            (text("check"), text("target"), result["ok"] == true, text("saw"))
        })
        .collect();
    let of = |check: &str, target: &str, ok: bool, saw: &str| (check.to_owned(), target.to_owned(), ok, saw.to_owned());
    let expected = [
        of("client", "jupyter", true, "ray.init reached the cluster: 1 nodes, Ray 0"),
        of("task ran", "first", true, "a task ran as process 1 of here"),
        of("task ran", "second", false, "no answer within 2 s"),
    ];
    assert_eq!(results, expected, "{}", String::from_utf8_lossy(&run.stderr));
    assert_eq!(run.status.code(), Some(0));
}

#[test]
fn a_gpu_whose_memory_a_workers_own_jobs_use_passes_and_one_that_others_use_fails() {
    let device = tempfile::NamedTempFile::new().unwrap();
    let templates = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates/ray-compose");
    let check = |device: &Path| -> serde_json::Value {
        let run = Command::new("python3").args(["-c", FULL_GPU]).arg(&templates).arg(device).output().unwrap();
        let printed = String::from_utf8(run.stdout).unwrap();
        let line =
            printed.strip_prefix("::check ").unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&run.stderr)));
        serde_json::from_str(line).unwrap()
    };
    let own = check(device.path());
    let text = format!("its memory is in use by this worker's own processes {}", std::process::id());
    assert_eq!((&own["ok"], &own["proof"]), (&true.into(), &format!("CUDA: {text}").into()), "{own}");
    assert!(own["saw"].as_str().unwrap().contains("A GPU GPU-00000000-"), "{own}");
    let foreign = check(Path::new("/dev/never-opened"));
    assert_eq!(foreign["ok"], false, "{foreign}");
    assert!(foreign["saw"].as_str().unwrap().contains("processes that are not this worker's use it"), "{foreign}");
}

#[test]
fn a_full_gpu_passes_only_where_a_job_gets_its_memory_back() {
    let folder = tempfile::tempdir().unwrap();
    let device = folder.path().join("device");
    fs_err::write(&device, "").unwrap();
    let templates = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates/ray-native");
    // What is in use, by a process of the worker, and by another.
    let task = |code: &str, gpus: &str, beside: &str, own: Option<u32>, foreign: u32| -> serde_json::Value {
        let mut job = Command::new("sleep");
        let device = std::process::Stdio::from(fs_err::File::open(&device).unwrap().into_parts().0);
        let mut job = job.arg("60").env("GPUCL_TAG", "gpucl-x-y-worker0").stdin(device).spawn().unwrap();
        let used = own.unwrap_or_default() + foreign;
        let gpu = "GPU-00000000-0000-0000-0000-000000000000";
        let of_job = own.map(|mib| format!("echo {gpu}, {}, {mib}\n", job.id())).unwrap_or_default();
        let tool = format!(
            "#!/bin/sh\ncase $1 in\n--query-gpu=*) echo 80000, {used} ;;\n*)\n{of_job}echo {gpu}, 1, {foreign}\n;;\nesac\n"
        );
        program(&folder.path().join("bin"), "nvidia-smi", &tool);
        let path = format!("{}:{}", folder.path().join("bin").display(), std::env::var("PATH").unwrap());
        let mut python = Command::new("python3");
        python.args(["-c", TASK]).arg(&templates).args([code, gpus, beside]).arg(folder.path().join("device"));
        let run = python.env("PATH", path).env("GPUCL_TAG", "gpucl-x-y-worker0").output().unwrap();
        job.kill().unwrap();
        job.wait().unwrap();
        serde_json::from_slice(&run.stdout).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&run.stderr)))
    };
    let passes = |seen: &serde_json::Value| seen["wrong"].is_null() && !seen["busy"][0].is_null();
    let own = task("2", "1", "beside", Some(78_000), 500);
    assert!(passes(&own), "{own}");
    for (code, gpus, beside, own, foreign) in [
        // Nobody of the worker holds the GPU in Ray, though one of its processes uses it.
        ("2", "1", "alone", Some(78_000), 500),
        // The memory is another's, whatever the worker's process does.
        ("2", "1", "beside", Some(500), 79_400),
        ("2", "1", "beside", None, 79_900),
        // It may use another of the worker's GPUs.
        ("2", "2", "beside", None, 79_900),
        // Busy or unavailable, and not since it is exclusive.
        ("46", "1", "beside", Some(500), 0),
        ("999", "1", "beside", Some(500), 0),
    ] {
        let seen = task(code, gpus, beside, own, foreign);
        assert!(
            seen["wrong"].as_str().is_some_and(|wrong| wrong.contains("cuCtxCreate_v2")),
            "{code} {beside}: {seen}"
        );
    }
}
