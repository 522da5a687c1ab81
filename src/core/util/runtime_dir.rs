//! Private folders for sockets, since anybody may have created one in `/tmp` first.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::fs::create_private_dir;
use crate::error::{Doing as _, Error, ErrorKind, Result};

/// Creates a folder for sockets; fails if an existing one is not private to this user.
pub fn make_runtime_dir(folder: &Path) -> Result<()> {
    let doing = || format!("use {} for sockets", folder.display());
    create_private_dir(folder).doing(ErrorKind::Host, doing)?;
    is_runtime_dir(folder).map(|_| ())
}

/// Whether this folder for sockets exists; fails if it is not private to this user, since others could listen there.
///
/// # Errors
/// If it is a symlink or not a folder, belongs to another user, or is accessible to others.
pub fn is_runtime_dir(folder: &Path) -> Result<bool> {
    let doing = || format!("use {} for sockets", folder.display());
    let metadata = match fs_err::symlink_metadata(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        metadata => metadata.doing(ErrorKind::Host, doing)?,
    };
    let me = rustix::process::getuid().as_raw();
    let wrong = if !metadata.is_dir() {
        "it is a symlink or not a folder, so gpucl did not create it".to_owned()
    } else if metadata.uid() != me {
        format!("it belongs to user {}, not to you", metadata.uid())
    } else if metadata.mode() & 0o077 != 0 {
        format!("other users can access it (mode {:04o})", metadata.mode() & 0o7777)
    } else {
        return Ok(true);
    };
    Err(Error::new(ErrorKind::Host, doing())
        .because(wrong)
        .hint("set XDG_RUNTIME_DIR to a short folder of your own with mode 0700"))
}

/// The check of the folder as a command for `ssh` to run (`Match exec`), which makes it where there is none; `None` where
/// its name cannot be handed on to every user's shell as it is.
pub fn check_for_ssh(folder: &Path) -> Option<String> {
    let name =
        folder.to_str().filter(|name| !name.contains(['\'', '"', '\\', '!']) && !name.contains(char::is_control))?;
    let (name, me) = (name.replace('%', "%%"), rustix::process::getuid().as_raw());
    Some(format!(
        "test -d '{name}' || mkdir -m 700 '{name}'; ls -ldn '{name}' | grep -q '^drwx--[-S]---[^ ]*  *[0-9]*  *{me} '"
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_folder_for_sockets_must_be_private_to_this_user() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("gpucl-1");
        assert!(!is_runtime_dir(&folder).unwrap());
        make_runtime_dir(&folder).unwrap();
        assert_eq!(fs_err::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(is_runtime_dir(&folder).unwrap());
        for mode in [0o777, 0o770, 0o755, 0o711, 0o701] {
            fs_err::set_permissions(&folder, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(
                make_runtime_dir(&folder).unwrap_err().to_string().contains("other users can access it"),
                "{mode:o}"
            );
            assert!(is_runtime_dir(&folder).is_err(), "{mode:o}");
        }
        // A symlink may point to a folder of ours, but still belongs to whoever made it.
        fs_err::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
        fs_err::os::unix::fs::symlink(&folder, above.path().join("link")).unwrap();
        assert!(make_runtime_dir(&above.path().join("link")).is_err());
        assert!(is_runtime_dir(&above.path().join("link")).is_err());
    }

    #[test]
    fn ssh_refuses_the_same_folders() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("50% of it");
        let passes = |folder: &Path| {
            // `ssh` reads `%%` as `%`.
            let check = check_for_ssh(folder).unwrap().replace("%%", "%");
            std::process::Command::new("sh").args(["-c", &check]).status().unwrap().success()
        };
        assert!(passes(&folder), "where there is none it is made");
        assert!(is_runtime_dir(&folder).unwrap());
        assert!(passes(&folder));
        fs_err::os::unix::fs::symlink(&folder, above.path().join("link")).unwrap();
        assert!(!passes(&above.path().join("link")));
        for mode in [0o777, 0o770, 0o755, 0o711, 0o701] {
            fs_err::set_permissions(&folder, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(!passes(&folder), "{mode:o}");
        }
        fs_err::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
        // Only root can make a folder of another user.
        if std::os::unix::fs::chown(&folder, Some(65534), None).is_ok() {
            assert!(!passes(&folder), "it belongs to another user");
            assert!(is_runtime_dir(&folder).is_err());
        }
        for name in ["/run/it's", "/run/\"x", "/run/a\\b", "/run/!x", "/run/a\nb"] {
            assert_eq!(check_for_ssh(Path::new(name)), None, "{name}");
        }
    }
}
