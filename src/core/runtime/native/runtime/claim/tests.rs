//! Runs the claim script on this machine.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::*;
use crate::name::Scope;
use crate::playbook::Facts;
use crate::provider::Site;
use crate::render::Library;
use crate::secret::Secrets;
use crate::spec::Spec;
use crate::state::Pages;

/// A cluster with this name and two workers on one host, with its links in this folder.
struct Bench {
    spec: Spec,
    scope: Scope,
    nodes: Vec<NodeSpec>,
    host: HostInput,
}

impl Bench {
    fn new(name: &str, links: &Path, more: &str) -> Self {
        let text = format!("name: {name}\ngpu: declared\nray: {{head: {{{more}}}, workers: {{count: 2, cpus: 1}}}}\n");
        let spec: Spec = serde_yaml::from_str(&text).unwrap();
        let scope = Scope { owner: "abcd1234".parse().unwrap(), cluster: name.parse().unwrap() };
        let key = Key::host(0);
        let facts = Facts { cpus: 8, memory: 16 << 30, ..Facts::default() };
        let machine = crate::plan::Machine { cpus: facts.cpus, memory: facts.memory, gpus: 0 };
        let nodes = crate::plan::desired(&spec, &[(key.clone(), machine)]).unwrap();
        let folders = HostFolders {
            home: links.join("home").display().to_string(),
            links: links.display().to_string(),
            ..HostFolders::default()
        };
        let tag = scope.tag(&key).to_string();
        let host = HostInput {
            key,
            tag,
            facts,
            address: String::new(),
            ports: HostPorts::default(),
            folders,
            site: Site::default(),
        };
        Self { spec, scope, nodes, host }
    }

    fn claim(&self) -> Result<HostPorts> {
        let (pages, library, secrets) = (Pages::new(), Library::default(), Secrets::placeholders());
        let request = DeployRequest {
            spec: &self.spec,
            scope: &self.scope,
            nodes: &self.nodes,
            hosts: std::slice::from_ref(&self.host),
            pages: &pages,
            secrets: &secrets,
            library: &library,
        };
        let script = script(&request, &self.host);
        let output = Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        let text = String::from_utf8(output.stdout).unwrap();
        claimed(&request, &self.host, &text.lines().map(str::to_owned).collect::<Vec<_>>())
    }
}

fn links() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    folder
}

#[test]
fn ten_at_once_take_no_block_twice_and_keep_what_they_have() {
    let folder = links();
    let benches: Vec<Bench> = (0..10).map(|index| Bench::new(&format!("c{index}"), folder.path(), "")).collect();
    let claims = || -> Vec<HostPorts> {
        let claim = |bench| move || Bench::claim(bench).unwrap();
        std::thread::scope(|scope| {
            let running: Vec<_> = benches.iter().map(|bench| scope.spawn(claim(bench))).collect();
            running.into_iter().map(|one| one.join().unwrap()).collect()
        })
    };
    let first = claims();
    let all: BTreeSet<u16> = first.iter().flat_map(|ports| ports.blocks.values().copied()).collect();
    assert_eq!(all.len(), 30, "{first:?}");
    assert!(all.iter().all(|base| base % BLOCK == 0 && BLOCKS.contains(&(base / BLOCK))));
    assert_eq!(first[0].dashboard, first[0].blocks[&Key::head()] + 1);
    assert_eq!(claims(), first, "claimed again, each has its own");
}

#[test]
fn a_block_in_which_somebody_listens_is_passed_over() {
    let (one, other) = (links(), links());
    let before = Bench::new("c", one.path(), "").claim().unwrap();
    let head = before.blocks[&Key::head()];
    let _taken = TcpListener::bind(("127.0.0.1", head + 77)).unwrap();
    // One that was claimed and does not run is given up; one that never was is not taken.
    for folder in [one.path(), other.path()] {
        let now = Bench::new("c", folder, "").claim().unwrap();
        assert_ne!(now.blocks[&Key::head()], head);
        assert_eq!(now.blocks[&Key::worker(1)], before.blocks[&Key::worker(1)]);
    }
}

#[test]
fn a_taken_port_names_who_takes_it_and_nothing_is_claimed() {
    let folder = links();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let error = Bench::new("c", folder.path(), &format!("dashboard_port: {port}")).claim().unwrap_err().to_string();
    assert!(error.contains(&format!("use port {port}")) && error.contains(&std::process::id().to_string()), "{error}");
    assert_eq!(std::fs::read_dir(folder.path().join("ports")).unwrap().count(), 0);
}

#[test]
fn a_folder_that_others_may_enter_is_refused() {
    let folder = links();
    for mode in [0o777, 0o770, 0o755, 0o711] {
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        let error = Bench::new("c", folder.path(), "").claim().unwrap_err().to_string();
        assert!(error.contains("is not a folder of this user alone"), "{mode:o}: {error}");
    }
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    // A link belongs to whoever created it, wherever it leads.
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(folder.path(), &link).unwrap();
    let error = Bench::new("c", &link, "").claim().unwrap_err().to_string();
    assert!(error.contains("is not a folder of this user alone"), "{error}");
}
