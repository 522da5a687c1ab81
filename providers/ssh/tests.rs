//! Tests of claims left by crashes or other programs, and of the settings.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use super::*;
use crate::error::LeftBehind;
use crate::spec::check_settings;

struct Nobody;

#[async_trait]
impl Recorder for Nobody {
    async fn exists(&self, _key: &Key, _id: &str) -> Result<()> {
        Ok(())
    }
}

struct Bench {
    root: tempfile::TempDir,
    ssh: Box<dyn Provider>,
    scope: Scope,
    tag: Tag,
}

fn bench() -> Bench {
    let root = tempfile::tempdir().unwrap();
    let (events, _inbox) = crate::event::Bus::new();
    let folder = |name: &str| root.path().join(name);
    let context = Context {
        data_dir: folder("data"),
        cache_dir: folder("cache"),
        runtime_dir: folder("run"),
        clusters_dir: folder("clusters"),
        user_environment: crate::provider::UserEnvironment::default(),
        events,
    };
    let ssh = FACTORY.open(&json!({ "user": "cc", "identity_file": "~/.ssh/lab" }), &context).unwrap();
    let scope = Scope { owner: "abcd1234".parse().unwrap(), cluster: "demo".parse().unwrap() };
    Bench { ssh, tag: scope.tag(&Key::host(0)), scope, root }
}

impl Bench {
    fn request(&self, settings: Value) -> ResourceRequest {
        self.ssh.expand(&self.scope, &HostRequest::new(Key::host(0), settings)).unwrap().remove(0)
    }

    async fn acquire(&self) -> Result<Acquired> {
        self.ssh.acquire(&self.tag, &self.request(json!("gpu1")), &Nobody).await
    }

    fn file(&self) -> std::path::PathBuf {
        self.root.path().join("data/ssh").join(format!("{}.json", self.tag))
    }
}

#[tokio::test]
async fn a_claim_is_a_private_file_with_the_complete_target() {
    let bench = bench();
    let acquired = bench.acquire().await.unwrap();
    assert_eq!(fs_err::metadata(bench.file()).unwrap().permissions().mode() & 0o777, 0o600);
    let place = bench.ssh.place(&bench.tag, &acquired.id).await.unwrap();
    let HostPlace::Ssh { target, .. } = &place else { panic!("{place:?}") };
    assert_eq!((target.node.as_str(), target.user.as_deref()), ("gpu1", Some("cc")));
    assert_eq!(target.identity_file.as_deref(), Some(std::path::Path::new("~/.ssh/lab")));
    let request = HostRequest::new(Key::host(0), json!({ "node": "gpu1" }));
    assert_eq!(bench.ssh.standing(&bench.scope, &request), Some(place), "it exists before it is acquired");
}

#[tokio::test]
async fn the_last_release_leaves_no_folder() {
    let bench = bench();
    bench.acquire().await.unwrap();
    for resource in bench.ssh.observe(&bench.scope).await.unwrap() {
        assert_eq!((resource.is_usable(), resource.detail.as_str()), (true, "gpu1"));
        bench.ssh.release(&bench.scope, &resource).await.unwrap();
    }
    assert_eq!(fs_err::read_dir(bench.root.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_damaged_claim_shows_is_not_taken_and_can_be_released() {
    let bench = bench();
    let newer = format!("{{\"version\": 9, \"tag\": \"{}\"}}", bench.tag);
    for (text, why) in [("{", "EOF while parsing"), ("{\"version\": 1}", "missing field"), (&newer, "its version is 9")]
    {
        fs_err::create_dir_all(bench.file().parent().unwrap()).unwrap();
        fs_err::write(bench.file(), text).unwrap();
        let seen = bench.ssh.observe(&bench.scope).await.unwrap();
        assert!(!seen[0].is_usable() && seen[0].detail.contains(why), "{seen:?}");
        let error = bench.acquire().await.unwrap_err();
        assert_eq!(*error.left_behind(), LeftBehind::Remaining(vec![seen[0].id.clone()]));
        assert_eq!(error.hints(), ["gpucl down -c demo"]);
        bench.ssh.release(&bench.scope, &seen[0]).await.unwrap();
        assert!(!bench.file().exists());
    }
}

#[tokio::test]
async fn files_not_named_by_a_tag_are_left_alone() {
    let bench = bench();
    bench.acquire().await.unwrap();
    for name in ["notes.json", "gpucl-abcd1234-demo.json", "gpucl-abcd1234-demo-b-host0.json", ".gpucl-x"] {
        fs_err::write(bench.file().with_file_name(name), "x").unwrap();
    }
    let seen = bench.ssh.observe(&bench.scope).await.unwrap();
    assert_eq!(seen.len(), 1);
    bench.ssh.release(&bench.scope, &seen[0]).await.unwrap();
    assert_eq!(fs_err::read_dir(bench.file().parent().unwrap()).unwrap().count(), 4);
}

#[test]
fn every_mistake_of_an_entry_names_its_key() {
    let wrong = [
        (json!({}), "hosts[0].node", "is missing"),
        (json!({"node": "gpu1", "nod": 1}), "hosts[0].nod", "unknown key"),
        (json!({"node": "-oProxyCommand=x"}), "hosts[0].node", "is not the name of a host"),
        (json!({"node": "gpu1\nUser root"}), "hosts[0].node", "is not the name of a host"),
        (json!("cc@gpu1"), "hosts[0]", "write it as `user:`"),
        (json!({"node": "gpu1:2222"}), "hosts[0].node", "write it as `port:`"),
        (json!({"node": "gpu1", "port": 0}), "hosts[0].port", "1 to 65535"),
        (json!({"node": "gpu1", "host_key": "AAAA"}), "hosts[0].host_key", "is not a public key"),
        (json!({"node": "gpu1", "user": "a b"}), "hosts[0].user", "is not a user name"),
    ];
    for (host, path, message) in wrong {
        let errors = check_settings(&FACTORY, &json!({}), &[host]);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert_eq!(errors[0].path, path);
        assert!(errors[0].message.contains(message), "{errors:?}");
    }
    assert_eq!(check_settings(&FACTORY, &json!({"usr": "x"}), &[])[0].path, "usr");
    let right =
        [json!("gpu1"), json!("2001:db8::1"), json!({"node": "gpu2", "host_key": "ssh-ed25519 AAAAC3Nz comment"})];
    assert_eq!(check_settings(&FACTORY, &json!({"user": "cc", "port": 2222}), &right), []);
}

/// The defaults reach `ssh_config` like a host's own settings; errors in them are reported once, at their position.
#[test]
fn the_defaults_for_all_hosts_are_checked_as_well() {
    let wrong = [
        (json!({"user": "x\nProxyCommand=touch /tmp/x"}), "user", "is not a user name"),
        (json!({"identity_file": "~/k\nProxyCommand=x"}), "identity_file", "holds a control character"),
        (json!({"identity_file": "${SECRET}/k"}), "identity_file", "holds `${`"),
        (json!({"port": 0}), "port", "1 to 65535"),
    ];
    let own = json!({"node": "gpu3", "user": "cc", "port": 22, "identity_file": "k"});
    for (settings, path, message) in wrong {
        for hosts in [&[json!("gpu1"), json!("gpu2")][..], std::slice::from_ref(&own), &[]] {
            let errors = check_settings(&FACTORY, &settings, hosts);
            assert_eq!(errors.len(), 1, "{errors:?}");
            assert_eq!(errors[0].path, path);
            assert!(errors[0].message.contains(message), "{errors:?}");
        }
    }
}

/// For a state written by an earlier version, or any caller that opens the provider without validating a spec.
#[test]
fn a_host_is_not_claimed_with_unchecked_settings() {
    let bench = bench();
    let shared = Settings { user: Some("x\nProxyCommand=x".to_owned()), ..Settings::default() };
    let ssh = Ssh { claims: Claims::new(bench.root.path().into()), settings: shared };
    let request = HostRequest::new(Key::host(0), json!("gpu1"));
    assert!(ssh.expand(&bench.scope, &request).unwrap_err().to_string().contains("is not a user name"));
    assert_eq!(ssh.standing(&bench.scope, &request), None);
}

#[test]
fn the_same_machine_twice_is_refused_at_its_entry() {
    let twice = [json!("gpu1"), json!({"node": "GPU1", "user": "other"}), json!({"node": "gpu1", "port": 2222})];
    let errors = check_settings(&FACTORY, &json!({}), &twice);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(
        (errors[0].path.as_str(), errors[0].message.as_str()),
        ("hosts[1].node", "is the same machine as hosts[0]")
    );
}
