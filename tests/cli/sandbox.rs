//! `gpucl sandbox`, for a user without an account, and against other users of the same machine.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use gpucl::sandbox::CONTROL_HEADER;
use serde_json::Value;

use crate::support::{TestEnv, ask, interrupt, until};

/// A stand-in that serves.
struct Served {
    child: Child,
    /// The line that it printed.
    line: String,
    printed: Value,
}

impl Served {
    /// Started by somebody whose umask keeps nothing from others.
    fn start(env: &TestEnv, arguments: &[&str]) -> Self {
        let mut command = env.unmasked(&[&["sandbox"], arguments, &["--output", "json"]].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let printed = serde_json::from_str(&line).unwrap();
        Self { child, line, printed }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.printed[name].as_str().unwrap().into()
    }

    /// What its user sets in the environment, the secret ones too.
    fn variable(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.file("env_file")).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("export {name}='"))).unwrap();
        line.strip_suffix('\'').unwrap().to_owned()
    }

    /// The URL of the control, and its secret.
    fn control(&self) -> (String, String) {
        let header = std::fs::read_to_string(self.file("control_file")).unwrap();
        let secret = header.trim().strip_prefix(&format!("{CONTROL_HEADER}: ")).unwrap().to_owned();
        (self.printed["control"].as_str().unwrap().to_owned(), secret)
    }

    /// Ctrl-C; returns what it said.
    fn end(&mut self) -> String {
        interrupt(&self.child);
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{said}");
        said
    }
}

/// A test that fails leaves no stand-in.
impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "testbed"]
fn the_lambda_stand_in_serves_until_ctrl_c_and_prints_its_counts() {
    let env = TestEnv::new();
    let mut served = Served::start(&env, &["lambda", "--user", "bob", "--no-hosts"]);
    let (key, url) = (served.variable("LAMBDA_API_KEY"), served.variable("LAMBDA_API_URL"));
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
    let (control, secret) = served.control();
    assert_eq!(ask("GET", &format!("{control}/snapshot"), &[(CONTROL_HEADER, &secret)], "").unwrap().0, 200);
    let said = served.end();
    assert!(said.contains("compared with the contract, 0 violations; undeclared (429: 1)"), "{said}");
    assert!(!said.contains(&key) && !said.contains(&secret), "{said}");
}

/// Current, former and invented paths of the control.
const STEERED: [(&str, &str); 28] = [
    ("GET", ""),
    ("GET", "/"),
    ("GET", "/rules"),
    ("PUT", "/rules"),
    ("DELETE", "/rules"),
    ("GET", "/log"),
    ("DELETE", "/log"),
    ("GET", "/snapshot"),
    ("GET", "/keys"),
    ("GET", "/credentials"),
    ("GET", "/pace"),
    ("GET", "/contract"),
    ("GET", "/instances"),
    ("POST", "/instances/one"),
    ("POST", "/advance"),
    ("POST", "/capacity"),
    ("POST", "/vanish"),
    ("POST", "/next"),
    ("POST", "/preempt/one"),
    ("POST", "/terminate/one"),
    ("POST", "/unhealthy/one"),
    ("POST", "/refuse-terminate/one"),
    ("POST", "/foreign"),
    ("POST", "/revoke"),
    ("POST", "/account"),
    ("POST", "/fail-server"),
    ("POST", "/foreign-lease"),
    ("OPTIONS", "/nonsense"),
];

/// A stand-in is a server on a machine that others use too: their requests and those of their web pages are refused
/// before they are read.
#[test]
fn a_stand_in_refuses_requests_without_its_secret() {
    let env = TestEnv::new();
    let mut all = [
        Served::start(&env, &["lambda", "--no-hosts"]),
        Served::start(&env, &["lambda", "--no-hosts"]),
        Served::start(&env, &["chameleon"]),
    ];
    let secrets = [
        all[0].variable("LAMBDA_API_KEY"),
        all[1].variable("LAMBDA_API_KEY"),
        all[2].variable("OS_APPLICATION_CREDENTIAL_SECRET"),
        all[0].control().1,
        all[1].control().1,
        all[2].control().1,
    ];
    let mut tried = 0;
    for (at, served) in all.iter().enumerate() {
        let (control, secret) = served.control();
        let others = all[(at + 1) % all.len()].control().1;
        let attempts: [&[(&str, &str)]; 8] = [
            &[],
            &[(CONTROL_HEADER, "")],
            &[(CONTROL_HEADER, &others)],
            &[(CONTROL_HEADER, &secret[..63])],
            &[("authorization", &format!("Bearer {secret}"))],
            &[(CONTROL_HEADER, &secret), ("host", "evil.example")],
            &[(CONTROL_HEADER, &secret), ("origin", "http://evil.example")],
            &[(CONTROL_HEADER, &secret), ("sec-fetch-site", "cross-site")],
        ];
        for (method, path) in STEERED {
            for headers in attempts {
                let (status, body) = ask(method, &format!("{control}{path}"), headers, "{}").unwrap();
                assert!((400..500).contains(&status), "{method} {control}{path} {headers:?}: {status} {body}");
                assert!(!body.contains('{') && !body.contains("secret_"), "{method} {path} {headers:?}: {body}");
                tried += 1;
            }
        }
        // Even with the secret nobody gets an API key from the control.
        for path in ["/keys", "/credentials", "/snapshot", "/log", "/rules", "/instances", "/contract"] {
            let (status, body) = ask("GET", &format!("{control}{path}"), &[(CONTROL_HEADER, &secret)], "").unwrap();
            assert!(status == 200 || status == 404, "{path}: {status} {body}");
            assert!(!secrets.iter().any(|secret| body.contains(secret)), "{path}: {body}");
            assert!(!["/keys", "/credentials"].contains(&path) || status == 404, "{path}: {body}");
        }
    }
    assert_eq!(tried, 3 * 28 * 8);
    no_key_is_registered(&all[0], &all[1]);
    the_services_are_for_their_own_address(&all);
    for (served, kind) in all.iter().zip(["lambda", "lambda", "chameleon"]) {
        let folder = served.file("env_file").parent().unwrap().to_owned();
        assert!(folder.file_name().unwrap().to_string_lossy().starts_with(&format!("sandbox-{kind}-")), "{folder:?}");
        assert!(!secrets.iter().any(|secret| served.line.contains(secret)), "{}", served.line);
        is_of_its_user_alone(&folder);
    }
    is_of_its_user_alone(&env.root().join("run/gpucl"));
    all.iter_mut().for_each(|served| drop(served.end()));
    assert_eq!(std::fs::read_dir(env.root().join("run/gpucl")).unwrap().count(), 0, "secrets of those that ended");
}

/// A public key opens an instance: it is taken with an API key of this very stand-in only.
#[track_caller]
fn no_key_is_registered(ours: &Served, other: &Served) {
    let url = format!("{}/api/v1", ours.variable("LAMBDA_API_URL"));
    let key = r#"{"name": "mine", "public_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICN+lJwsONkwrdsSnQsu1ydUkIuIg5oOC+Eslvmtt60T me"}"#;
    let launch = r##"{"region_name": "us-east-1", "instance_type_name": "gpu_1x_a10", "ssh_key_names": ["mine"],
        "user_data": "#cloud-config\nssh_authorized_keys: [ssh-ed25519 AAAA]\n"}"##;
    let (_, secret) = ours.control();
    let foreign = format!("Bearer {}", other.variable("LAMBDA_API_KEY"));
    let right = format!("Bearer {}", ours.variable("LAMBDA_API_KEY"));
    let attempts: [&[(&str, &str)]; 5] = [
        &[],
        &[("authorization", &foreign)],
        &[(CONTROL_HEADER, &secret)],
        &[("authorization", &right), ("host", "evil.example")],
        &[("authorization", &right), ("origin", "null")],
    ];
    for headers in attempts {
        for (path, body) in [("/ssh-keys", key), ("/instance-operations/launch", launch)] {
            let headers = [headers, &[("content-type", "application/json")]].concat();
            let (status, reply) = ask("POST", &format!("{url}{path}"), &headers, body).unwrap();
            assert!([401, 403, 421].contains(&status), "{path} {headers:?}: {status} {reply}");
        }
    }
    let (control, secret) = ours.control();
    let seen = ask("GET", &format!("{control}/snapshot"), &[(CONTROL_HEADER, &secret)], "").unwrap().1;
    let seen: Value = serde_json::from_str(&seen).unwrap();
    assert_eq!(
        (seen["ssh_keys"].as_array().unwrap().len(), seen["instances"].as_array().unwrap().len()),
        (0, 0),
        "{seen}"
    );
}

/// `Host` and `Origin` are checked for the services as well as for the control.
#[track_caller]
fn the_services_are_for_their_own_address(all: &[Served]) {
    for served in all {
        let base = served.control().0.strip_suffix("/control").unwrap().to_owned();
        let port = base.rsplit_once(':').unwrap().1.to_owned();
        let path = if served.line.contains("LAMBDA") { "/api/v1/regions" } else { "/identity/v3" };
        let status = |headers: &[(&str, &str)]| ask("GET", &format!("{base}{path}"), headers, "").unwrap().0;
        let heard = if served.line.contains("LAMBDA") { 401 } else { 200 };
        assert_eq!((status(&[]), status(&[("host", &format!("localhost:{port}"))])), (heard, heard));
        assert_eq!(status(&[("origin", &base)]), heard);
        for host in ["evil.example", "127.0.0.1", "127.0.0.2:1", &format!("evil.example:{port}")] {
            assert_eq!(status(&[("host", host)]), 421, "{host}");
        }
        assert_eq!((status(&[("origin", "http://evil.example")]), status(&[("origin", "null")])), (403, 403));
    }
}

/// A folder, and what is in it.
#[track_caller]
fn is_of_its_user_alone(folder: &Path) {
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(folder), 0o700, "{}", folder.display());
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
        assert_eq!(mode(&entry), 0o600, "{}", entry.display());
    }
}
