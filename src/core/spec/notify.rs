//! Reads where `notify` leads: the URL in its file, and the program with the files of the spec's folder that it names.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::beside::in_home;
use super::model::webhook_fault;
use super::{Loaded, NotifySpec, Route, Webhook};
use crate::error::Result;
use crate::util::digest;
use crate::util::fs::{RECORD_LIMIT, open_regular, read_own_text_within, resolve};

/// The largest file of a command whose content is part of an answer, in bytes.
const LARGEST: u64 = 1 << 30;

/// Reads where `notify` of a spec in this folder leads, and writes that into the spec.
pub(super) fn read_route(loaded: &mut Loaded, folder: &Path, home: Option<&Path>) -> Result<()> {
    let Some(notify) = &mut loaded.spec.notify else { return Ok(()) };
    match route(notify, folder, home.unwrap_or(Path::new(""))) {
        Ok(route) => notify.route = Some(route),
        Err((place, why)) => return Err(loaded.places.error(place, why)),
    }
    Ok(())
}

fn route(notify: &NotifySpec, folder: &Path, home: &Path) -> Result<Route, (&'static str, String)> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let unknown = |error: std::io::Error| ("notify", format!("cannot be used: {error}"));
    let folder = resolve(folder).map_err(unknown)?.unwrap_or_else(|| folder.to_owned());
    match &notify.webhook {
        Some(Webhook::Url(url)) => Ok(Route::Webhook { url: url.expose().to_owned() }),
        Some(Webhook::File { file }) => {
            let url = url_in(&folder.join(in_home(home, file))).map_err(|why| ("notify.webhook.file", why))?;
            Ok(Route::Webhook { url })
        }
        None => command(&notify.command, folder, home).map_err(|why| ("notify.command", why)),
    }
}

/// The URL in the first line of a file that only this user can read. What is wrong with it is said without it.
fn url_in(file: &Path) -> Result<String, String> {
    let text = read_own_text_within(file, RECORD_LIMIT).map_err(|error| format!("cannot be used: {error}"))?;
    let mode = fs_err::metadata(file).map_err(|error| error.to_string())?.mode();
    if mode & 0o077 != 0 {
        return Err(format!("can be read or changed by others: chmod 600 {}", file.display()));
    }
    let url = text.lines().next().unwrap_or_default().trim();
    match webhook_fault(url) {
        Some(fault) => Err(format!("cannot be used: its first line {fault}")),
        None => Ok(url.to_owned()),
    }
}

/// The program, by an absolute path where a path was given, and the digests of the files in the spec's folder that it names.
fn command(words: &[String], folder: PathBuf, home: &Path) -> Result<Route, String> {
    let mut command = words.to_vec();
    if let Some(program) = command.first_mut().filter(|program| program.contains('/')) {
        let path = folder.join(in_home(home, program));
        let is_program = fs_err::metadata(&path).is_ok_and(|data| data.is_file() && data.mode() & 0o111 != 0);
        if !is_program {
            return Err(format!("`{program}` is no program that can be run"));
        }
        *program = path.display().to_string();
    }
    let mut files = Vec::new();
    for path in words.iter().map(|word| folder.join(word)).filter(|path| path.starts_with(&folder) && path.is_file()) {
        let unread = |error: std::io::Error| format!("cannot be used: {error}");
        if open_regular(&path).and_then(|file| file.metadata()).map_err(unread)?.len() > LARGEST {
            return Err(format!("names {}, which is larger than 1 GiB", path.display()));
        }
        let digest = digest::of_file(&path).map_err(unread)?;
        files.push((path, digest));
    }
    Ok(Route::Command { command, folder, files })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::spec::any_provider::find;
    use crate::spec::{Allowed, load};

    struct Bench(tempfile::TempDir);

    impl Bench {
        fn write(&self, name: &str, text: &str, mode: u32) {
            let path = self.0.path().join(name);
            fs_err::write(&path, text).unwrap();
            fs_err::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }

        fn route(&self, notify: &str) -> Result<Route, String> {
            self.write("cluster.yaml", &format!("name: demo\nnotify: {notify}\n"), 0o644);
            let allowed = Allowed { home: Some(self.0.path()), ..Allowed::default() };
            let loaded = load(&self.0.path().join("cluster.yaml"), allowed, &find);
            let loaded = loaded.map_err(|error| error.shown_snippet().unwrap_or_default().to_owned())?;
            Ok(loaded.spec.notify.unwrap().route.unwrap())
        }
    }

    #[test]
    fn the_url_of_a_webhook_is_the_first_line_of_a_private_file() {
        let bench = Bench(tempfile::tempdir().unwrap());
        bench.write("url", "https://hooks.example.org/s3cr3t\nmore\n", 0o600);
        let route = Route::Webhook { url: "https://hooks.example.org/s3cr3t".to_owned() };
        assert_eq!(bench.route("{webhook: {file: url}}"), Ok(route.clone()));
        assert_eq!(bench.route("{webhook: {file: ~/url}}"), Ok(route.clone()));
        assert_eq!(format!("{route:?}"), "hooks.example.org");
        bench.write("open", "https://hooks.example.org/s3cr3t\n", 0o640);
        bench.write("other", "s3cr3t\n", 0o600);
        for (file, why) in [("open", "chmod 600"), ("other", "its first line is not a URL"), ("gone", "cannot be used")]
        {
            let error = bench.route(&format!("{{webhook: {{file: {file}}}}}")).unwrap_err();
            assert!(error.contains("notify.webhook.file: ") && error.contains(why), "{error}");
            assert!(!error.contains("s3cr3t"), "{error}");
        }
    }

    #[test]
    fn a_command_is_bound_to_the_files_of_the_folder_that_it_names() {
        let bench = Bench(tempfile::tempdir().unwrap());
        let folder = resolve(bench.0.path()).unwrap().unwrap();
        bench.write("notify.sh", "#!/bin/sh\n", 0o755);
        let route = bench.route("{command: [./notify.sh, --quiet]}").unwrap();
        assert_eq!((route.changed(), route.place()), (None, folder.join("./notify.sh").display().to_string()));
        bench.write("notify.sh", "#!/bin/sh\ntrue\n", 0o755);
        assert_eq!(route.changed(), Some(folder.join("./notify.sh").as_path()));
        // A program of the system may be updated; a script that it is given may not.
        let Ok(Route::Command { command, files, .. }) = bench.route("{command: [/bin/sh, notify.sh]}") else {
            panic!()
        };
        assert_eq!((command[0].as_str(), files.len(), &files[0].0), ("/bin/sh", 1, &folder.join("notify.sh")));
        bench.write("notify.sh", "", 0o644);
        for program in ["./notify.sh", "./gone", "/"] {
            let error = bench.route(&format!("{{command: [{program}]}}")).unwrap_err();
            assert!(error.contains("notify.command: ") && error.contains("no program"), "{error}");
        }
    }
}
