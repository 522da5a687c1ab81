use std::os::unix::fs::symlink;

use super::*;
use crate::spec::any_provider::find;
use crate::spec::parse;

/// A home with a project in it.
struct Bench {
    root: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let bench = Self { root: tempfile::tempdir().unwrap() };
        for name in [
            ".netrc",
            ".ssh/id",
            "Downloads/more.txt",
            "mine/code/a.py",
            "mine/.hidden/x",
            "mine/.env",
            "Öffentlich/x",
            "dropbox/x",
            "Downloads/clone/x",
        ] {
            let path = bench.root.path().join(name);
            fs_err::create_dir_all(path.parent().unwrap()).unwrap();
            fs_err::write(path, "x").unwrap();
        }
        let dirs = "# by xdg-user-dirs-update\nXDG_PUBLICSHARE_DIR=\"$HOME/Öffentlich\"\n";
        fs_err::create_dir(bench.root.path().join(".config")).unwrap();
        fs_err::write(bench.root.path().join(".config/user-dirs.dirs"), dirs).unwrap();
        symlink("..", bench.root.path().join("mine/up")).unwrap();
        // On another disk.
        fs_err::create_dir(bench.root.path().join("disk")).unwrap();
        fs_err::write(bench.root.path().join("disk/taxes"), "x").unwrap();
        symlink("disk", bench.root.path().join("Documents")).unwrap();
        bench
    }

    /// What a spec in this folder of the home asks for.
    fn asks(&self, folder: &str, spec: &str, allowed: &[PathBuf]) -> Vec<Ask> {
        let loaded = parse("cluster.yaml", &format!("name: x\n{spec}\n"), &find).unwrap();
        let folder = self.root.path().join(folder);
        asks(&loaded, Home { home: self.root.path(), folder: &folder, allowed }, &find).unwrap()
    }

    fn places(&self, folder: &str, spec: &str) -> Vec<(Class, String)> {
        self.asks(folder, spec, &[]).into_iter().map(|ask| (ask.class, ask.place)).collect()
    }
}

#[test]
fn an_ordinary_spec_asks_nothing() {
    let bench = Bench::new();
    for spec in [
        "",
        "provider: ssh\nruntime: docker\nhosts: [gpu1]\nray: {workers: {per: gpu}}\nmounts: [{volume: m, at: /m}]",
        "provider: ssh\nhosts: [gpu1]\nsetup: {pip: [torch], commands: [make]}\ndata: [{name: d, from: {command: x}, check: y}]",
        "environment: {NCCL_DEBUG: INFO, HF_HUB_OFFLINE: '1'}\nfiles: [{path: code, to: code}]\noutputs: [x]\nask_above: 1",
        "services: {object_store: {buckets: [ray, more]}}",
    ] {
        assert_eq!(bench.places("mine", spec), [], "{spec}");
    }
}

#[test]
fn files_of_the_home_are_named_before_they_are_sent() {
    let bench = Bench::new();
    let sent = |folder: &str, path: &str| bench.places(folder, &format!("files: [{{path: '{path}', to: a}}]")).len();
    for (folder, path) in [
        ("", "."),
        ("", ".netrc"),
        ("", ".ssh"),
        ("", "mine/../.ssh/id"),
        ("", "Downloads"),
        ("Downloads", "."),
        ("mine", "up"),
        ("mine", "../.netrc"),
        ("mine", ".."),
        ("mine", ".hidden"),
        ("mine", ".hidden/x"),
        ("mine", ".env"),
        // A spec that was saved among other things.
        ("", "mine"),
        ("", "mine/code/a.py"),
        ("Downloads", "more.txt"),
        ("Öffentlich", "."),
        ("dropbox", "."),
        ("Documents", "."),
        ("Documents", "taxes"),
    ] {
        assert_eq!(sent(folder, path), 1, "{folder}: {path}");
    }
    for (folder, path) in [("mine", "."), ("mine", "code"), ("Downloads/clone", ".")] {
        assert_eq!(sent(folder, path), 0, "{folder}: {path}");
    }
    let allowed = [bench.root.path().join(".ssh")];
    assert_eq!(bench.asks("", "files: [{path: .ssh, to: a}]", &allowed), []);
}

#[test]
fn programs_on_the_readers_own_machine_are_named() {
    let bench = Bench::new();
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    for host in [
        "localhost",
        "127.0.0.1",
        "'127.1'",
        "'0.0.0.0'",
        "'0x7f000001'",
        "'2130706433'",
        "'0177.0.0.1'",
        "{node: '::1'}",
        "{node: '0:0:0:0:0:0:0:1'}",
        "{node: '::ffff:127.0.0.1'}",
        "{node: LOCALHOST.}",
        own.as_str(),
    ] {
        let spec = format!("provider: ssh\nhosts: [{host}]\nsetup: {{pip: [a], commands: [b]}}");
        assert_eq!(bench.places("mine", &spec), [(Class::Runs, "setup".to_owned())], "{host}");
    }
    // And by each address of its own.
    let table = fs_err::read_to_string("/proc/net/fib_trie").unwrap();
    let lines: Vec<&str> = table.lines().collect();
    let local = lines.windows(2).filter(|pair| pair[1].contains("/32 host LOCAL"));
    for address in local.filter_map(|pair| pair[0].rsplit(' ').next()) {
        let spec = format!("provider: ssh\nhosts: ['{address}']\nsetup: {{pip: [a]}}");
        assert_eq!(bench.places("mine", &spec), [(Class::Runs, "setup.pip".to_owned())], "{address}");
    }
    assert_eq!(bench.places("mine", "provider: ssh\nhosts: ['203.0.113.7']\nsetup: {pip: [a]}"), []);
    let here = |spec: &str| bench.places("mine", &format!("provider: ssh\nhosts: [localhost]\n{spec}")).len();
    for name in
        ["LD_PRELOAD", "ld_preload", "PYTHONPATH", "PYTHONSTARTUP", "BASH_ENV", "NCCL_NET_PLUGIN", "HF_ENDPOINT"]
    {
        assert_eq!(here(&format!("environment: {{{name}: x}}")), 1, "{name}");
    }
    assert_eq!(here("environment: {NCCL_DEBUG: INFO}"), 0);
    assert_eq!(here("data: [{name: d, from: {command: x}, check: y}, {name: e, from: {command: z}, check: y}]"), 2);
    assert_eq!(here("playbooks: {ray-native: {ray_version: '1'}}"), 1);
}

#[test]
fn servers_and_privileges_are_named() {
    let bench = Bench::new();
    let docker = "provider: ssh\nruntime: docker\nhosts: [h]\n";
    for (spec, class, place) in [
        ("files: [{git: 'ssh://git@example.org/a.git', to: a}]".to_owned(), Class::Server, "files[0].git"),
        (format!("{docker}ray: {{capabilities: [SYS_ADMIN]}}"), Class::Privilege, "ray.capabilities"),
        (
            format!("{docker}services: {{jupyter: {{workspace: /root}}}}"),
            Class::Privilege,
            "services.jupyter.workspace",
        ),
        (
            format!("{docker}services: {{grafana: {{capabilities: [CHOWN]}}}}"),
            Class::Privilege,
            "services.grafana.capabilities",
        ),
        (
            "services: {object_store: {external: {endpoint: 'https://s', credentials_file: k}}}".to_owned(),
            Class::Sends,
            "services.object_store.external",
        ),
        (
            "services: {mlflow: {external: {uri: 'https://m', credentials_file: k}}}".to_owned(),
            Class::Sends,
            "services.mlflow.external",
        ),
        ("serve: [{import_path: 'a:b', secrets: [HF_TOKEN]}]".to_owned(), Class::Sends, "serve[0].secrets"),
        ("services: {mlflow: {external: {uri: 'https://m'}}}".to_owned(), Class::Sends, "services.mlflow.external"),
    ] {
        assert_eq!(bench.places("mine", &spec), [(class, place.to_owned())], "{spec}");
    }
    assert_eq!(bench.places("mine", &format!("{docker}services: {{jupyter: {{workspace: /srv/work}}}}")), []);
}

#[test]
fn an_answer_holds_for_the_same_list_in_any_order_and_for_no_other() {
    let bench = Bench::new();
    let digest =
        |spec: &str| digest_of(&bench.asks("mine", &format!("provider: ssh\nhosts: [localhost]\n{spec}"), &[]));
    let one = "{name: a, from: {command: x}, check: y}";
    let two = "{name: b, from: {command: z}, check: y}";
    let both = digest(&format!("data: [{one}, {two}]"));
    assert_eq!(both, digest(&format!("data: [{two}, {one}]")));
    for other in [
        format!("data: [{one}]"),
        format!("data: [{one}, {two}]\nenvironment: {{LD_PRELOAD: x}}"),
        format!("data: [{one}, {}]", two.replace("z", "zz")),
        format!("data: [{one}, {}]", two.replace("check: y", "check: yy")),
    ] {
        assert_ne!(both, digest(&other), "{other}");
    }
}

#[test]
fn what_is_shown_is_one_line_and_hides_nothing() {
    let long = format!("a\n\u{1b}[2K\u{200b}\u{202e}{}; hidden", "x".repeat(9000));
    let ask = Ask::new(Class::Runs, "setup", &long, false, &long);
    assert!(!ask.what.contains(['\n', '\u{1b}', '\u{200b}', '\u{202e}']), "{}", ask.what);
    assert!(ask.what.contains(&"x".repeat(9000)) && ask.what.ends_with("; hidden"), "{}", ask.what);
    assert_ne!(ask.digest, Ask::new(Class::Runs, "setup", &long, false, &format!("{long}y")).digest);
}

#[test]
fn folders_that_outlive_a_cluster_are_ordinary_unless_they_hold_settings() {
    let rule = |folder: &str| super::rules::saved_to("to", &Value::String(folder.to_owned())).is_some();
    for folder in [
        "~/.ssh",
        "~",
        "~/",
        "/home/ada",
        "/home/ada/",
        "/users/me",
        "/u/me",
        "/home/group/me",
        "/home1/1/me",
        "~/x/.config/y",
        "~/bin",
        "/etc/cron.d",
        "/var/home/me",
        "/",
    ] {
        assert!(rule(folder), "{folder}");
    }
    for folder in ["~/results", "/scratch/ada", "/project/lab/ada", "/home/ada/a/results", "node"] {
        assert!(!rule(folder), "{folder}");
    }
}

#[test]
fn compose_files_are_judged_where_the_hosts_outlive_the_cluster() {
    let bench = Bench::new();
    let mut loaded = parse("cluster.yaml", "name: x\nprovider: ssh\nruntime: docker\nhosts: [h]\n", &find).unwrap();
    let fragment = |text: &str| crate::spec::Fragment { path: "more.yaml".to_owned(), text: text.to_owned() };
    let privileged = "services: {mine: {image: 'x:1', privileged: true}}";
    loaded.spec.compose =
        vec![fragment("services: {mlflow: {image: 'x:1'}}"), fragment(privileged), fragment("services: [")];
    let places = |folder: &Path| -> Vec<String> {
        let asked = asks(&loaded, Home { home: bench.root.path(), folder, allowed: &[] }, &find).unwrap();
        asked.into_iter().map(|ask| ask.place).collect()
    };
    // One that cannot be understood any more is not passed.
    let beyond = ["more.yaml, services.mine.privileged", "more.yaml, "];
    assert_eq!(places(&bench.root.path().join("mine")), beyond);
    // In a folder of many things the file itself is asked about.
    assert_eq!(places(&bench.root.path().join("Downloads"))[2..], ["compose"; 3]);
}
