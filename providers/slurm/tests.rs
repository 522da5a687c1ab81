//! Tests of the settings and the batch script; `tests/slurm.rs` tests the provider on a real Slurm.

use serde_json::json;

use super::*;
use crate::host::SshTarget as Target;
use crate::spec::check_settings;

fn directives(settings: Value, nodes: usize) -> Vec<String> {
    assert_eq!(check_settings(&FACTORY, &settings, &[]), [], "{settings}");
    let scope = Scope { owner: "abcd1234".parse().unwrap(), cluster: "demo".parse().unwrap() };
    job::directives(&config::read(&settings).unwrap(), &scope, nodes, "@home@/x").unwrap()
}

#[test]
fn the_options_of_sbatch_are_those_of_the_spec() {
    let settings = json!({
        "host": "site", "account": "def-me", "partition": "gpu", "qos": "high", "constraint": "a100&nvlink", "exclusive": true,
        "reservation": "class", "hours": 1.5, "gpus": "a100:2", "cpus": 6, "memory": "32GiB", "sbatch": ["--mail-type=END"],
    });
    assert_eq!(
        directives(settings, 2),
        [
            "--job-name=gpucl-abcd1234-demo-job",
            "--comment=gpucl-abcd1234-demo-job",
            "--nodes=2",
            "--ntasks-per-node=1",
            "--time=90",
            "--output=@home@/x/job.log",
            "--open-mode=append",
            "--account=def-me",
            "--partition=gpu",
            "--qos=high",
            "--constraint=a100&nvlink",
            "--reservation=class",
            "--exclusive",
            "--cpus-per-task=6",
            "--mem=32768M",
            "--gpus-per-node=a100:2",
            "--no-requeue",
            "--mail-type=END",
        ]
    );
    let has = |settings: Value, option: &str| directives(settings, 1).iter().any(|line| line == option);
    assert!(has(json!({"host": "site", "gpus": 2, "gpu_option": "gres"}), "--gres=gpu:2"));
    assert!(has(json!({"host": "site", "gpus": "v100", "gpu_option": "gpus-per-task"}), "--gpus-per-task=v100:1"));
    assert!(has(json!({"host": "site", "memory": "all"}), "--mem=0"));
    // Slurm counts in minutes, and 0 would be no limit.
    assert!(has(json!({"host": "site", "hours": 0.01}), "--time=1"));
    assert!(!has(json!({"host": "site", "sbatch": ["--requeue"]}), "--no-requeue"));
}

/// A host that is rented is not given back to correct how it is reached.
#[test]
fn nodes_are_reached_through_the_login_machine_of_the_settings() {
    let opened = |settings: Value| {
        let (events, _inbox) = crate::event::Bus::new();
        let folder = || std::path::PathBuf::from("/nowhere");
        let context = Context {
            data_dir: folder(),
            cache_dir: folder(),
            runtime_dir: folder(),
            clusters_dir: folder(),
            user_environment: crate::provider::UserEnvironment::default(),
            events,
        };
        FACTORY.open(&settings, &context).unwrap()
    };
    let recorded = |host_key: &str| {
        let login = Target {
            node: "site".into(),
            user: Some("ada".into()),
            host_key: Some(host_key.into()),
            ..Target::default()
        };
        let relay = crate::host::Relay { login: Some(Box::new(login)), command: vec!["sh".into()] };
        let target =
            Target { node: "n1".into(), user: Some("ada".into()), relay: Some(Box::new(relay)), ..Target::default() };
        HostPlace::Ssh { target, site: Box::default() }
    };
    let login = |settings: Value| {
        let HostPlace::Ssh { target, .. } = opened(settings).reached(recorded("ssh-ed25519 AAAA")) else {
            unreachable!()
        };
        assert_eq!((target.node.as_str(), target.user.as_deref()), ("n1", Some("ada")));
        *target.relay.unwrap().login.unwrap()
    };
    let now = login(json!({"host": "site", "user": "bob", "port": 2222, "identity_file": "~/.ssh/site"}));
    assert_eq!((now.user.as_deref(), now.port), (Some("bob"), Some(2222)));
    assert_eq!(now.identity_file.as_deref(), Some(std::path::Path::new("~/.ssh/site")));
    assert_eq!(now.host_key.as_deref(), Some("ssh-ed25519 AAAA"), "the key that was seen is still its");
    assert_eq!(login(json!({"host": "site2"})).host_key, None, "another machine has another key");
}

#[test]
fn every_mistake_names_its_key() {
    for (settings, path, message) in [
        (json!({}), "host", "is missing"),
        (json!({"host": "-oProxyCommand=x"}), "host", "is not the name of a host"),
        (json!({"host": "site", "accont": "x"}), "accont", "unknown key"),
        (json!({"host": "site", "account": "a b"}), "account", "not one word"),
        (json!({"host": "site", "partition": "gpu\n#SBATCH --uid=0"}), "partition", "not one word"),
        (json!({"host": "site", "gpus": 0}), "gpus", "not a number of GPUs"),
        (json!({"host": "site", "gpus": "a100:two:3"}), "gpus", "not a number of GPUs"),
        (json!({"host": "site", "hours": 0}), "hours", "out of range: 0.01 to 720"),
        (json!({"host": "site", "memory": "32"}), "memory", "not an amount"),
        (json!({"host": "site", "modules": ["a; rm"]}), "modules[0]", "not the name of a module"),
        (json!({"host": "site", "packages": "wheels"}), "packages", "absolute path"),
        (json!({"host": "site", "environment": "/a/../b"}), "environment", "absolute path"),
        (json!({"host": "site", "save": [{}]}), "save", "every cluster has it now: `end: {save: "),
        (json!({"host": "site", "warning": "2m"}), "warning", "every cluster has it now: `end: {warning: 5m}`"),
        (json!({"host": "site", "sbatch": ["mail"]}), "sbatch[0]", "not one option"),
        (json!({"host": "site", "sbatch": ["--time=5"]}), "sbatch[0]", "use `hours`"),
        (json!({"host": "site", "sbatch": ["--job-nam=zz"]}), "sbatch[0]", "may stand for `--job-name`"),
        (json!({"host": "site", "sbatch": ["--mail-type=END -Jzz"]}), "sbatch[0]", "not one option"),
        (json!({"host": "site", "sbatch": ["--\"output\"=/home/ada/.bashrc"]}), "sbatch[0]", "not one option"),
        (json!({"host": "site", "profile": "allianz"}), "profile", "not a known profile"),
    ] {
        let errors = check_settings(&FACTORY, &settings, &[]);
        assert_eq!(errors.len(), 1, "{settings}: {errors:?}");
        assert_eq!(errors[0].path, path);
        assert!(errors[0].message.contains(message), "{errors:?}");
    }
    let errors = check_settings(&FACTORY, &json!({"host": "site"}), &[json!({}), json!({"gpus": 1})]);
    assert_eq!(errors[0].path, "hosts[1].gpus");
}

#[test]
fn the_login_machine_is_written_as_for_ssh() {
    let login = |settings: Value| config::read(&settings).unwrap().login();
    assert_eq!(login(json!({"host": "local"})), None);
    let ada = Target { node: "site".to_owned(), user: Some("ada".to_owned()), ..Target::default() };
    assert_eq!(login(json!({"host": "ada@site"})), Some(ada.clone()));
    assert_eq!(login(json!({"host": "bob@site", "user": "ada"})), Some(ada));
}

#[test]
fn a_profile_fills_in_what_the_spec_leaves_open() {
    let read = |more: Value| {
        let mut settings = json!({"host": "site", "profile": "alliance"});
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        config::read(&settings).unwrap()
    };
    let settings = read(json!({}));
    assert_eq!(settings.modules.last().map(String::as_str), Some("arrow"), "pyarrow comes from it");
    assert_eq!(settings.packages(), crate::provider::Packages::Site);
    assert_eq!(read(json!({"modules": ["python/3.11"]})).modules, ["python/3.11"]);
}
