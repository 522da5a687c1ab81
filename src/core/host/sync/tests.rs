//! Whole syncs between this machine and a "host" that is a shell of this machine.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use async_trait::async_trait;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc::{Receiver, Sender};

use super::*;
use crate::error::Result;
use crate::host::{Ended, HostPath, StreamHost};

/// Runs programs as a host does, in the folder that is its login user's home.
struct Shell {
    home: PathBuf,
    /// After so many bytes of input the connection breaks.
    breaks_after: Option<usize>,
}

#[async_trait]
impl StreamHost for Shell {
    fn machine(&self) -> &str {
        "host-0"
    }

    fn account(&self) -> Option<&str> {
        Some("ada")
    }

    async fn run(
        &self,
        program: &[u8],
        at: HostPath<'_>,
        mut input: Receiver<Vec<u8>>,
        output: Sender<Vec<u8>>,
    ) -> Result<Ended> {
        let mut shell = tokio::process::Command::new("sh");
        shell.args(["-c", &at.command(program.len())]).current_dir(&self.home);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let (mut to, mut from, mut err) =
            (shell.stdin.take().unwrap(), shell.stdout.take().unwrap(), shell.stderr.take().unwrap());
        let mut left = self.breaks_after.unwrap_or(usize::MAX);
        let feed = async {
            let _ = to.write_all(program).await;
            while let Some(piece) = input.recv().await {
                let length = piece.len().min(left);
                left -= length;
                if to.write_all(&piece[..length]).await.is_err() || left == 0 {
                    break;
                }
            }
            let _ = to.flush().await;
            drop((to, input));
            left
        };
        let read = async {
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(length @ 1..) = from.read(&mut buffer).await {
                if output.send(buffer[..length].to_vec()).await.is_err() {
                    break;
                }
            }
            drop((output, from));
        };
        let mut said = String::new();
        let (left, (), _) = tokio::join!(feed, read, err.read_to_string(&mut said));
        let status = shell.wait().await.unwrap();
        Ok(Ended { code: status.code().filter(|_| left > 0), said })
    }
}

/// A folder for each side.
struct Sides {
    folder: tempfile::TempDir,
    shell: Shell,
}

impl Sides {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["here", "home", "home/data"] {
            fs_err::create_dir(folder.path().join(name)).unwrap();
        }
        let shell = Shell { home: folder.path().join("home"), breaks_after: None };
        Self { folder, shell }
    }

    fn here(&self, path: &str) -> PathBuf {
        self.folder.path().join("here").join(path)
    }

    fn data(&self, path: &str) -> PathBuf {
        self.folder.path().join("home/data").join(path)
    }

    fn at_here(&self, path: &str) -> End<'_> {
        End::Here(Here { path: self.here(path) })
    }

    /// A path in the data folder of the host.
    fn in_data(&self, path: &str) -> End<'_> {
        let within = Some(self.folder.path().join("home/data").display().to_string());
        End::There(There { machine: &self.shell, path: path.to_owned(), within, is_root: false })
    }

    /// A path of the host, from the home folder.
    fn at_home(&self, path: &str) -> End<'_> {
        End::There(There { machine: &self.shell, path: path.to_owned(), within: None, is_root: false })
    }
}

async fn sync(from: &End<'_>, to: &End<'_>, options: SyncOptions) -> Result<Synced> {
    compare(from, to, options).await?.carry_out(&mut |_| {}).await
}

fn defaults() -> SyncOptions {
    SyncOptions::default()
}

fn deletes() -> SyncOptions {
    SyncOptions { delete: true, ..defaults() }
}

/// The paths of a folder, with what files hold and where links lead.
fn content(top: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut left = vec![top.to_owned()];
    while let Some(folder) = left.pop() {
        for entry in fs_err::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs_err::symlink_metadata(&path).unwrap();
            let holds = if metadata.is_dir() {
                left.push(path.clone());
                b"folder".to_vec()
            } else if metadata.is_symlink() {
                fs_err::read_link(&path).unwrap().as_os_str().as_bytes().to_vec()
            } else {
                fs_err::read(&path).unwrap()
            };
            found.push((path.strip_prefix(top).unwrap().to_owned(), holds));
        }
    }
    found.sort();
    found
}

fn odd_names() -> Vec<&'static [u8]> {
    vec![
        b"with space",
        b"it's \"quoted\"",
        b"two\nlines\n",
        b"\xff\xfe not text",
        b"-rf",
        b"back\\slash\\n",
        b"*",
        b"$(touch x)",
        b"#c",
        b"!b",
        b"..x",
        b".hidden",
        b"@list",
    ]
}

fn make_odd(top: &Path) {
    for (number, name) in odd_names().into_iter().enumerate() {
        let folder = top.join(OsStr::from_bytes(name));
        fs_err::create_dir_all(&folder).unwrap();
        fs_err::write(folder.join(OsStr::from_bytes(name)), format!("{number}")).unwrap();
        symlink(OsStr::from_bytes(name), folder.join("link")).unwrap();
        fs_err::create_dir(folder.join("empty")).unwrap();
    }
    let long = top.join("l".repeat(120)).join("m".repeat(120));
    fs_err::create_dir_all(&long).unwrap();
    fs_err::write(long.join("n".repeat(200)), "long").unwrap();
}

#[tokio::test]
async fn any_name_goes_there_and_comes_back_unchanged() {
    let sides = Sides::new();
    make_odd(&sides.here("set"));
    for (to, at) in [(sides.in_data("deep/er"), "deep/er"), (sides.at_home("data/plain"), "plain")] {
        let sent = sync(&sides.at_here("set"), &to, defaults()).await.unwrap();
        assert_eq!((sent.sent, sent.unchanged), (27, 0));
        assert_eq!(content(&sides.data(at)), content(&sides.here("set")));
        let again = compare(&sides.at_here("set"), &to, deletes()).await.unwrap();
        assert!(again.is_nothing(), "{:?}", again.lines());
        let back = format!("back-{}", at.len());
        let got = sync(&to, &sides.at_here(&back), deletes()).await.unwrap();
        assert_eq!((got.sent, got.left_out.count, got.unread.len()), (27, 0, 0));
        assert_eq!(content(&sides.here(&back)), content(&sides.here("set")));
        assert!(compare(&to, &sides.at_here(&back), deletes()).await.unwrap().is_nothing());
        let on = format!("on-{back}");
        sync(&sides.at_here("set"), &sides.at_here(&on), defaults()).await.unwrap();
        assert_eq!(content(&sides.here(&on)), content(&sides.here("set")));
    }
    // Inside of what is there already, each name is moved, deleted and changed by itself.
    for name in odd_names() {
        let folder = sides.here("set").join(OsStr::from_bytes(name));
        fs_err::write(folder.join(OsStr::from_bytes(name)), "changed").unwrap();
        fs_err::remove_file(folder.join("link")).unwrap();
        let odd = folder.join("empty").join(OsStr::from_bytes(name));
        fs_err::write(&odd, "new").unwrap();
        fs_err::set_permissions(&odd, PermissionsExt::from_mode(0o750)).unwrap();
    }
    let to = sides.in_data("deep/er");
    let sent = sync(&sides.at_here("set"), &to, deletes()).await.unwrap();
    assert_eq!((sent.sent, sent.unchanged, sent.deleted), (26, 1, 13));
    assert_eq!(content(&sides.data("deep/er")), content(&sides.here("set")));
    for name in odd_names() {
        let odd = sides.here("set").join(OsStr::from_bytes(name)).join("empty").join(OsStr::from_bytes(name));
        fs_err::set_permissions(&odd, PermissionsExt::from_mode(0o640)).unwrap();
    }
    let sent = sync(&sides.at_here("set"), &to, deletes()).await.unwrap();
    assert_eq!((sent.sent, sent.unchanged), (0, 27), "only permissions");
    assert!(compare(&sides.at_here("set"), &to, deletes()).await.unwrap().is_nothing());
    let got = sync(&to, &sides.at_here("back-7"), deletes()).await.unwrap();
    assert_eq!((got.sent, got.deleted), (26, 13));
    assert_eq!(content(&sides.here("back-7")), content(&sides.here("set")));
}

#[tokio::test]
async fn a_large_file_goes_on_where_it_was_cut() {
    let mut sides = Sides::new();
    let bytes: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    fs_err::create_dir(sides.here("set")).unwrap();
    fs_err::write(sides.here("set/large"), &bytes).unwrap();
    fs_err::set_permissions(sides.here("set/large"), PermissionsExt::from_mode(0o640)).unwrap();
    let options = || SyncOptions { large: 1 << 20, ..defaults() };
    sides.shell.breaks_after = Some(5_000_000);
    let cut = sync(&sides.at_here("set"), &sides.in_data("set"), options()).await.unwrap_err();
    assert!(cut.causes().join(" ").contains("connection to the host broke"), "{cut}");
    assert!(!sides.data("set/large").exists());
    sides.shell.breaks_after = None;
    let again = sync(&sides.at_here("set"), &sides.in_data("set"), options()).await.unwrap();
    assert_eq!((again.sent, again.bytes + again.resumed), (1, 12_000_000));
    assert!(again.resumed > 4_000_000, "{again:?}");
    assert_eq!(content(&sides.data("set")), content(&sides.here("set")), "nothing else is left");
    let found = fs_err::metadata(sides.data("set/large")).unwrap();
    assert_eq!(found.permissions().mode() & 0o777, 0o640);
    assert!(compare(&sides.at_here("set"), &sides.in_data("set"), deletes()).await.unwrap().is_nothing());
    // Back: what had arrived of another file is not the beginning of this one.
    let name = {
        let modified = std::os::unix::fs::MetadataExt::mtime(&found);
        super::part::Part::name(b"large", 12_000_000, modified)
    };
    let stage = sides.here("back/.gpucl-sync");
    for (begin, resumed) in [(&bytes[..7_000_000], 7_000_000), (&[7; 7_000_000][..], 0)] {
        fs_err::create_dir_all(&stage).unwrap();
        fs_err::set_permissions(&stage, PermissionsExt::from_mode(0o700)).unwrap();
        fs_err::write(stage.join(OsStr::from_bytes(&name)), begin).unwrap();
        let got = sync(&sides.in_data("set"), &sides.at_here("back"), options()).await.unwrap();
        assert_eq!((got.sent, got.resumed, got.bytes), (1, resumed, 12_000_000 - resumed));
        assert_eq!(content(&sides.here("back")), content(&sides.here("set")));
        fs_err::remove_file(sides.here("back/large")).unwrap();
    }
}

#[tokio::test]
async fn a_file_goes_into_a_folder_or_to_a_name() {
    let sides = Sides::new();
    fs_err::write(sides.here("x"), "one").unwrap();
    for (to, at) in [("sub/", "sub/x"), ("sub", "sub/x"), ("a/b", "a/b"), ("", "x")] {
        let sent = sync(&sides.at_here("x"), &sides.in_data(to), defaults()).await.unwrap();
        assert_eq!((fs_err::read(sides.data(at)).unwrap(), sent.sent + sent.unchanged), (b"one".to_vec(), 1), "{to}");
        assert_eq!(sync(&sides.at_here("x"), &sides.in_data(to), defaults()).await.unwrap().unchanged, 1, "{to}");
    }
    sync(&sides.in_data("a/b"), &sides.at_here("c"), defaults()).await.unwrap();
    sync(&sides.at_home("data/a/b"), &sides.at_here("d/"), defaults()).await.unwrap();
    sync(&sides.at_here("x"), &sides.at_home("y"), defaults()).await.unwrap();
    assert_eq!(fs_err::read(sides.here("c")).unwrap(), b"one");
    assert_eq!(fs_err::read(sides.here("d/b")).unwrap(), b"one");
    assert_eq!(fs_err::read(sides.folder.path().join("home/y")).unwrap(), b"one");
    let none = sync(&sides.in_data("none"), &sides.at_here("c"), defaults()).await.unwrap_err();
    assert_eq!(none.kind(), crate::error::ErrorKind::NotFound);
}

#[tokio::test]
async fn links_left_by_jobs_lead_nowhere() {
    let sides = Sides::new();
    let victim = sides.folder.path().join("home/victim");
    fs_err::create_dir(&victim).unwrap();
    fs_err::write(victim.join("x"), "old").unwrap();
    fs_err::create_dir_all(sides.here("set/a")).unwrap();
    fs_err::write(sides.here("set/a/x"), "new").unwrap();
    fs_err::write(sides.here("set/y"), "new").unwrap();
    // A link for a folder in the way, for the destination itself, and for the stage.
    fs_err::create_dir(sides.data("set")).unwrap();
    symlink(&victim, sides.data("set/a")).unwrap();
    symlink(victim.join("x"), sides.data("set/y")).unwrap();
    symlink(&victim, sides.data("out")).unwrap();
    let refused = sync(&sides.at_here("set"), &sides.in_data("set"), defaults()).await.unwrap_err();
    assert!(refused.causes().join(" ").contains("a is a link"), "{refused}");
    for to in ["out", "out/", "out/deep"] {
        let refused = sync(&sides.at_here("set"), &sides.in_data(to), deletes()).await.unwrap_err();
        assert!(refused.causes().join(" ").contains("is a link there"), "{to}: {refused}");
    }
    let refused = sync(&sides.in_data("out"), &sides.at_here("stolen"), defaults()).await.unwrap_err();
    assert!(refused.causes().join(" ").contains("is a link there"), "{refused}");
    symlink(&victim, sides.data("set/.gpucl-sync")).unwrap();
    let refused = sync(&sides.at_here("set"), &sides.in_data("set"), deletes()).await.unwrap_err();
    assert!(refused.causes().join(" ").contains("is a link there"), "{refused}");
    fs_err::remove_file(sides.data("set/.gpucl-sync")).unwrap();
    // What is in the way is removed where that is allowed: the links, and not what they lead to.
    sync(&sides.at_here("set"), &sides.in_data("set"), deletes()).await.unwrap();
    assert_eq!(content(&sides.data("set")), content(&sides.here("set")));
    assert_eq!(content(&victim), [(PathBuf::from("x"), b"old".to_vec())]);
    // On this machine the same, and links that lead out of the copy do not come.
    symlink("/etc", sides.data("set/etc")).unwrap();
    symlink("y", sides.data("set/inner")).unwrap();
    fs_err::create_dir(sides.here("back")).unwrap();
    symlink(&victim, sides.here("back/a")).unwrap();
    let refused = sync(&sides.in_data("set"), &sides.at_here("back"), defaults()).await.unwrap_err();
    assert!(refused.causes().join(" ").contains("a is a link"), "{refused}");
    let got = sync(&sides.in_data("set"), &sides.at_here("back"), deletes()).await.unwrap();
    assert_eq!((got.left_out.count, got.unread.len()), (1, 0), "{got:?}");
    assert!(!sides.here("back/etc").exists() && sides.here("back/inner").is_symlink());
    assert_eq!(content(&victim), [(PathBuf::from("x"), b"old".to_vec())]);
}

#[tokio::test]
async fn what_is_excluded_is_neither_sent_nor_deleted() {
    let sides = Sides::new();
    for path in ["set/a.py", "set/a.pyc", "set/cache/x", "set/deep/b.pyc", "set/deep/b.py"] {
        fs_err::create_dir_all(sides.here(path).parent().unwrap()).unwrap();
        fs_err::write(sides.here(path), path).unwrap();
    }
    let options = || {
        let patterns = ["*.pyc".to_owned(), "/cache/".to_owned()];
        SyncOptions { excludes: Excludes::new(&patterns).unwrap(), ..deletes() }
    };
    fs_err::create_dir_all(sides.data("set/cache")).unwrap();
    fs_err::create_dir_all(sides.data("set/old")).unwrap();
    fs_err::write(sides.data("set/cache/kept"), "").unwrap();
    fs_err::write(sides.data("set/old/gone"), "").unwrap();
    sync(&sides.at_here("set"), &sides.in_data("set"), options()).await.unwrap();
    let names: Vec<String> = content(&sides.data("set")).iter().map(|(path, _)| path.display().to_string()).collect();
    assert_eq!(names, ["a.py", "cache", "cache/kept", "deep", "deep/b.py"]);
    let empty = compare(&sides.at_here("none"), &sides.in_data("set"), deletes()).await;
    assert!(empty.is_err(), "a source that does not exist deletes nothing");
    fs_err::create_dir(sides.here("empty")).unwrap();
    assert!(compare(&sides.at_here("empty"), &sides.in_data("set"), deletes()).await.unwrap().empties());
    assert!(!compare(&sides.at_here("set"), &sides.in_data("set"), deletes()).await.unwrap().empties());
}

#[tokio::test]
async fn contents_are_compared_where_they_are_asked_for() {
    let sides = Sides::new();
    fs_err::create_dir(sides.here("set")).unwrap();
    make_odd(&sides.here("set"));
    sync(&sides.at_here("set"), &sides.in_data("set"), defaults()).await.unwrap();
    let file = fs_err::File::options().write(true).open(sides.data("set/*/*")).unwrap();
    let time = file.metadata().unwrap().modified().unwrap();
    std::io::Write::write_all(&mut file.file().try_clone().unwrap(), b"X").unwrap();
    file.set_modified(time).unwrap();
    assert!(compare(&sides.at_here("set"), &sides.in_data("set"), defaults()).await.unwrap().is_nothing());
    let options = SyncOptions { checksum: true, ..defaults() };
    let found = compare(&sides.at_here("set"), &sides.in_data("set"), options.clone()).await.unwrap();
    assert_eq!(found.lines(), [("send", "*/*".to_owned())]);
    let got = sync(&sides.in_data("set"), &sides.at_here("set"), options).await.unwrap();
    assert_eq!(got.sent, 1);
}

#[tokio::test]
async fn a_host_that_lies_writes_nothing_outside() {
    let sides = Sides::new();
    fs_err::create_dir_all(sides.data("set/a")).unwrap();
    fs_err::write(sides.data("set/a/x"), "x").unwrap();
    fs_err::create_dir(sides.here("back")).unwrap();
    // While it sends, its folder becomes a link out of the copy: a link that leads out is left out, and so is what is
    // below it.
    let found = compare(&sides.in_data("set"), &sides.at_here("back"), defaults()).await.unwrap();
    fs_err::remove_dir_all(sides.data("set/a")).unwrap();
    symlink(sides.folder.path(), sides.data("set/a")).unwrap();
    let result = found.carry_out(&mut |_| {}).await;
    assert!(result.as_ref().map_or(true, |got| got.sent == 0), "{result:?}");
    assert_eq!(content(&sides.here("back")).len(), 0, "{:?}", content(&sides.here("back")));
}
