//! Logging in as `ccauth` does: its refresh token, its clouds.yaml, and the page on which a code is confirmed. The
//! identity provider is a stand-in that replaces each refresh token, and ends a login whose token is used twice.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use gpucl::sandbox::chameleon::{Config, IssuerConfig, Sandbox, User};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::site::spec_into;
use crate::support::TestEnv;

/// What `ccauth clouds-yaml` writes, with the addresses of the stand-in.
const CLOUDS: &str = "clouds:
  chameleon:
    auth_type: v3chameleonoidc
    auth:
      auth_url: AUTH_URL
      identity_provider: chameleon
      protocol: openid
      client_id: chi-cli-device-token
      discovery_endpoint: DISCOVERY
      project_id: PROJECT
    region_name: CHI@UC
";

/// Runs a program at a terminal of its own.
const TERMINAL: &str = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";

struct Lab {
    env: TestEnv,
    sandbox: Sandbox,
    _runtime: Runtime,
}

impl Lab {
    /// A user with a clouds.yaml, and without a login.
    fn new(issuer: IssuerConfig) -> Self {
        Self::of(Config { issuer, ..Config::default() })
    }

    fn of(config: Config) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let sandbox = runtime.block_on(Sandbox::start(config)).unwrap();
        let mut env = TestEnv::new();
        env.set("GPUCL_KEYRING", "off");
        let lab = Self { env, sandbox, _runtime: runtime };
        lab.clouds(&lab.sandbox.discovery_endpoint());
        lab
    }

    fn clouds(&self, discovery: &str) {
        let folder = self.env.home().join(".config/openstack");
        std::fs::create_dir_all(&folder).unwrap();
        let text = CLOUDS
            .replace("AUTH_URL", &self.sandbox.auth_url())
            .replace("DISCOVERY", discovery)
            .replace("PROJECT", &self.sandbox.credentials(User::Alice).project_id);
        std::fs::write(folder.join("clouds.yaml"), text).unwrap();
    }

    /// The file of `ccauth`.
    fn kept(&self) -> PathBuf {
        self.env.home().join(".cache/ccauth/refresh_token.json")
    }

    /// As after `ccauth`: its cache has a refresh token.
    fn with_ccauth(self) -> Self {
        self.keep(&json!({"refresh_token": self.sandbox.refresh_token(User::Alice), "cached_at": 1.5}).to_string());
        self
    }

    fn keep(&self, text: &str) {
        std::fs::create_dir_all(self.kept().parent().unwrap()).unwrap();
        std::fs::write(self.kept(), text).unwrap();
        std::fs::set_permissions(self.kept(), PermissionsExt::from_mode(0o600)).unwrap();
    }

    fn token(&self) -> String {
        let value: Value = serde_json::from_str(&std::fs::read_to_string(self.kept()).unwrap()).unwrap();
        value["refresh_token"].as_str().unwrap().to_owned()
    }

    /// Starts the program at a terminal.
    fn at_terminal(&self, arguments: &[&str]) -> Child {
        let plain = self.env.command(arguments);
        let mut command = Command::new("python3");
        command.args(["-c", TERMINAL]).arg(plain.get_program()).args(plain.get_args()).env_clear();
        for (name, value) in plain.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        command.current_dir(plain.get_current_dir().unwrap());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
}

#[test]
fn ccauths_login_is_used_renewed_and_kept_as_it_was() {
    let lab = Lab::new(IssuerConfig::default()).with_ccauth();
    let first = lab.token();
    lab.env.run(&["offers", "--provider", "chameleon"]).exits(0).prints("liqid01");
    let second = lab.token();
    assert_ne!(first, second, "the new one is stored");
    assert_eq!(std::fs::metadata(lab.kept()).unwrap().permissions().mode() & 0o777, 0o600);
    lab.env.run(&["calendar", "--provider", "chameleon"]).exits(0).prints("liqid01");
    assert_eq!(lab.sandbox.log_outs(), 0);

    // The variables of its openrc say the same.
    std::fs::remove_file(lab.env.home().join(".config/openstack/clouds.yaml")).unwrap();
    let mut lab = lab;
    let project = lab.sandbox.credentials(User::Alice).project_id;
    let (auth_url, discovery) = (lab.sandbox.auth_url(), lab.sandbox.discovery_endpoint());
    for (name, value) in [
        ("OS_AUTH_TYPE", "v3chameleonoidc"),
        ("OS_AUTH_URL", &auth_url),
        ("OS_IDENTITY_PROVIDER", "chameleon"),
        ("OS_PROTOCOL", "openid"),
        ("OS_PROJECT_ID", &project),
        ("OS_CLIENT_ID", "chi-cli-device-token"),
        ("OS_DISCOVERY_ENDPOINT", &discovery),
        ("OS_REGION_NAME", "CHI@UC"),
    ] {
        lab.env.set(name, value);
    }
    lab.env.run(&["lease", "list"]).exits(0);

    // Its cache may lie somewhere else.
    let folder = lab.env.home().join("kept");
    std::fs::rename(lab.kept().parent().unwrap(), &folder).unwrap();
    lab.env.set("CC_LOGIN_STATE", "~/kept");
    lab.env.run(&["lease", "list"]).exits(0);
    assert_eq!(lab.sandbox.log_outs(), 0);
}

#[test]
fn programs_that_renew_at_once_never_log_each_other_out() {
    renewals(4, 5);
}

#[test]
#[ignore = "by hand: just login-rounds"]
fn two_programs_renew_at_once_a_hundred_times() {
    renewals(100, 2);
}

fn renewals(rounds: usize, at_once: usize) {
    let lab = Lab::new(IssuerConfig::default()).with_ccauth();
    for _ in 0..rounds {
        let start =
            |_| lab.env.command(&["lease", "list"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let running: Vec<Child> = (0..at_once).map(start).collect();
        for child in running {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
    println!("{rounds} rounds of {at_once}: {} log-outs", lab.sandbox.log_outs());
    assert_eq!(lab.sandbox.log_outs(), 0);
}

#[test]
fn a_login_that_cannot_be_used_says_why_and_stays_as_it_is() {
    let lab = Lab::new(IssuerConfig::default());
    let list = ["lease", "list"];
    lab.env.run(&list).exits(1).says("nobody is logged in").says("hint: gpucl login chameleon");
    assert_eq!(lab.sandbox.codes(), [""; 0], "without a terminal no code is asked for");

    let lab = lab.with_ccauth();
    let token = lab.token();
    lab.sandbox.end_logins();
    lab.env.run(&list).exits(1).says("the login in").says("has ended").says("hint: gpucl login chameleon");
    assert_eq!(lab.token(), token);

    for damaged in ["", "{\"refresh_tok", "{\"refresh_token\": 3}"] {
        lab.keep(damaged);
        lab.env.run(&list).exits(2).says("refresh_token.json is damaged");
        assert_eq!(std::fs::read_to_string(lab.kept()).unwrap(), damaged);
    }
    // A token that could not be replaced is not sent.
    let lab = lab.with_ccauth();
    let folder = lab.kept().parent().unwrap().to_owned();
    if rustix::process::geteuid().is_root() {
        // For root every folder can be written to.
        std::os::unix::fs::chown(lab.kept(), Some(4711), None).unwrap();
        lab.env.run(&list).exits(2).says("belongs to another user");
    } else {
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o500)).unwrap();
        lab.env.run(&list).exits(2).says("cannot be written to, and a new refresh token would be lost");
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).unwrap();
        lab.env.run(&list).exits(0);
    }
}

#[test]
fn a_refresh_token_goes_to_its_issuer_only() {
    let lab = Lab::new(IssuerConfig::default()).with_ccauth();
    let other = Lab::new(IssuerConfig::default());
    // A cloud of somebody else names an issuer of theirs.
    lab.clouds(&other.sandbox.discovery_endpoint());
    let token = lab.token();
    lab.env.run(&["lease", "list"]).exits(1).says("the login in").says("and would be sent to");
    assert_eq!(lab.token(), token);
    // A document that was replaced by another issuer's.
    let discovery = lab.sandbox.discovery_endpoint();
    lab.clouds(&discovery.replace("127.0.0.1", "localhost"));
    lab.env.run(&["lease", "list"]).exits(1).says("is of another issuer");
    lab.clouds(&discovery.replace("http://127.0.0.1", "http://192.0.2.1"));
    lab.env.run(&["lease", "list"]).exits(1).says("by https only");
    lab.clouds(&discovery);
    lab.env.run(&["lease", "list"]).exits(0);
}

#[test]
fn a_login_ends_in_a_credential_that_lasts() {
    let lab = Lab::new(IssuerConfig::default()).with_ccauth();
    let before = lab.sandbox.application_credentials(User::Alice).len();
    let made = || lab.sandbox.application_credentials(User::Alice).len() - before;
    let logged_in = lab.env.run(&["login", "chameleon"]).exits(0);
    assert!(logged_in.stdout.starts_with("logged in to CHI@UC\n  you are alice in CHI-TEST"), "{}", logged_in.stdout);
    assert_eq!(made(), 1);
    // It stands for itself: neither the cloud nor the refresh token is used now.
    lab.sandbox.end_logins();
    lab.env.run(&["lease", "list", "--site", "CHI@UC"]).exits(0);
    std::fs::remove_file(lab.env.home().join(".config/openstack/clouds.yaml")).unwrap();
    lab.env.run(&["lease", "list"]).exits(0);

    // A second login makes no second one; a credential that is gone is replaced.
    lab.clouds(&lab.sandbox.discovery_endpoint());
    let lab = lab.with_ccauth();
    let made = || lab.sandbox.application_credentials(User::Alice).len() - before;
    lab.env.run(&["login", "chameleon"]).exits(0).prints("of an earlier login still works, and is kept");
    assert_eq!(made(), 1);

    // Nothing of it is left by a logout.
    lab.env.run(&["logout", "chameleon"]).exits(0).prints("in CHI-TEST, and its credential there");
    assert_eq!(made(), 0);
    lab.env.run(&["logout", "chameleon"]).exits(6);
    lab.env.run(&["login", "chameleon"]).exits(0);
    lab.env.run(&["logout", "chameleon", "--keep-credential"]).exits(0).prints("is still valid there");
    assert_eq!(made(), 1);
}

#[test]
fn one_login_is_taken_at_all_sites_and_each_refusal_is_named() {
    let lab = Lab::new(IssuerConfig::default()).with_ccauth();
    let other = Lab::of(Config { region: "CHI@TACC".to_owned(), ..Config::default() });
    let clouds = lab.env.home().join(".config/openstack/clouds.yaml");
    let uc = std::fs::read_to_string(&clouds).unwrap();
    // One issuer for all; each site has its own Keystone, and project ids of its own.
    let tacc = uc.replace(&lab.sandbox.auth_url(), &other.sandbox.auth_url()).replace("CHI@UC", "CHI@TACC");
    let ncar = uc.replace(&lab.sandbox.auth_url(), "http://127.0.0.1:1/identity/v3").replace("CHI@UC", "CHI@NCAR");
    let nu = uc.replace(&lab.sandbox.credentials(User::Alice).project_id, "0123").replace("CHI@UC", "CHI@NU");
    let entry = |name: &str, text: &str| text.replace("clouds:\n", "").replace("chameleon:\n", &format!("{name}:\n"));
    let several = [("tacc", &tacc), ("ncar", &ncar), ("nu", &nu)].map(|(name, text)| entry(name, text)).join("");
    std::fs::write(&clouds, format!("{uc}{several}")).unwrap();
    let done = lab.env.run(&["login", "chameleon"]).exits(0);
    let done = done.prints("logged in to CHI@UC").prints("logged in to CHI@TACC");
    let done = done.prints("not logged in to CHI@NCAR: ").prints("not logged in to CHI@NU: ");
    assert!(done.stdout.matches("stored in").count() == 2, "{}", done.stdout);
    assert_eq!(lab.sandbox.log_outs() + other.sandbox.log_outs(), 0);
    let lines = lab.env.run(&["login", "chameleon", "--output", "json"]).exits(0).json();
    let types: Vec<&str> = lines.iter().filter_map(|line| line["type"].as_str()).collect();
    assert_eq!(types, ["login", "login", "login_refused", "login_refused"]);
    lab.env.run(&["logout", "chameleon"]).exits(0).prints("at CHI@UC").prints("at CHI@TACC");
}

#[test]
fn a_code_is_confirmed_on_a_page_that_is_shown_at_a_terminal_only() {
    let lab = Lab::new(IssuerConfig::default());
    let arguments = ["login", "chameleon"];
    // Not in a script, and not with JSON.
    lab.env.run(&["login", "chameleon", "--site", "CHI@UC"]).exits(2).says("there is no terminal to ask at");
    let mut child = lab.at_terminal(&[&arguments[..], &["--output", "json"]].concat());
    let mut said = Vec::new();
    while !String::from_utf8_lossy(&said).contains("which site?") {
        let mut byte = [0];
        assert_eq!(child.stdout.as_mut().unwrap().read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&said));
        said.push(byte[0]);
    }
    // It ends with its terminal.
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(lab.sandbox.codes(), [""; 0]);

    let (mut child, code, lines) = begun(&lab, &arguments);
    assert!(lab.sandbox.confirm(&code, User::Alice));
    let rest: Vec<String> = lines.map(|line| line.unwrap()).collect();
    assert!(child.wait().unwrap().success(), "{rest:?}");
    assert!(rest.iter().any(|line| line.starts_with("logged in to CHI@UC")), "{rest:?}");
    assert_eq!(std::fs::metadata(lab.kept()).unwrap().permissions().mode() & 0o777, 0o600);
    // `ccauth` is logged in as well.
    let output = lab.env.command(&["lease", "list"]).env("OS_CLOUD", "chameleon").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    // Refused on the page; not confirmed in time.
    std::fs::remove_file(lab.kept()).unwrap();
    let (mut child, code, lines) = begun(&lab, &arguments);
    assert!(lab.sandbox.refuse(&code));
    let rest: Vec<String> = lines.map(|line| line.unwrap()).collect();
    assert!(
        !child.wait().unwrap().success() && rest.iter().any(|line| line.contains("refused on the page")),
        "{rest:?}"
    );
    let short = Lab::new(IssuerConfig { code_life: std::time::Duration::from_secs(2), ..IssuerConfig::default() });
    let (mut child, _, lines) = begun(&short, &arguments);
    let rest: Vec<String> = lines.map(|line| line.unwrap()).collect();
    assert!(!child.wait().unwrap().success());
    assert!(rest.iter().any(|line| line.contains("nobody confirmed the code within 2 s")), "{rest:?}");
    assert!(!short.kept().exists());
}

/// A login at a terminal that waits for its code.
fn begun(lab: &Lab, arguments: &[&str]) -> (Child, String, impl Iterator<Item = std::io::Result<String>>) {
    let mut child = lab.at_terminal(arguments);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let code = lines.by_ref().map(|line| line.unwrap()).find_map(|line| {
        let code = line.split("confirm the code ").nth(1)?.split(' ').next()?;
        Some(code.to_owned())
    });
    (child, code.unwrap(), lines)
}

/// Only the file of `ccauth` and the stored login have secrets; the stand-in's clock is an hour ahead meanwhile.
#[test]
fn no_secret_of_a_login_is_beyond_its_place() {
    let config = Config { clock_offset: jiff::SignedDuration::from_hours(1), ..Config::default() };
    let lab = Lab::of(config).with_ccauth();
    let mut secrets = vec![lab.token()];
    let mut said = String::new();
    let commands: [&[&str]; 4] = [
        &["offers", "--provider", "chameleon"],
        &["login", "chameleon"],
        &["lease", "--node", "liqid01", "--hours", "3", "--yes", "--cloud", "chameleon"],
        &["lease", "list", "--output", "json", "--cloud", "chameleon"],
    ];
    for arguments in commands {
        let outcome = lab.env.run(arguments).exits(0);
        said.push_str(&outcome.stdout);
        said.push_str(&outcome.stderr);
        secrets.push(lab.token());
    }
    secrets.extend(lab.sandbox.access_tokens_given());
    let stored = lab.env.home().join(".config/gpucl/credentials.yaml");
    let text = std::fs::read_to_string(&stored).unwrap();
    let secret = text.split("\"secret\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    assert!(secrets.len() >= 6 && secret.len() > 20, "{secrets:?}");
    for secret in secrets.iter().map(String::as_str).chain([secret]) {
        assert!(!said.contains(secret), "{said}");
        let found = files_with(lab.env.root(), secret.as_bytes());
        assert!(found.iter().all(|file| *file == lab.kept() || *file == stored), "{found:?}");
    }
}

fn files_with(folder: &Path, text: &[u8]) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    let found = entries.flat_map(|entry| match entry.file_type().unwrap() {
        kind if kind.is_dir() => files_with(&entry.path(), text),
        kind if kind.is_file() => {
            let bytes = std::fs::read(entry.path()).unwrap();
            bytes.windows(text.len()).any(|part| part == text).then(|| entry.path()).into_iter().collect()
        }
        _ => Vec::new(),
    });
    found.collect()
}

#[test]
fn a_credential_with_an_end_says_what_it_cannot_do() {
    // As `cc-login` makes them, for 24 hours.
    let lab = Lab::new(IssuerConfig::default());
    let id = lab.sandbox.credentials(User::Alice);
    assert!(lab.sandbox.ends_at(&id.id, jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24)));
    let mut command = lab.env.command(&[
        "login",
        "chameleon",
        "--site",
        "CHI@UC",
        "--url",
        &lab.sandbox.auth_url(),
        "--credential-id",
        &id.id,
        "--secret-stdin",
    ]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), id.secret.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("the application credential ends at") && said.contains("no deadline kept"), "{said}");
    // A lease that it outlives needs no word, one that is longer does.
    let lease = |hours: &str| ["lease", "--node", "liqid01", "--hours", hours, "--dry-run"].map(str::to_owned);
    let said = |hours: &str| {
        let arguments = lease(hours);
        let outcome = lab.env.run(&arguments.each_ref().map(String::as_str)).exits(0);
        format!("{}{}", outcome.stdout, outcome.stderr).contains("the application credential ends at")
    };
    assert!(!said("3") && said("30"));
}

/// What `ccauth clouds-yaml --all-projects` writes: a cloud for each project, which knows it by its id alone.
#[test]
fn of_several_projects_at_one_site_one_is_chosen_for_every_command() {
    let more_projects = vec![("CHI-EXTRA".to_owned(), "reader".to_owned())];
    let mut lab = Lab::of(Config { more_projects, ..Config::default() }).with_ccauth();
    let path = lab.env.home().join(".config/openstack/clouds.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    let entry = text.strip_prefix("clouds:\n").unwrap().to_owned();
    let project = lab.sandbox.credentials(User::Alice).project_id;
    let entry = |name: &str, id: &str| entry.replace("  chameleon:", &format!("  {name}:")).replace(&project, id);
    // The other's id is of no meaning here: Keystone says which projects there are.
    let clouds =
        format!("clouds:\n{}{}", entry("uc_CHI-TEST", &project), entry("uc_CHI-EXTRA", "0".repeat(32).as_str()));
    std::fs::write(&path, clouds).unwrap();

    let commands: [&[&str]; 7] = [
        &["offers", "--provider", "chameleon"],
        &["calendar"],
        &["lease", "list"],
        &["lease", "--node", "liqid01", "--hours", "1", "--dry-run"],
        &["gc", "--provider", "chameleon"],
        &["doctor", "--provider", "chameleon"],
        &["login", "chameleon"],
    ];
    let choose = "valid for several projects: CHI-EXTRA (reader), CHI-TEST (reader, member)";
    for words in commands {
        let outcome = lab.env.run(words);
        let said = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(outcome.code != Some(0) && said.contains(choose), "{words:?}: {said}");
        assert!(said.contains("--project NAME"), "{words:?}: {said}");
        lab.env.run(&[words, &["--project", "chi-test"]].concat()).exits(0);
    }
    // The login that was stored is for one project, so there is nothing to choose.
    lab.env.run(&["logout", "chameleon"]).exits(0);
    let unknown = lab.env.run(&["lease", "list", "--project", "CHI-9"]).exits(2);
    let _ = unknown.says("you are not in a project CHI-9; your projects are CHI-EXTRA (reader), CHI-TEST (");
    let spec = |project: &str| spec_into(&lab.env, "liqid01", project, "");
    let _ = lab.env.run(&["plan", &spec("")]).says(choose);
    let _ = lab.env.run(&["plan", &spec("project: CHI-TEST")]).exits(0);
    let open = spec("");
    lab.env.set("OS_PROJECT_NAME", "CHI-TEST");
    let _ = lab.env.run(&["plan", &open]).exits(0);
    for words in &commands[..6] {
        lab.env.run(words).exits(0);
    }
}
