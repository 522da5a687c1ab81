//! Where playbooks and templates come from: the user's folders first, then what is built in.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::util::fs::{RECORD_LIMIT, read_within};
use crate::util::near;

/// What is built in.
#[expect(unreachable_pub, reason = "the build script writes it for any module")]
mod embedded {
    include!(concat!(env!("OUT_DIR"), "/embedded.rs"));
}

/// Where a data file was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// In a folder of the user.
    File(PathBuf),
    /// Within the program.
    BuiltIn(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(out, "{}", path.display()),
            Self::BuiltIn(name) => write!(out, "{name} (built in)"),
        }
    }
}

/// The data files, nearest folder first, the built-in ones last.
#[derive(Debug, Clone, Default)]
pub struct Library {
    folders: Vec<PathBuf>,
    /// Those of them that somebody else may have written.
    confined: Vec<PathBuf>,
}

impl Library {
    /// Makes it of the user's folders, nearest first. A folder that does not exist is no error.
    pub fn new(folders: Vec<PathBuf>) -> Self {
        Self { folders, confined: Vec::new() }
    }

    /// Takes nothing through links that lead out of this folder: what it holds is sent to hosts, and a stranger may have made it.
    #[must_use]
    pub fn confine(mut self, folder: PathBuf) -> Self {
        self.confined.push(folder);
        self
    }

    /// Reads a data file by its name, such as `playbooks/ray-native.yaml`.
    ///
    /// # Errors
    /// When no folder has it, or when a folder's file cannot be read: a file that is there is never passed over.
    pub fn read(&self, name: &str) -> Result<(Vec<u8>, Origin)> {
        let doing = || format!("read `{name}`");
        if name.split('/').any(|part| part.is_empty() || part == "..") {
            return Err(Error::new(ErrorKind::Internal, doing()).because("its name leaves the data folder"));
        }
        for folder in &self.folders {
            let path = folder.join(name);
            if self.confined.contains(folder) && leads_out(&path, folder) {
                return Err(Error::new(ErrorKind::Usage, doing())
                    .because(format!(
                        "{} is a link that leads out of {}, and would be sent to the hosts",
                        path.display(),
                        folder.display()
                    ))
                    .hint("put a copy in its place, or give a folder of your own by --data-dir"));
            }
            match read_within(&path, RECORD_LIMIT) {
                Ok(bytes) => return Ok((bytes, Origin::File(path))),
                // With a file in a folder's place the name is not there either.
                Err(error)
                    if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {}
                Err(error) => return Err(error).doing(ErrorKind::State, doing),
            }
        }
        if let Some((found, bytes)) = embedded::FILES.iter().find(|(known, _)| *known == name) {
            return Ok((bytes.to_vec(), Origin::BuiltIn((*found).to_owned())));
        }
        let mut error =
            Error::new(ErrorKind::NotFound, doing()).because("no data folder has it, and it is not built in");
        let known = self.list("")?;
        if let Some(near) = near::nearest(name, known.iter().map(String::as_str)) {
            error = error.hint(format!("did you mean `{near}`?"));
        }
        Err(error)
    }

    /// The built-in data files whose names begin with `prefix`, whatever the user's folders have.
    pub fn built_in(prefix: &str) -> impl Iterator<Item = (&'static str, &'static [u8])> {
        embedded::FILES
            .iter()
            .copied()
            .filter(move |(name, _)| name.starts_with(prefix) && !name.ends_with("/.gitkeep"))
    }

    /// Reads a data file that is text.
    pub fn read_text(&self, name: &str) -> Result<(String, Origin)> {
        let (bytes, origin) = self.read(name)?;
        let text = String::from_utf8(bytes)
            .map_err(|_| Error::new(ErrorKind::State, format!("read {origin}")).because("it is not UTF-8 text"))?;
        Ok((text, origin))
    }

    /// The names of all data files that begin with `prefix`, such as `playbooks/`, each once, in order.
    pub fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let mut names: BTreeSet<String> = embedded::FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
        for folder in &self.folders {
            for kind in ["playbooks", "templates"] {
                walk(folder, &folder.join(kind), self.confined.contains(folder), DEEPEST, &mut names)?;
            }
        }
        Ok(names.into_iter().filter(|name| name.starts_with(prefix) && !name.ends_with("/.gitkeep")).collect())
    }
}

/// What is there, and lies elsewhere. What is not there leads nowhere.
fn leads_out(path: &Path, folder: &Path) -> bool {
    match (fs_err::canonicalize(path), fs_err::canonicalize(folder)) {
        (Ok(path), Ok(folder)) => !path.starts_with(folder),
        _ => false,
    }
}

/// How deep data files lie in a folder; links that lead back to above would have no end.
const DEEPEST: u8 = 6;

fn walk(root: &Path, folder: &Path, is_confined: bool, deepest: u8, names: &mut BTreeSet<String>) -> Result<()> {
    if deepest == 0 || !folder.is_dir() || (is_confined && leads_out(folder, root)) {
        return Ok(());
    }
    let doing = || format!("list the folder {}", folder.display());
    for entry in fs_err::read_dir(folder).doing(ErrorKind::State, doing)? {
        let path = entry.doing(ErrorKind::State, doing)?.path();
        if path.is_dir() {
            walk(root, &path, is_confined, deepest - 1, names)?;
        } else if let Some(name) = path.strip_prefix(root).ok().and_then(Path::to_str) {
            names.insert(name.to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_folder_comes_first_and_the_built_in_last() {
        let (near, far) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let library = Library::new(vec![near.path().into(), far.path().into()]);
        let name = "playbooks/ray-native.yaml";
        assert_eq!(library.read(name).unwrap().1, Origin::BuiltIn(name.to_owned()));
        for folder in [&far, &near] {
            fs_err::create_dir(folder.path().join("playbooks")).unwrap();
            fs_err::write(folder.path().join(name), folder.path().display().to_string()).unwrap();
            let (text, origin) = library.read_text(name).unwrap();
            assert_eq!(text, folder.path().display().to_string());
            assert_eq!(origin, Origin::File(folder.path().join(name)));
        }
        assert_eq!(library.list("playbooks/ray-native").unwrap(), [name]);
    }

    #[test]
    fn a_folder_of_a_strangers_sends_nothing_that_lies_elsewhere() {
        let here = tempfile::tempdir().unwrap();
        let (folder, secret) = (here.path().join(".gpucl"), here.path().join("id_ed25519"));
        fs_err::write(&secret, "private").unwrap();
        fs_err::create_dir_all(folder.join("playbooks")).unwrap();
        fs_err::write(folder.join("playbooks/own.yaml"), "own").unwrap();
        for (name, to) in [
            ("file.yaml", "../../id_ed25519"),
            ("within.yaml", "own.yaml"),
            ("gone.yaml", "nowhere"),
            ("loop", ".."),
            ("out", "../.."),
        ] {
            std::os::unix::fs::symlink(to, folder.join("playbooks").join(name)).unwrap();
        }
        let trusted = Library::new(vec![folder.clone()]);
        let library = trusted.clone().confine(folder);
        for name in ["playbooks/file.yaml", "playbooks/out/id_ed25519"] {
            let error = library.read(name).unwrap_err();
            assert!(error.causes().iter().any(|cause| cause.contains("leads out of")), "{error:?}");
            assert_eq!(trusted.read(name).unwrap().0, b"private", "a folder of one's own may hold links");
        }
        assert_eq!(library.read("playbooks/within.yaml").unwrap().0, b"own");
        assert_eq!(library.read("playbooks/gone.yaml").unwrap_err().kind(), ErrorKind::NotFound);
        assert!(library.list("playbooks/").unwrap().contains(&"playbooks/own.yaml".to_owned()));
    }

    #[test]
    fn a_name_that_is_not_there_gets_its_neighbour() {
        let error = Library::default().read("playbooks/ray-nativ.yaml").unwrap_err();
        assert_eq!(error.hints(), ["did you mean `playbooks/ray-native.yaml`?"]);
        assert!(Library::default().read("../secret").is_err());
    }
}
