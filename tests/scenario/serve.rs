//! Applications of Serve on this machine: of a spec and by hand, asked, updated, rolled back, deleted, and closed to
//! others.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use crate::support::{TestEnv, interrupt, nodes, tagged_processes, turn};

const SPEC: &str = "name: serving\nprovider: local\nray:\n  workers: {count: 1, cpus: 2}\noversubscribe: true\n";

/// An application with an argument, as a spec has it, and the request that shows that it serves.
fn menu(soups: &str) -> String {
    format!(
        "serve:\n- name: menu\n  import_path: menu:build\n  working_dir: menu\n  route_prefix: /menu\n  args: {{soup: 3}}\n  \
         deployments: [{{name: Menu, num_replicas: 1}}]\n  request: {{path: /today, body: {{for: two}}, \
         expect: {{body: {{soup: {soups}}}}}}}\n"
    )
}

const MENU: &str = "\
from ray import serve

@serve.deployment(ray_actor_options={'num_cpus': 0.1})
class Menu:
    def __init__(self, soup):
        self.soup = soup
    async def __call__(self, request):
        return {'soup': self.soup, 'path': request.url.path, **await request.json()}

def build(args):
    return Menu.bind(args['soup'])
";

fn app(version: u32) -> String {
    format!(
        "import asyncio, os\nfrom fastapi import FastAPI, Request, WebSocket\nfrom fastapi.responses import PlainTextResponse, \
         StreamingResponse\nfrom ray import serve\n\napi = FastAPI()\n\n\
         @serve.deployment(ray_actor_options={{'num_cpus': 0.1}})\n@serve.ingress(api)\nclass Food:\n    \
         @api.get('/', response_class=PlainTextResponse)\n    async def say(self, request: Request):\n        \
         return f'version {version}, key {{request.headers.get(\"x-gpucl-key\")}}, token {{len(os.environ.get(\"MY_TOKEN\", \"\"))}}'\n    \
         @api.post('/size')\n    async def size(self, request: Request):\n        return len(await request.body())\n    \
         @api.get('/slow')\n    async def slow(self):\n        await asyncio.sleep(60)\n    \
         @api.get('/parts')\n    async def parts(self):\n        async def each():\n            for part in range(3):\n                \
         yield f'part {{part}};'\n                await asyncio.sleep(0.3)\n        return StreamingResponse(each())\n    \
         @api.websocket('/echo')\n    async def echo(self, socket: WebSocket):\n        await socket.accept()\n        \
         await socket.send_text('again ' + await socket.receive_text())\n\nfood = Food.bind()\n"
    )
}

/// Sends a request with these headers; the status line and what follows.
fn ask(port: u16, line: &str, headers: &str, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let length = body.len();
    let head =
        format!("{line} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-length: {length}\r\nconnection: close\r\n");
    write!(stream, "{head}{headers}\r\n").unwrap();
    stream.write_all(body).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

fn get(port: u16, headers: &str) -> String {
    ask(port, "GET /food/", headers, b"")
}

/// Says `hello` on a web socket; what it says.
fn echoed(port: u16, headers: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let begin = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
    write!(stream, "GET /food/echo HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n{begin}{headers}\r\n").unwrap();
    // One masked frame, whose mask is zero.
    stream.write_all(b"\x81\x85\0\0\0\0hello").unwrap();
    let mut answer = Vec::new();
    let mut part = [0; 1024];
    while !answer.ends_with(b"again hello") {
        match stream.read(&mut part) {
            Ok(read) if read > 0 => answer.extend_from_slice(&part[..read]),
            _ => break,
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// The port and the key that `serve url` prints.
fn url(env: &TestEnv) -> (u16, String) {
    let mut child = env.command(&["serve", "url"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (address, key) = (lines.next().unwrap().unwrap(), lines.next().unwrap().unwrap());
    child.kill().unwrap();
    child.wait().unwrap();
    let port = address.trim_start_matches("http://127.0.0.1:").split('/').next().unwrap().parse().unwrap();
    (port, key.strip_prefix("X-Gpucl-Key: ").unwrap().to_owned())
}

/// The files with secrets of applications and jobs on the host.
fn secrets(env: &TestEnv) -> usize {
    let mut found = 0;
    let mut left = vec![env.home()];
    while let Some(folder) = left.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            match is_folder {
                true => left.push(entry.path()),
                false => found += usize::from(folder.ends_with(".gpucl-secrets")),
            }
        }
    }
    found
}

#[test]
#[ignore = "testbed"]
fn an_application_is_deployed_updated_and_rolled_back_behind_a_key() {
    let _turn = turn();
    let mut env = TestEnv::with_shared_ray();
    env.set("GPUCL_KEYRING", "off");
    env.write("menu/menu.py", MENU);
    env.write("cluster.yaml", &format!("{SPEC}{}", menu("3")));
    // It runs code of the spec on this machine, which is asked.
    env.run(&["up"]).exits(2).says("the application menu:build");
    let with_secret = format!("{SPEC}{}  secrets: [HUSHED]\n", menu("3"));
    env.write("cluster.yaml", &with_secret);
    env.run(&["up"]).exits(2).says("your secrets HUSHED, to an application");
    env.accept("cluster.yaml");
    env.run(&["up"]).exits(2).says("failed to read the secret HUSHED").says("gpucl secret set HUSHED");
    assert!(!env.paths().state.join("clusters/serving").exists(), "nothing was begun");
    env.write("cluster.yaml", &format!("{SPEC}{}", menu("3")));
    env.accept("cluster.yaml");
    env.run(&["plan"]).exits(0).prints("deploy the application menu: menu:build at /menu");
    env.run(&["up"]).exits(0).says("menu serves").says("POST /menu/today: 200");
    let before = nodes(&env, "serving");
    env.run(&["up"]).exits(0).prints("nothing was changed");
    env.run(&["plan"]).exits(0).prints("nothing to change");
    env.run(&["verify"]).exits(0).says("POST /menu/today: 200").says("all on the loopback");
    // It starts, and answers otherwise.
    env.write("cluster.yaml", &format!("{SPEC}{}", menu("4")));
    env.run(&["up"]).exits(3).says("POST /menu/today: the answer has another value at soup");
    env.write("cluster.yaml", SPEC);
    env.run(&["plan"]).exits(0).prints("delete the application menu");
    env.run(&["up"]).exits(0).says("menu is deleted").prints("1 operation");
    env.run(&["serve", "deploy", "app"]).exits(2).says("is not MODULE:VARIABLE");
    env.run(&["serve", "status"]).exits(0).says("Serve has no applications");

    env.write("app/app.py", &app(1));
    let deploy = ["serve", "deploy", "app:food", "--working-dir", "app", "--route-prefix", "/food"];
    env.run(&deploy).exits(0).prints("default serves");
    env.run(&deploy).exits(0).prints("nothing was changed");
    let (port, key) = url(&env);
    let with_key = format!("x-gpucl-key: {key}\r\n");
    assert!(get(port, &with_key).contains("version 1, key None, token 0"), "{}", get(port, &with_key));
    let token = std::fs::read_to_string(env.paths().state.join("clusters/serving/secrets/ray_token")).unwrap();
    assert_ne!(key, token.trim());
    let with_token = format!("authorization: Bearer {}\r\n", token.trim());
    for others in ["", "x-gpucl-key: 0\r\n", "authorization: Bearer 0\r\n", &with_token] {
        assert!(get(port, others).starts_with("HTTP/1.1 401 "), "{others}");
        assert!(!echoed(port, others).contains("101 Switching"), "{others}");
    }
    let large = ask(port, "POST /food/size", &with_key, &vec![b'x'; 20 << 20]);
    assert!(large.ends_with("20971520"), "{large}");

    // Another version, with a secret that Ray does not have.
    let mut set = env.command(&["secret", "set", "HUSH"]).stdin(Stdio::piped()).spawn().unwrap();
    set.stdin.take().unwrap().write_all(b"not-for-ray").unwrap();
    assert!(set.wait().unwrap().success());
    env.write("app/app.py", &app(2));
    let with_secret = [&deploy[..], &["--secret", "HUSH=MY_TOKEN"]].concat();
    env.run(&with_secret).exits(0);
    env.run(&with_secret).exits(0).prints("nothing was changed");
    assert!(get(port, &with_key).contains("version 2, key None, token 11"), "{}", get(port, &with_key));
    assert_eq!(secrets(&env), 1);
    let status = env.run(&["--output", "json", "serve", "status"]).exits(0).stdout;
    assert!(!status.contains("not-for-ray"), "{status}");
    env.run(&["serve", "logs"]).exits(0).prints("Food#");

    // What does not start says why, and leaves a way back.
    env.write("app/app.py", "import nothere\n");
    env.run(&deploy).exits(3).says("No module named 'nothere'").says("gpucl serve rollback default");
    assert!(get(port, &with_key).contains("version 2, key None, token 11"), "the old one serves on");
    env.run(&["serve", "rollback"]).exits(0);
    assert!(get(port, &with_key).contains("version 2, key None, token 11"), "with its secret");
    env.run(&["serve", "rollback"]).exits(0);
    assert!(get(port, &with_key).contains("version 1, key None, token 0"));
    assert_eq!(secrets(&env), 0, "nothing uses them");
    env.run(&["serve", "rollback"]).exits(6).says("nothing else of it served before");

    // A config file with several; what asks for too much says so, and holds the cluster's lock meanwhile.
    let file = "http_options: {host: 0.0.0.0, port: 8000}\napplications:\n- {name: other, import_path: 'app:food', \
                route_prefix: /other}\n- {name: menu, import_path: 'menu:build', route_prefix: /menu, args: {soup: 1}, \
                runtime_env: {working_dir: menu}, deployments: [{name: Menu, num_replicas: 2, ray_actor_options: \
                {num_cpus: CPUS}}]}\n";
    env.write("app/app.py", &app(3));
    env.write("serve.yaml", &file.replace("CPUS", "64"));
    let several = ["serve", "deploy", "serve.yaml", "--working-dir", "app"];
    let mut first = env.command(&several).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(first.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("are not used") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "the note on ports");
    }
    while !line.contains("menu: a replica of `Menu`") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "what does not fit");
    }
    env.run(&deploy).says("serve deploy");
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert_eq!(first.wait().unwrap().code(), Some(3), "{rest}");
    assert!(rest.contains("a replica of `Menu`") && rest.contains("gpucl serve delete menu"), "{rest}");
    env.run(&["serve", "status"]).exits(0).prints("a replica of `Menu`").prints("REQUESTS");
    env.write("serve.yaml", &file.replace("CPUS", "0.1"));
    env.run(&several).exits(0).prints("menu serves");
    assert!(get(port, &with_key).contains("version 1"), "the others stay");
    env.run(&["serve", "delete", "othr"]).exits(6).says("did you mean `other`?");
    env.run(&["serve", "delete", "menu"]).exits(0);

    // Through the portal, which has the key: a page, a stream, a web socket.
    let mut pages =
        env.command(&["--output", "json", "dashboard", "--no-open"]).stdout(Stdio::piped()).spawn().unwrap();
    line.clear();
    BufReader::new(pages.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let shown: serde_json::Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
    let page = shown["pages"]["serve default"].as_str().unwrap_or_else(|| panic!("{line}"));
    let (host, path) = page.trim_start_matches("http://").split_once('/').unwrap();
    let at: u16 = host.rsplit(':').next().unwrap().parse().unwrap();
    assert!(path.starts_with("food?"), "{page}");
    let bearer = format!("authorization: Bearer {key}\r\n");
    assert!(get(at, &bearer).contains("version 1, key None"), "{}", get(at, &bearer));
    assert!(!get(at, "").contains("version 1"));
    let parts = ask(at, "GET /food/parts", &bearer, b"");
    assert!(parts.contains("part 0;") && parts.contains("part 2;"), "{parts}");
    let echo = echoed(at, &bearer);
    assert!(echo.contains("101 Switching") && echo.ends_with("again hello"), "{echo}");
    interrupt(&pages);
    pages.wait().unwrap();

    // Another application leaves the first one alone, and `down` does not wait for requests.
    let mut slow = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(slow, "GET /food/slow HTTP/1.1\r\nhost: localhost\r\n{with_key}\r\n").unwrap();
    assert_eq!(nodes(&env, "serving"), before, "no node was disturbed");
    env.run(&["down", "--yes"]).exits(0);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "nothing listens");
    assert_eq!(tagged_processes(&env), []);
}
