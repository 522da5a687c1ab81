//! One machine of a cluster: what commands copy, and where its paths lead.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use secrecy::SecretString;

use super::pod::{PodGuard, PodHost};
use super::pods::Pods;
use super::ssh::{Remote, RemoteHost};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::host::{
    Account, Copied, End, ExecEnd, Host, HostPath, LocalHost, OnLine, Stream, StreamHost, There, download, put_secrets,
    remove_secrets, upload,
};
use crate::name::Tag;
use crate::provider::platform::{DATA, Member};
use crate::ray::shell_line;
use crate::render::quote_path;
use crate::runtime::project::{GuardAsk, HostFolders, ProjectRuntime, WANTS_FILES};
use crate::util::fs::resolve;

/// Where a path on a host begins, and the rest of it.
#[derive(Debug, PartialEq, Eq)]
enum StartsIn<'a> {
    /// In the cluster's data folder.
    Data(&'a str),
    /// In the login user's home folder.
    Home(&'a str),
    /// At the root of the host.
    Root(&'a str),
}

impl<'a> StartsIn<'a> {
    /// Where this path begins; `in_nodes` is the data folder as nodes see it, if that is another path.
    fn of(path: &'a str, in_nodes: Option<&str>) -> Result<Self> {
        let of_nodes = || {
            let rest = path.strip_prefix(in_nodes?)?;
            (rest.is_empty() || rest.starts_with('/')).then(|| rest.trim_start_matches('/'))
        };
        if path == "~" || path.starts_with("~/") {
            let rest = path[1..].trim_start_matches('/');
            return Ok(Self::Home(if rest.is_empty() { "./" } else { rest }));
        }
        let below = match of_nodes() {
            Some(below) => below,
            None if path.starts_with('/') => return Ok(Self::Root(path)),
            None => path,
        };
        if below.split('/').any(|part| part == "..") {
            return Err(Error::new(ErrorKind::Usage, "copy")
                .because(format!("`{path}` leads out of the cluster's data folder"))
                .hint(
                    "outside of it, name a path from the root, such as HOST:/mnt/x, or from the home folder: HOST:~/x",
                ));
        }
        Ok(Self::Data(if below.is_empty() { "./" } else { below }))
    }
}

/// One machine of a cluster. It is connected at its first use.
pub struct Machine<'a> {
    /// How it is reached.
    way: Way<'a>,
    /// The data folder there.
    data: String,
    /// The data folder as nodes see it, where a path may begin with that.
    data_in_nodes: Option<String>,
    /// Whether the data folder is root's.
    data_is_roots: bool,
}

/// How a machine is reached.
enum Way<'a> {
    /// It is this one. A command of the user's begins with this text.
    Here(LocalHost, String),
    /// By SSH.
    Ssh(&'a Remote, &'a RemoteHost),
    /// Through its platform.
    Pod(PodHost),
}

impl<'a> Machine<'a> {
    /// This machine, with a cluster's data folder on it.
    pub(super) fn here(host: LocalHost, data: &Path, before_commands: String) -> Self {
        let data = data.display().to_string();
        Self { way: Way::Here(host, before_commands), data_in_nodes: Some(data.clone()), data, data_is_roots: false }
    }

    /// A host that is reached by SSH.
    pub(super) fn by_ssh(remote: &'a Remote, host: &'a RemoteHost) -> Self {
        Self {
            way: Way::Ssh(remote, host),
            data: host.folders().data(),
            data_in_nodes: host.runtime.data_in_nodes().map(str::to_owned),
            data_is_roots: host.runtime.account() == Account::Root,
        }
    }

    /// A pod.
    pub(super) fn pod(pods: &Arc<Pods>, member: &Member) -> Self {
        let way = Way::Pod(PodHost::new(pods, member));
        Self { way, data: DATA.to_owned(), data_in_nodes: None, data_is_roots: false }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        match &self.way {
            Way::Here(host, _) => host.name(),
            Way::Ssh(_, host) => host.name(),
            Way::Pod(host) => host.name(),
        }
    }

    /// Refuses to work there as root where nobody can.
    ///
    /// # Errors
    /// If it is this machine or a pod.
    pub fn check_root(&self, doing: &str) -> Result<()> {
        let why = match &self.way {
            Way::Here(..) => "the cluster runs on this machine, as you",
            Way::Ssh(..) => return Ok(()),
            Way::Pod(_) => "nothing in the cluster's pods may become root",
        };
        Err(Error::new(ErrorKind::Unsupported, doing).because(why))
    }

    /// Runs a command of the user's.
    ///
    /// # Errors
    /// If it cannot be started. How it ended is in [`ExecEnd`].
    pub async fn exec(&self, command: &[String], account: Account, on_line: OnLine<'_>) -> Result<ExecEnd> {
        let command = format!("exec {}\n", shell_line(command));
        match &self.way {
            Way::Here(host, before) => host.exec(&format!("{before}{command}"), on_line).await,
            Way::Ssh(remote, host) => {
                // As root, `~` would be another home folder.
                let is_sure = account == Account::User || self.data.starts_with('/');
                let data =
                    if is_sure { format!("export GPUCL_DATA={}\n", quote_path(&self.data)) } else { String::new() };
                remote.connect(host).await?.by(account).exec(&format!("{data}{command}"), on_line).await
            }
            Way::Pod(host) => host.exec(&command, on_line).await,
        }
    }

    /// Has the guard on it do something; its answer is the time by the host's clock, and then what it prints.
    ///
    /// # Errors
    /// If the host does not answer, or the guard fails.
    pub(in crate::cluster) async fn guard(
        &self,
        guard: &Guard<'_>,
        ask: &GuardAsk<'_>,
        on_progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<String> {
        match (guard, &self.way) {
            (Guard::OfHost { runtime, host: tag, guard }, Way::Here(host, _)) => {
                let folders = HostFolders::at(host.home().to_owned());
                self.guard_says(host, &runtime.guard_script(tag, &folders, guard, ask), on_progress).await
            }
            (Guard::OfHost { runtime, host: tag, guard }, Way::Ssh(remote, host)) => {
                let ssh = remote.connect(host).await?.by(host.runtime.account());
                self.guard_says(&ssh, &runtime.guard_script(tag, &host.folders(), guard, ask), on_progress).await
            }
            (Guard::InPod(guard), Way::Pod(host)) => {
                let host = host.of_guard();
                if !guard.always_brings {
                    let said = self.guard_says(&host, &guard.script(ask), on_progress).await?;
                    if !said.trim_end().ends_with(WANTS_FILES) {
                        return Ok(said);
                    }
                }
                self.guard_says(&host, &guard.script_with_files(ask)?, on_progress).await
            }
            _ => Err(Error::new(ErrorKind::Internal, format!("ask the guard on {}", self.name()))
                .because("its cluster runs somewhere else")),
        }
    }

    /// Runs a script of a guard after the program that prints the time; what both print.
    async fn guard_says(
        &self,
        host: &dyn Host,
        script: &str,
        on_progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<String> {
        let doing = || format!("ask the guard on {}", self.name());
        let (mut out, mut err) = (String::new(), String::new());
        let mut on_line = |stream: Stream, line: &str| {
            if let Some((done, all)) = progress_in(line) {
                on_progress(done, all);
                return;
            }
            let text = if stream == Stream::Out { &mut out } else { &mut err };
            // A state is some kilobytes.
            if text.len() < GUARD_SAYS_AT_MOST {
                text.push_str(line);
                text.push('\n');
            }
        };
        let script = format!("date -u +%Y-%m-%dT%H:%M:%SZ\n{script}");
        match host.exec(&script, &mut on_line).await? {
            // A copy that is not whole says why in the state that it prints.
            ExecEnd::Exited(status) if status == 0 || out.trim_end().ends_with('}') => Ok(out),
            ExecEnd::Exited(_) => Err(Error::new(ErrorKind::Host, doing()).because(err.trim().to_owned())),
            ExecEnd::Broken => Err(Error::new(ErrorKind::Host, doing()).because("the connection was lost")),
        }
    }

    /// A path of the host as one end of a sync.
    pub async fn end(&self, path: &str, is_root: bool) -> Result<End<'_>> {
        let HostPath { path, within, is_root } = self.on_host(path, is_root)?;
        let (path, within) = (path.to_owned(), within.map(str::to_owned));
        Ok(End::There(There { machine: self.connected().await?, path, within, is_root }))
    }

    /// Copies to the host; returns the bytes of files.
    pub async fn put(&self, sources: &[PathBuf], path: &str, is_root: bool) -> Result<u64> {
        let goal = self.on_host(path, is_root)?;
        if let Some(there) = self.on_this_machine(goal) {
            sources.iter().try_for_each(|source| refuse_into_itself(source, &there))?;
        }
        upload(self.connected().await?, sources, goal).await
    }

    /// Copies from the host.
    pub async fn get(&self, path: &str, goal: &Path, is_root: bool) -> Result<Copied> {
        let source = self.on_host(path, is_root)?;
        if let Some(there) = self.on_this_machine(source) {
            refuse_into_itself(&there, goal)?;
        }
        download(self.connected().await?, source, goal).await
    }

    /// Puts the secrets of a job there, or removes them without a text.
    pub(super) async fn set_job_secrets(&self, id: &str, text: Option<&SecretString>) -> Result<()> {
        match text {
            Some(text) => put_secrets(self.connected().await?, self.data(), id, text).await,
            None => remove_secrets(self.connected().await?, self.data(), id).await,
        }
    }

    async fn connected(&self) -> Result<&dyn StreamHost> {
        Ok(match &self.way {
            Way::Here(host, _) => host,
            Way::Ssh(remote, host) => remote.connect(host).await?,
            Way::Pod(host) => host,
        })
    }

    /// The cluster's data folder there.
    fn data(&self) -> HostPath<'_> {
        HostPath { path: ".", within: Some(&self.data), is_root: self.data_is_roots }
    }

    /// Where a path leads there.
    fn on_host<'p>(&'p self, path: &'p str, is_root: bool) -> Result<HostPath<'p>> {
        if is_root {
            self.check_root("copy as root")?;
        }
        Ok(match StartsIn::of(path, self.data_in_nodes.as_deref())? {
            StartsIn::Data(path) => HostPath { path, ..self.data() },
            StartsIn::Home(path) | StartsIn::Root(path) => HostPath::plain(path, is_root),
        })
    }

    /// The same path, if the machine is this one.
    fn on_this_machine(&self, HostPath { path, within, .. }: HostPath<'_>) -> Option<PathBuf> {
        let Way::Here(host, _) = &self.way else { return None };
        Some(within.map(Path::new).or(host.login_home()).unwrap_or(Path::new("")).join(path))
    }
}

/// How many bytes a guard has copied, of how many, if this line of it says so: `::progress 1048576 20971520`.
fn progress_in(line: &str) -> Option<(u64, u64)> {
    let (done, all) = line.strip_prefix("::progress ")?.split_once(' ')?;
    Some((done.parse().ok()?, all.parse().ok()?))
}

/// The most that a guard's answer may be, in bytes.
const GUARD_SAYS_AT_MOST: usize = 1 << 20;

/// A guard of a cluster.
pub(in crate::cluster) enum Guard<'a> {
    /// That of a host.
    OfHost {
        /// The runtime of its nodes.
        runtime: &'a dyn ProjectRuntime,
        /// The tag of the host.
        host: String,
        /// Its own.
        guard: Tag,
    },
    /// That in the head's pod.
    InPod(PodGuard),
}

/// Refuses to copy a folder of this machine to a place in it: what arrives there would be sent again.
fn refuse_into_itself(from: &Path, to: &Path) -> Result<()> {
    let doing = || format!("copy {} to {}", from.display(), to.display());
    let real = |path: &Path| {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        resolve(path).doing(ErrorKind::Host, doing)
    };
    let Some(folder) = real(from)?.filter(|from| from.is_dir()) else { return Ok(()) };
    // The nearest folder that is there already.
    for above in to.ancestors() {
        if let Some(there) = real(above)? {
            if there.starts_with(&folder) {
                return Err(Error::new(ErrorKind::Usage, doing()).because("a folder cannot be copied into itself"));
            }
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn only_what_says_how_far_a_copy_is_is_taken_for_that() {
        assert_eq!(progress_in("::progress 1048576 20971520"), Some((1_048_576, 20_971_520)));
        for line in ["::progress", "::progress 1", "::progress 1 2 3", "::progress -1 2", "progress 1 2", "{\"v\": 1}"]
        {
            assert_eq!(progress_in(line), None, "{line}");
        }
    }

    #[test]
    fn a_relative_path_begins_in_the_data_folder() {
        let (docker, native) = (Some("/data"), None);
        for (path, in_nodes, begins) in [
            ("x/y", native, StartsIn::Data("x/y")),
            ("", native, StartsIn::Data("./")),
            ("/data/x", docker, StartsIn::Data("x")),
            ("/data/", docker, StartsIn::Data("./")),
            ("/data", docker, StartsIn::Data("./")),
            ("/data/x", native, StartsIn::Root("/data/x")),
            ("/database", docker, StartsIn::Root("/database")),
            ("/mnt/x", docker, StartsIn::Root("/mnt/x")),
            ("~/x", docker, StartsIn::Home("x")),
            ("~", docker, StartsIn::Home("./")),
            ("~x", docker, StartsIn::Data("~x")),
        ] {
            assert_eq!(StartsIn::of(path, in_nodes).unwrap(), begins, "{path}");
        }
        for path in ["../x", "a/../../x", "/data/../x"] {
            assert_eq!(StartsIn::of(path, docker).unwrap_err().kind(), ErrorKind::Usage, "{path}");
        }
        assert!(StartsIn::of("/data/../x", native).is_ok());
    }

    /// This machine, where this is the data folder of a cluster, and that the home folder.
    fn here(data: &Path, home: &Path) -> Machine<'static> {
        let environment = [("HOME".into(), home.into()), ("PATH".into(), std::env::var_os("PATH").unwrap())];
        Machine::here(LocalHost::new("host-0", home.join("host-0"), environment).unwrap(), data, String::new())
    }

    #[tokio::test]
    async fn a_folder_is_merged_into_one_that_is_there() {
        let root = tempfile::tempdir().unwrap();
        let (data, to) = (root.path().join("data"), root.path().join("to"));
        fs_err::create_dir_all(data.join("set/a")).unwrap();
        fs_err::create_dir_all(to.join("set/a")).unwrap();
        fs_err::write(data.join("set/a/new"), "four").unwrap();
        fs_err::write(to.join("set/a/kept"), "x").unwrap();
        symlink("a/new", data.join("set/link")).unwrap();
        let machine = here(&data, root.path());
        let copied = machine.get("set", &to, false).await.unwrap();
        assert_eq!((copied.bytes, copied.left_out.count), (4, 0));
        assert_eq!(fs_err::read_to_string(to.join("set/link")).unwrap(), "four");
        assert!(to.join("set/a/kept").exists());
        assert_eq!(fs_err::read_dir(&to).unwrap().count(), 1, "nothing else is left");
        machine.get("set/a/new", &to.join("renamed"), false).await.unwrap();
        assert_eq!(fs_err::read_to_string(to.join("renamed")).unwrap(), "four");
        assert_eq!(machine.put(&[to.join("set")], "more/", false).await.unwrap(), 4 + 1);
        assert!(data.join("more/set/a/kept").exists() && data.join("more/set/link").is_symlink());
        assert_eq!(fs_err::read_dir(data.join("more")).unwrap().count(), 1, "nothing else is left");
    }

    #[tokio::test]
    async fn links_in_the_way_and_copies_into_themselves_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs_err::create_dir_all(at("data/deep")).unwrap();
        fs_err::create_dir(at("to")).unwrap();
        fs_err::write(at("data/file"), "new").unwrap();
        fs_err::write(at("victim"), "old").unwrap();
        symlink(at("victim"), at("to/file")).unwrap();
        let machine = here(&at("data"), root.path());
        let why = |error: Error| error.to_string();
        assert!(why(machine.get("file", &at("to"), false).await.unwrap_err()).contains("is a link here"));
        assert_eq!(fs_err::read_to_string(at("victim")).unwrap(), "old");
        for path in ["~", "~/", &root.path().display().to_string()] {
            assert!(why(machine.get(path, &at("to"), false).await.unwrap_err()).contains("into itself"), "{path}");
        }
        for path in ["", "x", "deep", "none/x"] {
            let error = machine.put(&[at("data")], path, false).await.unwrap_err();
            assert!(why(error).contains("into itself"), "{path}");
        }
        for (path, goal) in [("file", "to/none/x"), ("none", "to"), ("none/x", "to")] {
            let error = machine.get(path, &at(goal), false).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "{path}: {error}");
        }
        assert_eq!(machine.get("file", &at("to"), true).await.unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[tokio::test]
    async fn secrets_of_a_job_are_private_and_go() {
        let root = tempfile::tempdir().unwrap();
        let (machine, folder) = (here(root.path(), root.path()), root.path().join(".gpucl-secrets"));
        for (id, text) in [("a", "first"), ("b", "second"), ("a", "third")] {
            machine.set_job_secrets(id, Some(&text.into())).await.unwrap();
            assert_eq!(fs_err::read_to_string(folder.join(id)).unwrap(), text);
        }
        for (path, mode) in [(folder.clone(), 0o700), (folder.join("a"), 0o600)] {
            assert_eq!(fs_err::metadata(path).unwrap().permissions().mode() & 0o777, mode);
        }
        for id in ["a", "b", "b"] {
            machine.set_job_secrets(id, None).await.unwrap();
        }
        assert!(!folder.exists());
        symlink("/", &folder).unwrap();
        assert!(machine.set_job_secrets("a", Some(&"x".into())).await.is_err());
    }

    /// Jobs write in the data folder of a cluster on this machine.
    #[tokio::test]
    async fn a_copy_into_the_data_folder_follows_no_link_there() {
        let root = tempfile::tempdir().unwrap();
        let (data, home) = (root.path().join("data"), root.path().join("home"));
        fs_err::create_dir(&data).unwrap();
        fs_err::create_dir(&home).unwrap();
        symlink(&home, data.join("out")).unwrap();
        let file = root.path().join("file");
        fs_err::write(&file, "new").unwrap();
        let machine = here(&data, &home);
        for path in ["out", "out/", "out/x", "out/deeper/x", &data.join("out/x").display().to_string()] {
            let error = machine.put(std::slice::from_ref(&file), path, false).await.unwrap_err().to_string();
            assert!(error.contains("out is a link"), "{path}: {error}");
        }
        assert_eq!(fs_err::read_dir(&home).unwrap().count(), 0);
        for path in ["", "x", "a/b/", "a/b/c"] {
            machine.put(std::slice::from_ref(&file), path, false).await.unwrap();
        }
        for path in ["file", "x", "a/b/file", "a/b/c"] {
            assert_eq!(fs_err::read_to_string(data.join(path)).unwrap(), "new", "{path}");
        }
    }
}
