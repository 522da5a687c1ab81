//! One fresh host with two GPUs: from nothing to ready, once more beside a running job, its pages, and away.

use std::time::{Duration, Instant};

use super::closed;
use super::inside;
use super::panels;
use super::served;
use super::spec::{env, gpucl, spec};
use super::testbed::TestHost;
use crate::support::{TestEnv, application_of_spec, turn, until, write_application_of_spec};

#[test]
#[ignore = "testbed"]
fn a_fresh_host_with_two_gpus_comes_to_ready_and_goes() {
    let _turn = turn();
    let host = TestHost::start("one", &["--gpus", "nvidia:2", "--image", "fresh"]);
    let env = env();
    env.write("cluster.yaml", &spec("one", &[&host], "services: {mlflow: true}\n"));

    let (begin, before) = (Instant::now(), host.sessions());
    let up = gpucl(&env, &["up"]).exits(0).prints("ready:").says("Stand-in GPU");
    let sessions = host.sessions() - before;
    println!("first up: {:.0} s, {sessions} sessions\n{}\n{}", begin.elapsed().as_secs_f64(), up.stderr, up.stdout);
    assert!(sessions <= 3, "{sessions} SSH sessions for a first up");
    for uuid in host.uuids() {
        let seen = up.stderr.matches(&uuid).count();
        assert!(seen >= 2, "{uuid} is shown {seen} times, by the host and by its worker:\n{}", up.stderr);
    }

    grafana_is_provisioned_as_ray_does_it(&host);
    again_beside_a_job(&env, &host);
    let begin = Instant::now();
    served::plain_jobs_and_notebooks_log_runs(&env, &host);
    served::applications_answer_who_has_the_key(&env, &[&host]);
    panels::of_serve_are_answered(&env, &host);
    println!("runs logged, an application deployed: {:.0} s", begin.elapsed().as_secs_f64());
    pages(&env);
    closed::nothing_of_ours_answers(&host);
    closed::a_neighbour_reaches_nothing(&env, &host);
    inside::a_job_gets_nothing_but_its_own(&env, &host, "one");
    closed::no_secret_is_anywhere(&env, &host, "one");

    gpucl(&env, &["stop"]).exits(0);
    assert_eq!(host.sh("docker ps -q --filter label=gpucl.tag").trim(), "");
    a_moved_tag_is_said(&env, &host);
    let serve = format!("services: {{mlflow: true}}\nserve: {}\n", application_of_spec());
    write_application_of_spec(&env);
    env.write("cluster.yaml", &spec("one", &[&host], &serve));
    gpucl(&env, &["up"]).exits(2).says("your secrets HUSH=MENU_TOKEN, to an application");
    env.accept("cluster.yaml");
    let begin = Instant::now();
    gpucl(&env, &["up"]).exits(0).prints("ready:").says("menu serves").says("GET /menu/today: 200");
    println!("up after stop, with an application: {:.0} s", begin.elapsed().as_secs_f64());
    let begin = Instant::now();
    gpucl(&env, &["up"]).exits(0).prints("nothing was changed");
    env.write("cluster.yaml", &spec("one", &[&host], "services: {mlflow: true}\n"));
    let plan = gpucl(&env, &["--output", "json", "plan"]).exits(0).prints("delete the application menu").stdout;
    assert!(plan.contains(r#""operations":[]"#), "no container is started anew: {plan}");
    println!("up and plan with an application: {:.0} s", begin.elapsed().as_secs_f64());

    let down = gpucl(&env, &["down", "--yes", "--purge"]).exits(0).prints("nothing of one is left");
    println!("{}", down.stdout);
    assert_eq!(host.sh("docker ps -aq 2>/dev/null || true").trim(), "");
    assert!(!host.try_sh("test -e /var/lib/gpucl").status.success(), "the folder of gpucl is gone");
}

/// The registry's owner moves a tag: here what was recorded at the first pull is what differs, and nothing has it any
/// more.
fn a_moved_tag_is_said(env: &TestEnv, host: &TestHost) {
    let path = env.home().join(".local/state/gpucl/clusters/one/images.json");
    let recorded = std::fs::read_to_string(&path).unwrap();
    let mut changed: serde_json::Value = serde_json::from_str(&recorded).unwrap();
    let digests = changed["images"].as_object_mut().unwrap();
    assert!(digests.len() >= 5, "{recorded}");
    let (image, digest) = digests.iter_mut().find(|(image, _)| image.contains("node-exporter")).unwrap();
    let image = image.clone();
    *digest = serde_json::json!(format!("sha256:{}", "0".repeat(64)));
    std::fs::write(&path, changed.to_string()).unwrap();
    // With its rules gone the host is prepared again.
    host.sh("nft delete table $(nft list tables | sed -n 's/^table //; /gpucl_.*_closed/p')");
    let up = gpucl(env, &["up"]).exits(1).says("has moved").says("cannot be pulled");
    assert!(up.stderr.contains(&image), "{}", up.stderr);
    std::fs::write(&path, recorded).unwrap();
}

/// What Ray writes for a Grafana of its own, and what ours is given: the same but for the way in and the session's
/// name.
fn grafana_is_provisioned_as_ray_does_it(host: &TestHost) {
    let head = host.sh("docker ps --format '{{.Names}}' | grep -- '-head$'");
    let in_head = |command: &str| host.sh(&format!("docker exec {} sh -c '{command}'", head.trim()));
    let yaml = |text: String| serde_yaml::from_str::<serde_json::Value>(&text).unwrap();
    let folder = "/tmp/ray/session_latest/metrics/grafana";
    for (what, file, keys) in [
        ("datasources", "grafana-datasources.yaml", ["name", "type", "access", "url", "isDefault"].as_slice()),
        ("providers", "grafana-dashboards.yaml", ["name", "folder", "type"].as_slice()),
    ] {
        let sub = if what == "providers" { "dashboards" } else { what };
        let rays = yaml(in_head(&format!("cat {folder}/provisioning/{sub}/default.yml")));
        let ours = yaml(host.sh(&format!("cat $(find /var/lib/gpucl -name {file})")));
        for key in keys {
            assert!(!rays[what][0][key].is_null(), "Ray says nothing of {key}: {rays}");
            assert_eq!(ours[what][0][key], rays[what][0][key], "{key} of {what}");
        }
    }
    // Ray writes its dashboards there by configuration, since its own folder changes with each start.
    let rays = yaml(in_head(&format!("cat {folder}/provisioning/dashboards/default.yml")));
    let rays = in_head(&format!("cd {} && ls *.json", rays["providers"][0]["options"]["path"].as_str().unwrap()));
    assert!(rays.lines().count() >= 8, "{rays}");
    let ours = host.sh("cd /var/lib/gpucl/*/dashboards && ls *.json");
    assert_eq!(ours, rays);
    println!("Grafana is provisioned as Ray does it: {} dashboards", rays.lines().count());
}

/// A second `up` changes nothing, costs one session, and a job that runs does not feel it.
fn again_beside_a_job(env: &TestEnv, host: &TestHost) {
    let started = "docker inspect -f '{{.Name}} {{.State.StartedAt}}' $(docker ps -aq) | sort";
    let code = "import ray, time; ray.init(); t = time.time();\nwhile time.time() - t < 25: time.sleep(1)\nprint('counted to the end')";
    let job = gpucl(env, &["job", "submit", "--no-wait", "--id", "long", "--", "python", "-c", code]).exits(0);
    println!("{}{}", job.stdout, job.stderr);
    let (before, sessions) = (host.sh(started), host.sessions());
    let begin = Instant::now();
    gpucl(env, &["up"]).exits(0).prints("nothing was changed");
    println!("second up: {:.1} s", begin.elapsed().as_secs_f64());
    assert_eq!(host.sessions() - sessions, 1, "an unchanged up is one session");
    assert_eq!(host.sh(started), before, "no container was started anew");
    // The slow check is shown with its age while nothing was restarted; `verify` runs it.
    let shown = |command: &str| {
        let outcome = gpucl(env, &[command]).exits(0);
        let lines: Vec<String> = outcome
            .stdout
            .lines()
            .chain(outcome.stderr.lines())
            .filter(|line| line.contains("task ran"))
            .map(str::to_owned)
            .collect();
        assert!(!lines.is_empty(), "{}{}", outcome.stdout, outcome.stderr);
        lines.iter().all(|line| line.contains("nothing was restarted since"))
    };
    assert!(shown("up"), "a check that has just passed is shown again");
    assert!(!shown("verify"), "verify runs every check");
    until("the job to succeed", 180, || {
        let list = gpucl(env, &["--output", "json", "job", "status", "long"]);
        list.stdout.contains("SUCCEEDED").then_some(())
    });
    gpucl(env, &["job", "logs", "long"]).exits(0).prints("counted to the end");
}

/// Every page answers through its address with its key and login and is refused without either; at 127.0.0.1 to its
/// credential alone. It survives the end of the connection.
fn pages(env: &TestEnv) {
    let mut first = Dashboard::open(env);
    for page in first.pages() {
        let (browser, program) = (first.ask(&page), first.ask_as_a_program(&page));
        println!("{page}: {browser:?}, as a program {program:?}");
        assert_eq!(browser.0, 200, "{page} with its key and its login");
        // The portal logs in to these automatically.
        assert!(
            matches!(page.as_str(), "dashboard" | "mlflow") || matches!(browser.1, 401 | 403),
            "{page} without its login: {}",
            browser.1
        );
        assert_eq!(browser.2, 401, "{page} without its key");
        // The login of the store's console is a form, for which it takes a browser.
        assert_eq!(program.0, if page == "object-store" { 401 } else { 200 }, "{page} by its credential alone");
        assert_eq!(program.1, 401, "{page} by its key, without a name");
    }
    let masters = masters(env);
    assert!(!masters.is_empty(), "the dashboard's ssh master runs");
    for master in masters {
        rustix::process::kill_process(master, rustix::process::Signal::KILL).unwrap();
    }
    let begin = Instant::now();
    until("a page to answer again", 30, || (first.ask("dashboard").0 == 200).then_some(()));
    println!("pages answer again {:.1} s after the ssh master was killed", begin.elapsed().as_secs_f64());
    let urls = first.urls();
    first.close();
    for port in ports(&urls) {
        for loopback in ["127.0.0.1", "::1"] {
            assert!(std::net::TcpStream::connect((loopback, port)).is_err(), "port {port} has a listener still");
        }
    }
    let second = Dashboard::open(env);
    assert_eq!(ports(&second.urls()), ports(&urls), "the ports are the same at the next call");
    for (page, url) in urls.as_object().unwrap() {
        assert_ne!(url, &second.urls()[page], "the address of {page} is the same at the next call");
        assert_eq!(curl(&[url.as_str().unwrap().to_owned()]), 421, "the old address of {page}");
    }
    second.close();
}

/// The ssh masters of this environment: no other's command line names its folders.
fn masters(env: &TestEnv) -> Vec<rustix::process::Pid> {
    let root = env.root().display().to_string();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.starts_with("ssh") && line.contains(&root) {
            let pid = entry.file_name().to_string_lossy().parse().unwrap();
            found.extend(rustix::process::Pid::from_raw(pid));
        }
    }
    found
}

fn ports(urls: &serde_json::Value) -> Vec<u16> {
    let of =
        |url: &serde_json::Value| url.as_str()?.split(".localhost:").nth(1)?.split(['/', '?']).next()?.parse().ok();
    urls.as_object().unwrap().values().filter_map(of).collect()
}

/// A `gpucl dashboard` that runs.
struct Dashboard {
    child: std::process::Child,
    printed: serde_json::Value,
    folder: std::path::PathBuf,
}

impl Dashboard {
    fn open(env: &TestEnv) -> Self {
        use std::io::BufRead as _;
        let mut command = env.command(&["--output", "json", "dashboard", "--no-open"]);
        let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
        let printed = lines.next().unwrap().unwrap();
        let folder = env.home().join(".local/state/gpucl/clusters/one/secrets");
        Self { child, printed: serde_json::from_str(&printed).unwrap(), folder }
    }

    fn urls(&self) -> serde_json::Value {
        self.printed["pages"].clone()
    }

    /// The pages of services; `scenario::serve` asks those of applications.
    fn pages(&self) -> Vec<String> {
        let all = self.urls().as_object().unwrap().clone();
        all.into_iter().map(|(page, _)| page).filter(|page| !page.starts_with("serve ")).collect()
    }

    /// What a page answers in a browser with its key and its login, without its login, and without its key.
    fn ask(&mut self, page: &str) -> (u16, u16, u16) {
        let (host, cookie) = self.address(page);
        let (path, login) = self.login(page);
        let at = |path: &str, more: &[String]| curl(&[more, &[format!("http://{host}{path}")]].concat());
        let key = ["-H".to_owned(), cookie];
        let mut with = at(path, &[key.as_slice(), &login].concat());
        let mut without = path;
        if page == "object-store" {
            // A login is answered with 204.
            with = if with == 204 { 200 } else { with };
            without = "/api/v1/buckets";
        }
        (with, at(without, &key), at(path, &login))
    }

    /// What it answers at 127.0.0.1 to its login, and to its key.
    fn ask_as_a_program(&mut self, page: &str) -> (u16, u16) {
        let (host, cookie) = self.address(page);
        let (path, mut login) = self.login(page);
        if page == "dashboard" {
            login = vec!["-H".to_owned(), format!("Authorization: Bearer {}", self.secret("ray_token"))];
        }
        let url = format!("http://127.0.0.1:{}{path}", host.split(':').nth(1).unwrap());
        (curl(&[login.as_slice(), std::slice::from_ref(&url)].concat()), curl(&["-H".to_owned(), cookie, url]))
    }

    /// Where a browser finds a page, and the header with the cookie that it has there.
    fn address(&self, page: &str) -> (String, String) {
        let url = self.printed["pages"][page].as_str().unwrap();
        let (host, key) = url.strip_prefix("http://").unwrap().split_once("/?gpucl_key=").unwrap();
        let random = host.split('.').nth(1).unwrap();
        (host.to_owned(), format!("Cookie: gpucl_{random}_{page}={key}"))
    }

    fn secret(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.join(name)).unwrap().trim().to_owned()
    }

    /// What a page is asked for, and what logs in there.
    fn login(&self, page: &str) -> (&'static str, Vec<String>) {
        let basic = |user: &str, secret: &str| vec!["-u".to_owned(), format!("{user}:{}", self.secret(secret))];
        match page {
            "dashboard" => ("/api/version", Vec::new()),
            "grafana" => ("/api/search", basic("admin", "grafana_password")),
            "prometheus" => ("/api/v1/targets", basic("gpucl", "prometheus_password")),
            "mlflow" => ("/api/2.0/mlflow/experiments/search?max_results=1", basic("gpucl", "mlflow_password")),
            "jupyter" => {
                let token = format!("Authorization: token {}", self.secret("jupyter_token"));
                ("/api/contents", vec!["-H".to_owned(), token])
            }
            "object-store" => {
                let (user, password) = (self.secret("object_store_user"), self.secret("object_store_password"));
                let login = format!(r#"{{"accessKey":"{user}","secretKey":"{password}"}}"#);
                let json = "Content-Type: application/json".to_owned();
                ("/api/v1/login", vec!["-H".to_owned(), json, "-d".to_owned(), login])
            }
            other => panic!("an unknown page: {other}"),
        }
    }

    fn close(mut self) {
        crate::support::interrupt(&self.child);
        let begin = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(begin.elapsed() < Duration::from_secs(10), "it does not end by Ctrl-C");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The status that curl is answered with; 0 where nobody answers.
fn curl(arguments: &[String]) -> u16 {
    let output = std::process::Command::new("curl")
        .args(["-s", "-o", "/dev/null", "-m", "20", "-w", "%{http_code}"])
        .args(arguments)
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or_default()
}
