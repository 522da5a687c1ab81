//! Logging in at the sites of Chameleon's own list, which is asked for as in reality: at its address, encrypted. A proxy
//! leads to stand-ins.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use gpucl::sandbox::chameleon::{Config, IssuerConfig, Sandbox, User};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::support::TestEnv;

/// Where the proxy's certificate, its key and the authority that signed it are. They protect nothing.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/chameleon");

struct Scene {
    env: TestEnv,
    uc: Sandbox,
    new: Sandbox,
    front: Child,
    /// The hosts that were asked for.
    asked: Arc<Mutex<Vec<String>>>,
    _runtime: Runtime,
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.front.kill();
        let _ = self.front.wait();
    }
}

impl Scene {
    /// `CHI@UC`, which has the list, and a site that this version does not know.
    fn new(listed: &[(&str, &str)]) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let sites = listed.iter().map(|(name, web)| ((*name).to_owned(), (*web).to_owned())).collect();
        let issuer =
            IssuerConfig { address: Some("https://auth.chameleoncloud.org".to_owned()), ..IssuerConfig::default() };
        let config = Config { sites, issuer, ..Config::default() };
        let uc = runtime.block_on(Sandbox::start(config)).unwrap();
        let new = Config { region: "CHI@New".to_owned(), ..Config::default() };
        let new = runtime.block_on(Sandbox::start(new)).unwrap();
        let mut front = Command::new("python3")
            .arg(format!("{FOLDER}/front.py"))
            .arg(format!("{FOLDER}/front.pem"))
            .args(["api", "auth", "chi.uc"].map(|host| format!("{host}.chameleoncloud.org={}", uc.port())))
            .arg(format!("chi.new.chameleoncloud.org={}", new.port()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(front.stdout.take().unwrap()).lines();
        let port = lines.next().unwrap().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let heard = asked.clone();
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|host| heard.lock().unwrap().push(host)));
        let mut env = TestEnv::new();
        for name in ["HTTPS_PROXY", "https_proxy"] {
            env.set(name, &format!("http://127.0.0.1:{port}"));
        }
        for name in ["NO_PROXY", "no_proxy"] {
            env.set(name, "");
        }
        env.set("SSL_CERT_FILE", &format!("{FOLDER}/front-authority.pem"));
        env.set("GPUCL_KEYRING", "off");
        let scene = Self { env, uc, new, front, asked, _runtime: runtime };
        scene.log_in_with_ccauth();
        scene
    }

    /// As after `ccauth`: its cache has a refresh token.
    fn log_in_with_ccauth(&self) {
        let path = self.env.home().join(".cache/ccauth/refresh_token.json");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let kept = json!({"refresh_token": self.uc.refresh_token(User::Alice), "cached_at": 1.5});
        std::fs::write(&path, kept.to_string()).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    }

    /// How often a host was asked for since the last time.
    fn asked(&self, host: &str) -> usize {
        let mut asked = self.asked.lock().unwrap();
        let before = asked.len();
        asked.retain(|one| one != host);
        before - asked.len()
    }

    fn list(&self) -> std::path::PathBuf {
        self.env.home().join(".cache/gpucl/chameleon-sites.json")
    }
}

/// The places of the lines of this type.
fn places(lines: &[Value], kind: &str) -> Vec<String> {
    let of = lines.iter().filter(|line| line["type"] == kind);
    let mut places: Vec<String> = of.map(|line| line["place"].as_str().unwrap_or_default().to_owned()).collect();
    places.sort();
    places.dedup();
    places
}

#[test]
fn a_login_goes_to_every_site_of_the_list_and_to_no_other_host() {
    let scene = Scene::new(&[
        ("CHI@New", "https://chi.new.chameleoncloud.org"),
        ("CHI@UC", "https://chi.uc.chameleoncloud.org"),
        ("CHI@Evil", "https://evil.example"),
        ("CHI@Plain", "http://chi.uc.chameleoncloud.org"),
        ("KVM@TACC", "https://kvm.tacc.chameleoncloud.org"),
    ]);
    let login = ["login", "chameleon", "--output", "json"];
    let lines = scene.env.run(&login).exits(0).json();
    assert_eq!(places(&lines, "login"), ["CHI@New", "CHI@UC"]);
    assert_eq!(scene.asked("api.chameleoncloud.org"), 1);
    for host in ["auth.chameleoncloud.org", "chi.uc.chameleoncloud.org", "chi.new.chameleoncloud.org"] {
        assert!(scene.asked(host) > 0, "{host}");
    }
    assert_eq!(scene.asked.lock().unwrap().as_slice(), &[] as &[String], "nobody else was asked");
    assert_eq!(std::fs::metadata(scene.list()).unwrap().permissions().mode() & 0o777, 0o600);

    // Both are asked from now on, and the list is not: it is for logging in alone.
    let lines = scene.env.run(&["offers", "--provider", "chameleon", "--output", "json"]).exits(0).json();
    assert_eq!(places(&lines, "offer"), ["CHI@New", "CHI@UC"]);
    assert!(scene.new.log().len() > 1);
    // Nor is it a second time on the same day.
    scene.env.run(&login).exits(0);
    assert_eq!(scene.asked("api.chameleoncloud.org"), 0);
    // A site that is newer than this version is found by its name, too.
    let lines = scene.env.run(&["login", "chameleon", "--site", "new", "--output", "json"]).exits(0).json();
    assert_eq!(places(&lines, "login"), ["CHI@New"]);
    assert_eq!(scene.asked("api.chameleoncloud.org"), 0);
}

#[test]
fn without_the_list_the_sites_that_this_version_knows_are_used() {
    // What is there names no host of Chameleon's.
    let scene = Scene::new(&[("CHI@UC", "https://evil.example")]);
    let login = ["login", "chameleon", "--site", "uc"];
    scene.env.run(&login).exits(0).prints("logged in to CHI@UC").says("it names no site of Chameleon");
    assert_eq!(scene.asked("evil.example"), 0);
    assert!(!Path::new(&scene.list()).exists());
    // What was kept before is somebody else's now: it is checked like an answer.
    std::fs::create_dir_all(scene.list().parent().unwrap()).unwrap();
    let kept =
        json!({"v": 1, "at": jiff::Timestamp::now(), "items": [{"name": "CHI@UC", "web": "https://evil.example"}]});
    std::fs::write(scene.list(), kept.to_string()).unwrap();
    scene.env.run(&login).exits(0).prints("logged in to CHI@UC");
    assert_eq!(scene.asked("evil.example"), 0);
}
