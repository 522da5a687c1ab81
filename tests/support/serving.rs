//! An application of Serve on whatever runs the cluster.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Stdio};

use super::{TestEnv, get, interrupt};

/// The way to a cluster's applications, open until this is dropped.
pub(crate) struct Served {
    child: Child,
    pub(crate) url: String,
    pub(crate) key: String,
}

impl Served {
    pub(crate) fn open(env: &TestEnv, cluster: &str) -> Self {
        let mut command = env.command(&["serve", "url", "-c", cluster, "--output", "json"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let found: serde_json::Value = serde_json::from_str(&line).unwrap();
        let text = |name: &str| found[name].as_str().unwrap().to_owned();
        Self { child, url: text("url"), key: text("key") }
    }

    /// What the application answers to this key.
    pub(crate) fn answer_to(&self, key: &str) -> (u16, String) {
        get(&self.url, &[("X-Gpucl-Key", key)]).unwrap()
    }

    /// What it answers to its own.
    pub(crate) fn ask(&self) -> (u16, String) {
        self.answer_to(&self.key)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        interrupt(&self.child);
        let _ = self.child.wait();
    }
}

/// An application for the key `serve` of a spec, in the folder that [`write_application_of_spec`] makes.
pub(crate) fn application_of_spec() -> serde_json::Value {
    serde_json::json!([{
        "name": "menu", "import_path": "menu:build", "working_dir": "menu", "route_prefix": "/menu",
        "args": { "soup": 3 }, "secrets": ["HUSH=MENU_TOKEN"],
        "request": { "path": "/today", "expect": { "body": { "soup": 3, "token": 11 } } },
    }])
}

/// Writes the folder of [`application_of_spec`], and stores its secret.
pub(crate) fn write_application_of_spec(env: &TestEnv) {
    let mut set = env.command(&["secret", "set", "HUSH"]).stdin(Stdio::piped()).spawn().unwrap();
    set.stdin.take().unwrap().write_all(b"not-for-ray").unwrap();
    assert!(set.wait().unwrap().success());
    env.write(
        "menu/menu.py",
        "import os\nfrom ray import serve\n\n@serve.deployment(ray_actor_options={'num_cpus': 0.1})\nclass Menu:\n    \
         def __init__(self, soup):\n        self.soup = soup\n    \
         async def __call__(self, request):\n        return {'soup': self.soup, 'token': len(os.environ['MENU_TOKEN'])}\n\n\
         def build(args):\n    return Menu.bind(args['soup'])\n",
    );
}

/// Answers with how many nodes its second deployment answered from.
const APP: &str = "
import asyncio
import ray
from ray import serve

@serve.deployment(num_replicas=NODES, max_replicas_per_node=1, ray_actor_options={'num_cpus': 0.1})
class Here:
    def __call__(self):
        return ray.get_runtime_context().get_node_id()

@serve.deployment(ray_actor_options={'num_cpus': 0.1})
class Count:
    def __init__(self, here):
        self.here = here

    async def __call__(self, request):
        seen = await asyncio.gather(*[self.here.remote() for _ in range(40)])
        return f'{len(set(seen))} answer, key {request.headers.get(\"x-gpucl-key\")}'

count = Count.bind(Here.bind())
";

/// Deploys an application with a replica on each of so many nodes, and asks it through `serve url`, with the key and
/// without. It is left there. Returns the key.
#[track_caller]
pub(crate) fn an_application_answers(env: &TestEnv, cluster: &str, nodes: usize) -> String {
    env.write("served/served.py", &APP.replace("NODES", &nodes.to_string()));
    env.run(&["serve", "deploy", "-c", cluster, "served:count", "--working-dir", "served"])
        .exits(0)
        .prints("default serves");
    env.run(&["serve", "status", "-c", cluster]).exits(0).prints(&format!("{nodes} of {nodes}"));
    let served = Served::open(env, cluster);
    let answers = [get(&served.url, &[]).unwrap(), served.answer_to("0"), served.ask()];
    assert_eq!([answers[0].0, answers[1].0], [401; 2], "{answers:?}");
    let text = format!("{nodes} answer, key None");
    assert!(answers[2].0 == 200 && answers[2].1.contains(&text), "{answers:?}");
    served.key.clone()
}
