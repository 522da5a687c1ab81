//! Paths on a host that are copied to and from: of the login user, of root, or within a cluster's data folder.
//!
//! A job may write in the data folder, so no link there is followed, and the session first becomes the folder's owner:
//! what a job could do to the path, it could do to its own files anyway.

use crate::render::quote_path;
use crate::util::text::quoted;

/// The exit code of a program whose path does not exist.
pub(in crate::host) const ABSENT: i32 = 3;

/// Goes to the folder $way below the data folder, part by part and through no link, and makes it where $make is set.
/// A job may write there, and exchange a folder for a link at any moment, so the folder that was entered is checked.
/// Exits with [`ABSENT`] when a part of the way does not exist.
const ENTER: &str = r#"
set -eu
top=$(pwd -P)
enter() {
    rest=$1
    while [ -n "$rest" ]; do
        part=${rest%%/*}
        case $rest in */*) rest=${rest#*/} ;; *) rest= ;; esac
        case $part in '' | .) continue ;; esac
        if [ -L "./$part" ]; then echo "$part is a link there; nothing was copied" >&2; exit 1; fi
        if [ ! -e "./$part" ]; then
            [ -n "$make" ] || { echo "$shown does not exist there" >&2; exit 3; }
            mkdir "./$part"
        fi
        [ -d "./$part" ] || { echo "$part is not a folder there" >&2; exit 1; }
        cd -P "./$part"
    done
    case $(pwd -P)/ in
        "$top"/*) ;;
        *) echo "$shown is not in the data folder there; nothing was copied" >&2; exit 1 ;;
    esac
}
enter "$way"
if [ -n "$make" ] && [ -n "$name" ] && [ -L "./$name" ]; then
    echo "$name is a link there; nothing was copied" >&2
    exit 1
fi
if [ -n "$make" ] && [ -n "$name" ] && [ -d "./$name" ]; then
    enter "$name"
    name=
fi
goal=./$name
"#;

/// A path on a host, and who reads or writes there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostPath<'a> {
    /// The path: absolute, or relative to the login user's home folder, or to `within`.
    pub path: &'a str,
    /// The folder that the path is relative to and does not leave: absolute, or `~/…`. Its owner reads and writes
    /// there, through no link.
    pub within: Option<&'a str>,
    /// Whether the session becomes root, if only to become the owner of `within`.
    pub is_root: bool,
}

impl<'a> HostPath<'a> {
    /// A path of the login user, or of root.
    pub fn plain(path: &'a str, is_root: bool) -> Self {
        Self { path, within: None, is_root }
    }

    /// The folder of the path, and the name in it, which is empty when the path is that folder.
    fn parts(&self) -> (&'a str, &'a str) {
        match self.path.rsplit_once('/') {
            _ if matches!(self.path, "." | "") => ("", ""),
            Some(parts) => parts,
            None => ("", self.path),
        }
    }

    /// The shell program that enters the path's folder within its data folder, and sets `goal`.
    pub(in crate::host) fn enter(&self, makes_folders: bool, is_folder: bool) -> String {
        let (way, name) = if is_folder { (self.path, "") } else { self.parts() };
        let make = if makes_folders { "1" } else { "" };
        format!("way={}\nname={}\nmake={make}\nshown={}\n{ENTER}", quoted(way), quoted(name), quoted(self.path))
    }

    /// The command that runs a program of this length, which it reads from its input.
    pub fn command(&self, length: usize) -> String {
        let run = format!("eval \"$(dd bs=1 count={length} 2>/dev/null)\"");
        let Some(folder) = self.within else { return format!("sh -c {}", quoted(&run)) };
        let run = format!("sh -c {}", quoted(&run));
        let all = format!(
            "cd {} 2>/dev/null || {{ echo 'there is no data folder there; `gpucl up` makes it' >&2; exit 1; }}; \
             if [ \"$(id -u)\" = 0 ]; then \
             exec setpriv --reuid=\"$(stat -c %u .)\" --regid=\"$(stat -c %g .)\" --clear-groups --no-new-privs {run}; \
             fi; exec {run}",
            quote_path(folder)
        );
        format!("sh -c {}", quoted(&all))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::process::{Command, Stdio};

    use super::*;

    /// Runs a program at a path of this machine, as over SSH; returns its output, or its last error.
    fn at(data: &Path, path: &str, makes_folders: bool) -> Result<String, String> {
        let data = data.display().to_string();
        let path = HostPath { path, within: Some(&data), is_root: false };
        let program =
            format!("{}printf '%s %s' \"$(pwd -P)\" \"$goal\"", path.enter(makes_folders, path.path.ends_with('/')));
        let mut shell = Command::new("sh");
        shell.args(["-c", &path.command(program.len())]).stdin(Stdio::piped());
        let mut shell = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        shell.stdin.take().unwrap().write_all(program.as_bytes()).unwrap();
        let output = shell.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().trim().to_owned();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    #[test]
    fn a_path_leads_into_the_data_folder_and_makes_what_is_missing() {
        let here = tempfile::tempdir().unwrap();
        let data = here.path().canonicalize().unwrap().join("it's data");
        assert!(at(&data, "x", true).unwrap_err().contains("there is no data folder there"));
        fs_err::create_dir_all(data.join("there")).unwrap();
        let shown = data.display();
        assert_eq!(at(&data, "x", true).unwrap(), format!("{shown} ./x"));
        assert_eq!(at(&data, "a/b/c", true).unwrap(), format!("{shown}/a/b ./c"));
        assert_eq!(at(&data, "a b/", true).unwrap(), format!("{shown}/a b ./"));
        assert_eq!(at(&data, "there", true).unwrap(), format!("{shown}/there ./"));
        assert_eq!(at(&data, "there", false).unwrap(), format!("{shown} ./there"));
        assert_eq!(at(&data, ".", true).unwrap(), format!("{shown} ./"));
        assert!(at(&data, "none/x", false).unwrap_err().contains("none/x does not exist there"));
        assert!(!data.join("none").exists());
    }

    #[test]
    fn no_link_that_a_job_left_is_followed() {
        let here = tempfile::tempdir().unwrap();
        let data = here.path().join("data");
        fs_err::create_dir_all(here.path().join("home/.ssh")).unwrap();
        std::fs::create_dir(&data).unwrap();
        symlink(here.path().join("home"), data.join("out")).unwrap();
        for path in ["out/x", "out/", "out/.ssh/authorized_keys", "./out/.ssh/"] {
            assert!(at(&data, path, true).unwrap_err().contains("out is a link there"), "{path}");
            assert!(at(&data, &format!("{path}x"), false).is_err(), "{path}");
        }
        assert!(at(&data, "out", true).unwrap_err().contains("out is a link there"));
    }
}
