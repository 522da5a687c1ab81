//! `gpucl sandbox`, as somebody without an account starts it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::support::{TestEnv, interrupt, until};

/// Started, and the line that it printed once it serves.
fn served(env: &TestEnv, arguments: &[&str]) -> (Child, Value) {
    let mut command = env.command(&[&["sandbox"], arguments, &["--output", "json"]].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    (child, serde_json::from_str(&line).unwrap())
}

#[test]
#[ignore = "testbed"]
fn a_stand_in_of_lambda_serves_until_ctrl_c_and_says_what_it_compared() {
    let env = TestEnv::new();
    let (mut child, told) = served(&env, &["lambda", "--user", "bob"]);
    let variable = |name: &str| told["variables"][name].as_str().unwrap().to_owned();
    let (key, url) = (variable("LAMBDA_API_KEY"), variable("LAMBDA_API_URL"));
    assert!(url.starts_with("http://127.0.0.1:"), "{url}");
    let get = |path: &str, key: &str| {
        let authorization = format!("Bearer {key}");
        crate::support::get(&format!("{url}{path}"), &[("authorization", &authorization)]).unwrap()
    };
    let (status, body) = get("/api/v1/instance-types", &key);
    assert!(status == 200 && body.contains("gpu_1x_a10"), "{body}");
    let (status, body) = get("/api/v1/instance-types", "nonsense");
    assert!(status == 401 && body.contains("global/invalid-api-key"), "{body}");
    // It is Lambda's limit: the second of two right requests within a second. A busy machine may need more of them.
    until("a request that comes too soon", 20, || (get("/api/v1/regions", &key).0 == 429).then_some(()));
    assert_eq!(get("/control/snapshot", "").0, 200);
    interrupt(&child);
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{said}");
    assert!(said.contains("compared with the contract, 0 violations; undeclared (429: 1)"), "{said}");
    assert!(!said.contains(&key), "{said}");
}
