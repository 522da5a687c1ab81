//! Applications of Serve on this machine: deployed, asked, updated, rolled back, deleted, and closed to others.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

use crate::support::{TestEnv, nodes, tagged_processes, turn};

const SPEC: &str = "name: serving\nprovider: local\nray:\n  workers: {count: 1, cpus: 2}\noversubscribe: true\n";

fn app(version: u32) -> String {
    format!(
        "from ray import serve\n\n@serve.deployment(ray_actor_options={{'num_cpus': 0.1}})\nclass Food:\n    \
         async def __call__(self, request):\n        print('asked')\n        \
         return f'version {version}, key {{request.headers.get(\"x-gpucl-key\")}}'\n\nfood = Food.bind()\n"
    )
}

/// Sends a GET with these headers; the status line and what follows.
fn get(port: u16, headers: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "GET /food HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
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

#[test]
#[ignore = "testbed"]
fn an_application_is_deployed_updated_and_rolled_back_behind_a_key() {
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    env.write("cluster.yaml", SPEC);
    env.run(&["up"]).exits(0);
    let before = nodes(&env, "serving");
    env.run(&["serve", "deploy", "app"]).exits(2).says("is not MODULE:VARIABLE");
    env.run(&["serve", "status"]).exits(0).says("Serve has no applications");

    env.write("app/app.py", &app(1));
    let deploy = ["serve", "deploy", "app:food", "--working-dir", "app", "--route-prefix", "/food"];
    env.run(&deploy).exits(0).prints("default serves");
    env.run(&deploy).exits(0).prints("nothing was changed");
    env.run(&["serve", "status"]).exits(0).prints("1 of 1").prints("worker-0");
    let (port, key) = url(&env);
    let with_key = format!("x-gpucl-key: {key}\r\n");
    assert!(get(port, &with_key).contains("version 1, key None"), "{}", get(port, &with_key));
    let token = std::fs::read_to_string(env.paths().state.join("clusters/serving/secrets/ray_token")).unwrap();
    assert_ne!(key, token.trim());
    let with_token = format!("authorization: Bearer {}\r\n", token.trim());
    for others in ["", "x-gpucl-key: 0\r\n", "authorization: Bearer 0\r\n", &with_token] {
        assert!(get(port, others).starts_with("HTTP/1.1 401 "), "{others}");
    }
    // Replicas listen on the loopback, too.
    env.run(&["verify"]).exits(0).says("all on the loopback");

    env.write("app/app.py", &app(2));
    env.run(&deploy).exits(0);
    assert!(get(port, &with_key).contains("version 2, key None"));
    env.run(&["serve", "logs"]).exits(0).prints("Food#");

    // What does not start says why, and leaves a way back.
    env.write("app/app.py", "import nothere\n");
    env.run(&deploy).exits(3).says("No module named 'nothere'").says("gpucl serve rollback default");
    assert!(get(port, &with_key).contains("version 2, key None"), "the old one serves on");
    env.run(&["serve", "rollback"]).exits(0);
    assert!(get(port, &with_key).contains("version 2, key None"));
    env.run(&["serve", "rollback"]).exits(0);
    assert!(get(port, &with_key).contains("version 1, key None"));
    env.run(&["serve", "rollback"]).exits(6).says("nothing else of it served before");

    // Another application leaves the first one alone.
    let other = ["serve", "deploy", "app:food", "--working-dir", "app", "--name", "other", "--route-prefix", "/other"];
    env.write("app/app.py", &app(3));
    env.run(&other).exits(0);
    assert!(get(port, &with_key).contains("version 1, key None"));
    env.run(&["serve", "delete", "othr"]).exits(6).says("did you mean `other`?");
    env.run(&["serve", "delete", "other"]).exits(0);
    assert!(get(port, &with_key).contains("version 1, key None"));
    env.run(&["serve", "delete"]).exits(0).prints("no application is left");
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "nothing listens");
    assert_eq!(nodes(&env, "serving"), before, "no node was disturbed");
    env.run(&["down", "--yes"]).exits(0);
    assert_eq!(tagged_processes(&env), []);
}
