//! A machine that lacks what others have: certificates, time zones, a home folder, a way out without a proxy.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use gpucl::sandbox::lambda::{Config, Sandbox, User};

use crate::support::TestEnv;

#[test]
fn without_certificates_what_needs_them_says_so_and_the_rest_works() {
    let mut env = TestEnv::new();
    let nowhere = env.root().join("none").display().to_string();
    env.set("SSL_CERT_FILE", &nowhere);
    env.set("SSL_CERT_DIR", &nowhere);
    env.set("LAMBDA_API_KEY", "secret_none");
    env.set("LAMBDA_API_URL", "https://127.0.0.1:9");
    env.run(&["offers", "--provider", "lambda"])
        .exits(2)
        .says("failed to prepare connections to https://127.0.0.1:9/")
        .says("hint: sudo apt-get install ca-certificates; or name a file of certificates in PEM format: SSL_CERT_FILE=PATH");

    // A server without encryption needs none.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let sandbox = runtime.block_on(Sandbox::start(Config::prompt())).unwrap();
    env.set("LAMBDA_API_KEY", &sandbox.key(User::Alice));
    env.set("LAMBDA_API_URL", &sandbox.base_url());
    env.set("GPUCL_LAMBDA_PACE", "0.001");
    // Times are shown in UTC where the machine does not know the user's zone.
    env.set("TZDIR", &nowhere);
    env.set("TZ", "Europe/Nowhere");
    env.run(&["offers", "--provider", "lambda"]).exits(0).prints("gpu_1x_a10");
}

#[test]
fn without_a_home_folder_what_writes_nothing_works_and_the_rest_names_it() {
    let mut env = TestEnv::new();
    env.write("cluster.yaml", "name: x\n");
    // Nobody makes folders there, root neither.
    env.set("HOME", "/proc/nobody");
    env.run(&["list"]).exits(0).says("no cluster");
    env.run(&["plan"]).exits(0).prints("#1 host-0, acquire: there is none yet");
    env.run(&["up"]).exits(1).says("cannot be written").says("XDG_STATE_HOME");
}

#[test]
fn a_proxy_that_refuses_is_named_and_its_login_goes_to_it_alone() {
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = proxy.local_addr().unwrap();
    let (seen, asked) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in proxy.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let length = stream.read(&mut request).unwrap_or_default();
            let _ = seen.send(String::from_utf8_lossy(&request[..length]).to_lowercase());
            let _ = stream.write_all(
                b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            );
        }
    });
    let mut env = TestEnv::new();
    env.set("LAMBDA_API_KEY", "secret_none");
    env.set("LAMBDA_API_URL", "https://cloud.example.invalid");
    env.set("GPUCL_LAMBDA_PACE", "0.001");
    env.set("NO_PROXY", "");
    let refused = |env: &TestEnv, cause: &str| {
        let offers = env.run(&["offers", "--provider", "lambda"]).exits(1);
        let offers = offers
            .says("Caused by: cloud.example.invalid cannot be reached through the proxy in HTTPS_PROXY: ")
            .says(cause)
            .says("hint: check the proxy's address and login, or go past it: export NO_PROXY=cloud.example.invalid\n");
        assert!(!format!("{}{}", offers.stdout, offers.stderr).contains("pass-4-word"), "{}", offers.stderr);
    };
    env.set("HTTPS_PROXY", &format!("http://someone:pass-4-word@{address}"));
    refused(&env, "proxy authorization required");
    let asked = asked.try_recv().unwrap();
    assert!(
        asked.starts_with("connect cloud.example.invalid:443") && asked.contains("proxy-authorization: basic "),
        "{asked}"
    );
    assert!(!asked.contains("secret_none"), "{asked}");
    // Nobody listens on the port of `discard`.
    env.set("HTTPS_PROXY", "http://someone:pass-4-word@127.0.0.1:9");
    refused(&env, "Connection refused");
}
