//! `gpucl login` against a site of canned answers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::TestEnv;

/// A site that knows one credential; returns its Keystone's address.
fn site(restricted: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let url = format!("{address}/v3");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut head = String::new();
            while reader.read_line(&mut head).unwrap_or(0) > 2 {}
            let length =
                head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
            let mut body = vec![0; length.unwrap_or(0)];
            let _ = reader.read_exact(&mut body);
            let (status, body) = answer(&address, &head, &String::from_utf8_lossy(&body), restricted);
            let body = body.to_string();
            let _ = write!(
                stream,
                "HTTP/1.1 {status} X\r\nX-Subject-Token: T\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
        }
    });
    url
}

fn answer(address: &str, head: &str, body: &str, restricted: bool) -> (u16, Value) {
    let service = |kind: &str, path: &str| json!({"type": kind, "endpoints": [{"interface": "public", "region": "CHI@UC", "url": format!("{address}/{path}")}]});
    let path = head.split(' ').nth(1).unwrap_or_default();
    match path {
        "/v3/auth/tokens" if !body.contains("\"known\"") => (
            404,
            json!({"error": {"code": 404, "message": "Could not find Application Credential: x.", "title": "Not Found"}}),
        ),
        "/v3/auth/tokens" if !body.contains("\"right\"") => (401, json!({"error": {"code": 401, "message": "no"}})),
        "/v3/auth/tokens" => (
            201,
            json!({"token": {
                "user": {"id": "u", "name": "alice"}, "project": {"id": "p", "name": "CHI-TEST"},
                "roles": [{"id": "r", "name": "member"}], "issued_at": "2026-11-21T01:00:00Z",
                "expires_at": "2026-11-21T05:00:00Z", "application_credential": {"restricted": restricted},
                "catalog": [service("reservation", "reservation/v1"), service("compute", "compute/v2.1")],
            }}),
        ),
        "/reservation/v1/os-hosts" => (
            200,
            json!({"hosts": [{"id": "1", "node_name": "liqid01", "reservable": true}, {"id": "2", "reservable": false}]}),
        ),
        "/reservation/v1/os-hosts/allocations" => (200, json!({"allocations": []})),
        "/reservation/v1/leases" => (200, json!({"leases": []})),
        "/compute/v2.1/servers/detail" => (200, json!({"servers": []})),
        _ => (404, json!({})),
    }
}

/// Logs in with this secret on standard input; returns the exit code, stdout and stderr.
fn log_in(env: &TestEnv, url: &str, id: &str, secret: &str, more: &[&str]) -> (i32, String, String) {
    let arguments = ["login", "chameleon", "--site", "uc", "--url", url, "--credential-id", id, "--secret-stdin"];
    let mut command = env.command(&[&arguments[..], more].concat());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    writeln!(child.stdin.take().unwrap(), "{secret}").unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_credential_is_checked_kept_listed_and_forgotten() {
    let mut env = TestEnv::new();
    // A bus that nobody answers on is no keyring.
    env.set("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent/bus");
    let url = site(false);
    let (code, out, error) = log_in(&env, &url, "known", "right", &[]);
    assert_eq!(code, 0, "{error}");
    assert!(out.starts_with("logged in to CHI@UC\n  you are alice in CHI-TEST, with the roles member\n"), "{out}");
    assert!(out.contains("1 of 2 hosts can be reserved") && out.contains("`reader` is not among them"), "{out}");
    assert!(!out.contains("right") && !error.contains("right"));
    let file = env.home().join(".config/gpucl/credentials.yaml");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let listed = env.run(&["login", "--list", "--output", "json"]).exits(0).json();
    assert_eq!((&listed[0]["place"], &listed[0]["project"]), (&"CHI@UC".into(), &"CHI-TEST".into()));
    let _ = env.run(&["logout", "chameleon", "--site", "tacc"]).exits(6).says("gpucl login --list");
    let _ =
        env.run(&["logout", "chameleon", "--site", "uc"]).exits(0).prints("deleted the login at CHI@UC in CHI-TEST");
    assert!(!std::fs::read_to_string(file).unwrap().contains("right"));
}

#[test]
fn bad_credentials_are_distinguished_and_not_stored() {
    let env = TestEnv::new();
    let url = site(true);
    for (id, secret, says) in [
        ("unknown", "right", "has no application credential unknown"),
        ("known", "wrong", "the secret of the application credential known is wrong"),
        ("known", "right", "the application credential is restricted"),
    ] {
        let (code, out, error) = log_in(&env, &url, id, secret, &[]);
        assert_eq!((code, out.as_str()), (1, ""), "{error}");
        assert!(error.contains(says) && error.contains("/identity/application_credentials/"), "{error}");
    }
    assert!(!env.home().join(".config/gpucl/credentials.yaml").exists());
    let _ = env.run(&["login", "chameleon"]).exits(2).says("CHI@TACC, CHI@UC");
    let _ = env.run(&["login", "chameleon", "--site", "uc"]).exits(2).says("Unrestricted").says("--secret-stdin");
    let _ = env.run(&["login", "local"]).exits(2).says("it has no accounts");
    let _ = env.run(&["login"]).exits(2);
}
