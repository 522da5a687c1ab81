//! MLflow and applications of Serve in containers: plain jobs and notebooks find the one, and nobody without a key is
//! answered by the other.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use super::spec::gpucl;
use super::testbed::{TestHost, with_data};
use crate::support::{TestEnv, interrupt};

/// What a job and a notebook do: nothing about addresses and logins.
const TRAIN: &str = "import sys, mlflow
mlflow.set_experiment('food')
with mlflow.start_run() as run:
    mlflow.log_metric('loss', float(sys.argv[1]))
    mlflow.log_text(f'soup {sys.argv[1]}', 'model.txt')
print('logged', len(mlflow.search_runs(experiment_names=['food'], output_format='list')))
";

/// Runs CODE in a kernel, as a notebook does, and prints what that prints.
const NOTEBOOK: &str = "
import asyncio, json, urllib.request
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

AT = '127.0.0.1:8888/api/kernels'
HEADERS = {'Authorization': 'token ' + open('/run/gpucl/secrets/jupyter_token').read().strip()}

def ask(path, method):
    request = urllib.request.Request(f'http://{AT}{path}', b'{}' if method == 'POST' else None, HEADERS, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer) if method == 'POST' else None

async def run(kernel):
    socket = await websocket_connect(HTTPRequest(f'ws://{AT}/{kernel}/channels', headers=HEADERS))
    header = {'msg_id': '1', 'msg_type': 'execute_request', 'username': '', 'session': '1', 'version': '5.3', 'date': ''}
    content = {'code': CODE, 'silent': False, 'store_history': False, 'user_expressions': {}, 'allow_stdin': False}
    message = {'header': header, 'parent_header': {}, 'metadata': {}, 'content': content, 'channel': 'shell', 'buffers': []}
    await socket.write_message(json.dumps(message))
    while message['header']['msg_type'] != 'execute_reply':
        message = json.loads(await socket.read_message())
        print(message['content'].get('text', ''), *message['content'].get('traceback', []), end='')

kernel = ask('', 'POST')['id']
asyncio.run(run(kernel))
ask(f'/{kernel}', 'DELETE')
";

/// Serves the artifact of the best run.
const APP: &str = "from ray import serve

@serve.deployment(ray_actor_options={'num_cpus': 0.1})
class Food:
    def __init__(self):
        import mlflow
        found = mlflow.search_runs(experiment_names=['food'], order_by=['metrics.loss'], output_format='list')
        self.model = mlflow.artifacts.load_text(found[0].info.artifact_uri + '/model.txt')

    async def __call__(self, request):
        return self.model

food = Food.bind()
";

/// A plain job logs a run, a notebook another, and the server asks others for a login that is nowhere to be seen.
pub(crate) fn plain_jobs_and_notebooks_log_runs(env: &TestEnv, host: &TestHost) {
    env.write("train/train.py", TRAIN);
    let submit = ["job", "submit", "--working-dir", "train", "--", "python", "train.py", "0.5"];
    gpucl(env, &submit).exits(0).prints("logged 1");
    let kernel = "docker exec -i $(docker ps -q --filter label=gpucl.key=jupyter) python3 -";
    let code = format!("import sys\nsys.argv = ['', '0.9']\n{TRAIN}");
    let notebook = format!("CODE = {code:?}\n{NOTEBOOK}");
    let said = host.sh(&format!("{kernel} <<'END'\n{notebook}END"));
    assert!(said.contains("logged 2"), "{said}");
    gpucl(env, &["store", "ls", "s3://ray/mlflow/"]).exits(0).prints("mlflow/");
    let code = |login: &str| {
        let url = "http://127.0.0.1:5000/api/2.0/mlflow/experiments/search?max_results=1";
        host.sh(&format!("curl -s -o /dev/null -w '%{{http_code}}' {login} '{url}'"))
    };
    assert_eq!((code("").as_str(), code("-u gpucl:wrong").as_str()), ("401", "401"));
    assert_eq!(code("-H 'Host: example.org'"), "403", "a name of somebody else's leads here");
    gpucl(env, &["logs", "mlflow", "--tail", "5"]).exits(0).prints("mlflow");
}

/// An application is deployed, and answers who has the key; it serves on afterwards.
pub(crate) fn applications_answer_who_has_the_key(env: &TestEnv, hosts: &[&TestHost]) {
    let deploy = ["serve", "deploy", "app:food", "--working-dir", "app"];
    env.write("app/app.py", APP);
    gpucl(env, &deploy).exits(0).prints("default serves");
    let (mut child, address, key) = url(env);
    let ask = |headers: &[&str]| {
        let output = std::process::Command::new("curl").args(["-s", "-m", "20"]).args(headers).arg(&address).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let with_key = format!("X-Gpucl-Key: {key}");
    assert_eq!(ask(&["-H", &with_key]), "soup 0.5");
    for headers in [&[][..], &["-H", "X-Gpucl-Key: 0"]] {
        assert!(ask(headers).starts_with("no key"), "{headers:?}");
    }
    interrupt(&child);
    assert!(child.wait().is_ok());
    for (index, host) in hosts.iter().enumerate() {
        let listens = host.sh("ss -lntpH | awk '{ print $4, $6 }'");
        assert_eq!(listens.contains("127.0.0.1:8000 "), index == 0, "{listens}");
        // Those that are in a container of their own are seen there.
        for line in listens.lines().filter(|line| line.contains("ray::Serve") || line.contains("ray::Proxy")) {
            assert!(line.starts_with("127.0.0.1:") || is_in_rays_range(line), "{line}");
        }
    }
}

/// Whether it is a port that Ray gives its workers on a host's network, which the firewall closes to others.
fn is_in_rays_range(line: &str) -> bool {
    let port = line.split(' ').next().and_then(|at| at.rsplit(':').next());
    port.and_then(|port| port.parse::<u16>().ok()).is_some_and(|port| (11_000..20_000).contains(&port))
}

/// A running `serve url`, and the address and the key that it printed.
fn url(env: &TestEnv) -> (std::process::Child, String, String) {
    let arguments = with_data(&["serve", "url"]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut child = env.command(&arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (address, key) = (lines.next().unwrap().unwrap(), lines.next().unwrap().unwrap());
    (child, address, key.strip_prefix("X-Gpucl-Key: ").unwrap().to_owned())
}
