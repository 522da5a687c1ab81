//! Runs the claim script on this machine.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::*;
use crate::name::Scope;
use crate::playbook::Facts;
use crate::provider::Site;
use crate::render::Library;
use crate::runtime::native::NativeRuntime;
use crate::runtime::project::{CleanOptions, ProjectRuntime as _};
use crate::secret::Secrets;
use crate::spec::Spec;
use crate::state::Pages;

/// A cluster with this name and two workers on one host, in a folder that stands for `/tmp` and its home.
struct Bench {
    spec: Spec,
    scope: Scope,
    nodes: Vec<NodeSpec>,
    host: HostInput,
    tmp: String,
}

impl Bench {
    /// Each test has a name of its own: processes are found, and ended, by it.
    fn new(name: &str, tmp: &Path, more: &str) -> Self {
        let text = format!("name: {name}\ngpu: declared\nray: {{head: {{{more}}}, workers: {{count: 2, cpus: 1}}}}\n");
        let spec: Spec = serde_yaml::from_str(&text).unwrap();
        let scope = Scope { owner: "abcd1234".parse().unwrap(), cluster: name.parse().unwrap() };
        let key = Key::host(0);
        let facts = Facts { cpus: 8, memory: 16 << 30, ..Facts::default() };
        let machine =
            crate::plan::Machine { cpus: facts.cpus, memory: facts.memory, ..crate::plan::Machine::default() };
        let nodes = crate::plan::desired(&spec, &[(key.clone(), machine)]).unwrap();
        let tmp = tmp.display().to_string();
        let folders = HostFolders::at(format!("{tmp}/homes/{name}"));
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
        Self { spec, scope, nodes, host, tmp }
    }

    /// Runs a script of this host; returns its lines.
    fn run(&self, script: &str) -> Vec<String> {
        let script = script.replace("/tmp/gpucl-", &format!("{}/gpucl-", self.tmp));
        // No variable of a login decides anything.
        let mut command = Command::new("sh");
        command.args(["-c", &script]).env("XDG_RUNTIME_DIR", "/nowhere").env_remove("TMPDIR").stdin(Stdio::null());
        let output = command.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    /// The folder of short paths that its home names.
    fn short(&self) -> PathBuf {
        let home = Path::new(&self.host.folders.home);
        PathBuf::from(fs_err::read_to_string(home.join("short")).unwrap().trim())
    }

    fn clean(&self) -> Vec<String> {
        self.run(&NativeRuntime.clean_script(&self.host.tag, &self.host.folders, CleanOptions::default()))
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
        claimed(&request, &self.host, &self.run(&script(&request, &self.host)))
    }
}

/// The folders of short paths that exist.
fn shorts(tmp: &Path) -> Vec<PathBuf> {
    let all = fs_err::read_dir(tmp).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("gpucl-")).collect()
}

#[test]
fn ten_at_once_take_no_block_twice_and_keep_what_they_have() {
    let folder = tempfile::tempdir().unwrap();
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
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // The blocks follow from the name: no other test shall find this listener in its own.
    let before = Bench::new("listening", one.path(), "").claim().unwrap();
    let head = before.blocks[&Key::head()];
    let _taken = TcpListener::bind(("127.0.0.1", head + 77)).unwrap();
    // One that was claimed and does not run is given up; one that never was is not taken.
    for folder in [one.path(), other.path()] {
        let now = Bench::new("listening", folder, "").claim().unwrap();
        assert_ne!(now.blocks[&Key::head()], head);
        assert_eq!(now.blocks[&Key::worker(1)], before.blocks[&Key::worker(1)]);
    }
}

#[test]
fn a_taken_port_names_who_takes_it_and_nothing_is_claimed() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let error = Bench::new("taken", folder.path(), &format!("dashboard_port: {port}")).claim().unwrap_err().to_string();
    assert!(error.contains(&format!("use port {port}")) && error.contains(&std::process::id().to_string()), "{error}");
    let [short] = &shorts(folder.path())[..] else { panic!("not one folder") };
    assert_eq!(fs_err::read_dir(short.join("ports")).unwrap().count(), 0);
}

#[test]
fn every_later_command_finds_the_same_folder_and_nothing_of_it_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::new("later", folder.path(), "");
    let ports = bench.claim().unwrap();
    let short = bench.short();
    assert_eq!(shorts(folder.path()), std::slice::from_ref(&short));
    assert_eq!(fs_err::metadata(&short).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs_err::read_link(short.join("r")).unwrap(), Path::new(&bench.host.folders.home).join("ray"));
    assert_eq!(bench.claim().unwrap(), ports);
    assert_eq!(bench.short(), short);
    // A cleaner of /tmp removes it: it is made again, by its name.
    fs_err::remove_dir_all(&short).unwrap();
    assert_eq!(bench.claim().unwrap(), ports);
    assert_eq!(shorts(folder.path()), std::slice::from_ref(&short));
    let inspect = || bench.run(&NativeRuntime.inspect_script(&bench.host.tag, &bench.host.folders));
    let remains = format!("::remains folder {}", short.display());
    assert!(inspect().contains(&remains), "{:?}", inspect());
    assert_eq!(bench.clean().last().map(String::as_str), Some("::clean"));
    assert_eq!(shorts(folder.path()), Vec::<PathBuf>::new());
    assert_eq!(inspect(), [""; 0]);
    // Even when the folder that names it was removed by hand.
    bench.claim().unwrap();
    let remains = format!("::remains folder {}", bench.short().display());
    fs_err::remove_dir_all(&bench.host.folders.home).unwrap();
    assert_eq!(inspect(), [remains]);
    assert_eq!(bench.clean().last().map(String::as_str), Some("::clean"));
    assert_eq!(shorts(folder.path()), Vec::<PathBuf>::new());
}

#[test]
fn claims_of_a_cluster_that_was_removed_by_hand_do_not_count() {
    let folder = tempfile::tempdir().unwrap();
    let (one, same) = (Bench::new("removed", folder.path(), ""), Bench::new("removed", folder.path(), ""));
    let first = one.claim().unwrap();
    let home = PathBuf::from(&one.host.folders.home);
    fs_err::rename(&home, home.with_extension("aside")).unwrap();
    assert_eq!(same.claim().unwrap(), first, "the folder of the first is nobody's");
    // While both are there, none takes what the other has.
    let other = Bench {
        host: HostInput { folders: HostFolders::at(format!("{}/homes/other", same.tmp)), ..same.host },
        ..same
    };
    let second = other.claim().unwrap();
    assert!(second.blocks.values().all(|base| !first.blocks.values().any(|taken| taken == base)), "{second:?}");
}

#[test]
fn a_folder_that_others_may_enter_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::new("entered", folder.path(), "");
    bench.claim().unwrap();
    let mut before = bench.short();
    for mode in [0o777, 0o770, 0o755, 0o711] {
        fs_err::set_permissions(&before, std::fs::Permissions::from_mode(mode)).unwrap();
        bench.claim().unwrap();
        assert_ne!(bench.short(), before, "{mode:o}");
        before = bench.short();
    }
    // A link belongs to whoever created it, wherever it leads.
    fs_err::rename(&before, folder.path().join("moved")).unwrap();
    std::os::unix::fs::symlink(folder.path().join("moved"), &before).unwrap();
    bench.claim().unwrap();
    assert_ne!(bench.short(), before);
    // Running nodes have their sockets there: they are not given another.
    let before = bench.short();
    let _node = Sleeper(
        Command::new("sleep").arg("600").env("GPUCL_HOST", &bench.host.tag).env("GPUCL_TAG", "x").spawn().unwrap(),
    );
    fs_err::set_permissions(&before, std::fs::Permissions::from_mode(0o777)).unwrap();
    let error = bench.claim().unwrap_err().to_string();
    assert!(error.contains("is not a folder of this user alone"), "{error}");
    assert_eq!(bench.short(), before);
    // What else the record says is no folder of ours.
    for odd in ["/etc", "/tmp/gpucl-../x", "/tmp/gpucl-", "/tmp/gpucl-a b"] {
        let odd = odd.replace("/tmp/", &format!("{}/", bench.tmp));
        fs_err::write(Path::new(&bench.host.folders.home).join("short"), format!("{odd}\n")).unwrap();
        bench.claim().unwrap();
        assert_ne!(bench.short(), Path::new(&odd));
    }
}

/// A process that is ended with the test.
struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
