//! The local files that a spec sends to hosts: the user's compose files, requirements, the credentials of an external
//! store, `files`, and the folders of applications.
//!
//! Specs are shared between people. So files that a spec *sends* must be in the spec's own folder, or in one that the
//! user allowed; symlinks are resolved first. Files that are only used locally, such as an SSH key, may be anywhere.
//!
//! Only the text of a compose file leaves this machine: compose resolves the files that it names (`env_file`,
//! `include`, `file:` of a config) on the host.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use super::credentials::{external_credentials, tracking_login};
use super::place::{Problem, item, join};
use super::validate::setup::package;
use super::{Loaded, ServicesSpec, Spec, compose};
use crate::error::{Error, ErrorKind, Result};
use crate::ray::requirements_of;
use crate::util::fence::{Fence, Outside};
use crate::util::fs::{RECORD_LIMIT, read_marked_text_within, read_text_within};

/// Writes out `~` in the paths of files that the spec sends, once for all who read them. They are in the home folder then, and
/// must be allowed like any other outside the spec's own.
pub(super) fn from_home(spec: &mut Spec, home: &Path) {
    let services = spec.services.as_mut().map(ServicesSpec::credentials_files).unwrap_or_default();
    let end = spec.end.as_mut().and_then(|end| end.store.as_mut()).map(|store| &mut store.credentials_file);
    let paths = spec
        .compose
        .iter_mut()
        .map(|file| &mut file.path)
        .chain(spec.setup.iter_mut().filter_map(|setup| setup.requirements.as_mut()).map(|file| &mut file.path))
        .chain(spec.files.iter_mut().filter_map(|file| file.path.as_mut()))
        .chain(spec.serve.iter_mut().filter_map(|application| application.working_dir.as_mut()))
        .chain(services)
        .chain(end);
    for path in paths {
        *path = in_home(home, path).display().to_string();
    }
}

/// A path as a shell reads it: `~` is the home, and `~//x` is in it too.
pub(super) fn in_home(home: &Path, path: &str) -> PathBuf {
    match path.strip_prefix('~') {
        Some("") => home.to_owned(),
        Some(rest) if rest.starts_with('/') => home.join(rest.trim_start_matches('/')),
        _ => PathBuf::from(path),
    }
}

/// Reads the files that the spec in this folder sends, from there and from the allowed folders.
pub(super) fn read_beside(loaded: &mut Loaded, folder: &Path, allowed: &[PathBuf]) -> Result<()> {
    let sources = Sources { fence: Fence::new(folder, "the spec's folder", allowed)? };
    let mut problems = Vec::new();
    for (index, fragment) in loaded.spec.compose.iter_mut().enumerate() {
        match sources.compose(&fragment.path) {
            Ok(text) => fragment.text = text,
            Err(problem) => problems.push(Problem { path: item("compose", index), ..*problem }),
        }
    }
    if let Some(file) = loaded.spec.setup.as_mut().and_then(|setup| setup.requirements.as_mut()) {
        match sources.requirements(&file.path) {
            Ok(text) => file.text = text,
            Err(problem) => problems.push(Problem { path: "setup.requirements".to_owned(), ..*problem }),
        }
    }
    let Spec { services, end, .. } = &mut loaded.spec;
    let of_services = services.as_mut().and_then(ServicesSpec::external_mut);
    let of_services = of_services.map(|store| ("services.object_store.external.credentials_file", store));
    let of_end = end.as_mut().and_then(|end| end.store.as_mut()).map(|store| ("end.store.credentials_file", store));
    for (path, store) in of_services.into_iter().chain(of_end) {
        match sources.credentials(&store.credentials_file, &store.profile) {
            // Later commands read it again, possibly from another working directory.
            Ok(file) => store.credentials_file = file,
            Err(problem) => problems.push(Problem { path: path.to_owned(), ..*problem }),
        }
    }
    if let Some(path) = loaded.spec.services.as_mut().and_then(ServicesSpec::mlflow_credentials_mut) {
        match sources.login(path) {
            Ok(file) => *path = file,
            Err(problem) => {
                let path = "services.mlflow.external.credentials_file".to_owned();
                problems.push(Problem { path, ..*problem });
            }
        }
    }
    for (index, file) in loaded.spec.files.iter_mut().enumerate() {
        let Some(path) = &file.path else { continue };
        match sources.file_or_folder(path) {
            Ok(source) => file.source = Some(source),
            Err(problem) => problems.push(Problem { path: join(&item("files", index), "path"), ..*problem }),
        }
    }
    for (index, application) in loaded.spec.serve.iter_mut().enumerate() {
        let Some(path) = &application.working_dir else { continue };
        match sources.folder(path) {
            Ok(source) => application.source = Some(source),
            Err(problem) => problems.push(Problem { path: join(&item("serve", index), "working_dir"), ..*problem }),
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(loaded.places.all(problems)) }
}

/// The files that may be sent.
struct Sources {
    fence: Fence,
}

impl Sources {
    /// The text of a compose file.
    fn compose(&self, path: &str) -> Result<String, Box<Problem>> {
        let unread = |error: std::io::Error| wrong(format!("cannot be read: {error}"));
        let text = read_text_within(&self.file(path)?, RECORD_LIMIT).map_err(unread)?;
        compose::beyond(&text).map_err(|why| wrong(format!("{path} {why}")))?;
        Ok(text)
    }

    /// The lines of a requirements file and of those that it includes: each of them must be one that the spec may send.
    fn requirements(&self, path: &str) -> Result<String, Box<Problem>> {
        let refused = RefCell::new(None);
        let text = |path: &Path| {
            let file = path.to_str().ok_or_else(|| wrong("cannot be used: its path is not UTF-8".to_owned()));
            let text = file.and_then(|path| self.file(path)).and_then(|file| {
                let unread = |error: std::io::Error| wrong(format!("cannot be read: {error}"));
                read_marked_text_within(&file, RECORD_LIMIT).map_err(unread)
            });
            text.map_err(|problem| {
                refused.replace(Some(problem));
                Error::new(ErrorKind::Spec, "read requirements")
            })
        };
        let lines = requirements_of(Path::new(path), "read requirements", &text).map_err(|error| {
            let cause = error.causes().first().cloned().unwrap_or_default();
            refused.take().unwrap_or_else(|| {
                let problem = Problem::new("", cause);
                error.hints().iter().fold(problem, |problem, hint| problem.note(hint)).into()
            })
        })?;
        for line in &lines {
            package(line).map_err(|problem| Problem { message: format!("{path}: {}", problem.message), ..*problem })?;
        }
        Ok(lines.iter().map(|line| format!("{line}\n")).collect())
    }

    /// The real path of a credentials file, checked to be usable.
    fn credentials(&self, path: &str, profile: &str) -> Result<String, Box<Problem>> {
        let file = self.file(path)?;
        let file = file.to_str().ok_or_else(|| wrong("cannot be used: its path is not UTF-8".to_owned()))?;
        external_credentials(file, profile).map_err(unusable)?;
        Ok(file.to_owned())
    }

    /// The real path of a file with a login of MLflow, checked to be usable.
    fn login(&self, path: &str) -> Result<String, Box<Problem>> {
        let file = self.file(path)?;
        let file = file.to_str().ok_or_else(|| wrong("cannot be used: its path is not UTF-8".to_owned()))?;
        tracking_login(file).map_err(unusable)?;
        Ok(file.to_owned())
    }

    /// The real path of a file or folder that is sent with all that is in it.
    fn file_or_folder(&self, path: &str) -> Result<String, Box<Problem>> {
        let source = self.fence.file_or_folder(Path::new(path)).map_err(refused)?;
        source.into_os_string().into_string().map_err(|_| wrong("cannot be used: its path is not UTF-8".to_owned()))
    }

    /// The real path of a folder that is sent with all that is in it.
    fn folder(&self, path: &str) -> Result<String, Box<Problem>> {
        let source = self.file_or_folder(path)?;
        if Path::new(&source).is_dir() { Ok(source) } else { Err(wrong(format!("`{source}` is not a folder"))) }
    }

    /// The real path of the file, with symlinks resolved, if the spec may send it.
    fn file(&self, path: &str) -> Result<PathBuf, Box<Problem>> {
        self.fence.file(Path::new(path)).map_err(refused)
    }
}

fn refused(why: Outside) -> Box<Problem> {
    let problem = Problem::new("", format!("{why}"));
    match why {
        Outside::Unread(_) => problem.into(),
        Outside::Beyond { allow, .. } => {
            let message = format!("{}, but would be sent to the hosts", problem.message);
            Problem { message, ..problem }.note(format!("to allow this, add: --allow-path {}", allow.display())).into()
        }
    }
}

fn unusable(error: Error) -> Box<Problem> {
    let cause = error.causes().first().cloned().unwrap_or_default();
    wrong(format!("cannot be used: {cause}"))
}

fn wrong(message: String) -> Box<Problem> {
    Problem::new("", message).into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::spec::any_provider::find;
    use crate::spec::{ExternalStore, ObjectStoreSpec, Switchable, parse};

    const COMPOSE: &str = "services: {mlflow: {image: \"mlflow:2.1\"}}\n";
    const KEYS: &str = "[default]\naws_access_key_id = A\naws_secret_access_key = B\n";

    /// A home folder with credentials, and a project in it with the spec.
    struct Bench {
        root: tempfile::TempDir,
    }

    impl Bench {
        fn new() -> Self {
            let bench = Self { root: tempfile::tempdir().unwrap() };
            for (name, text) in [
                ("mine/more.yaml", COMPOSE),
                ("mine/.s3", KEYS),
                ("mine/.hidden/more.yaml", COMPOSE),
                ("lab/more.yaml", COMPOSE),
                ("lab/keys", KEYS),
                (".aws/credentials", KEYS),
            ] {
                let path = bench.at(name);
                fs_err::create_dir_all(path.parent().unwrap()).unwrap();
                fs_err::write(path, text).unwrap();
            }
            symlink(bench.at("lab/more.yaml"), bench.at("mine/link.yaml")).unwrap();
            symlink(bench.at("lab"), bench.at("mine/folder")).unwrap();
            symlink(bench.at("mine/more.yaml"), bench.at("mine/inner.yaml")).unwrap();
            symlink("/dev/zero", bench.at("mine/zero.yaml")).unwrap();
            bench
        }

        fn at(&self, name: &str) -> PathBuf {
            self.root.path().join(name)
        }

        fn read(&self, folder: &str, allowed: &[&str], change: impl FnOnce(&mut Loaded)) -> Result<Loaded> {
            let mut loaded = parse("cluster.yaml", "name: x\n", &find).unwrap();
            change(&mut loaded);
            let allowed: Vec<PathBuf> = allowed.iter().map(|name| self.at(name)).collect();
            read_beside(&mut loaded, &self.at(folder), &allowed).map(|()| loaded)
        }

        fn compose(&self, folder: &str, path: &str, allowed: &[&str]) -> Result<Loaded> {
            let fragment = crate::spec::Fragment { path: path.to_owned(), text: String::new() };
            self.read(folder, allowed, |loaded| loaded.spec.compose = vec![fragment])
        }

        fn credentials(&self, folder: &str, path: &str, allowed: &[&str]) -> Result<Loaded> {
            let external = ExternalStore {
                endpoint: "https://s3.example.org".to_owned(),
                region: "x".to_owned(),
                credentials_file: path.to_owned(),
                profile: "default".to_owned(),
            };
            let store = ObjectStoreSpec { external: Some(external), ..ObjectStoreSpec::default() };
            let services = ServicesSpec { object_store: Some(Switchable::Settings(store)), ..ServicesSpec::default() };
            self.read(folder, allowed, |loaded| loaded.spec.services = Some(services))
        }
    }

    #[test]
    fn a_spec_sends_only_files_in_its_own_folder() {
        let bench = Bench::new();
        let absolute = bench.at("lab/more.yaml").display().to_string();
        for path in ["../lab/more.yaml", absolute.as_str(), "link.yaml", "folder/more.yaml", "folder/../lab/more.yaml"]
        {
            let error = bench.compose("mine", path, &[]).unwrap_err().to_string();
            assert!(error.contains("compose[0]: `") && error.contains("outside the spec's folder"), "{path}: {error}");
        }
        for path in ["more.yaml", "./more.yaml", "../mine/more.yaml", "inner.yaml"] {
            assert_eq!(bench.compose("mine", path, &[]).unwrap().spec.compose[0].text, COMPOSE, "{path}");
        }
        for path in ["../lab/keys", "folder/keys", "../.aws/credentials"] {
            let error = bench.credentials("mine", path, &[]).unwrap_err().to_string();
            assert!(error.contains("credentials_file: `") && error.contains("outside"), "{path}: {error}");
        }
        assert!(bench.credentials("mine", ".s3", &[]).is_ok());
    }

    #[test]
    fn every_file_that_requirements_include_must_be_one_that_the_spec_may_send() {
        let bench = Bench::new();
        let read = |lines: &str, allowed: &[&str]| {
            fs_err::write(bench.at("mine/needs.txt"), lines).unwrap();
            let file = crate::spec::Fragment { path: "needs.txt".to_owned(), text: String::new() };
            let setup = crate::spec::SetupSpec { requirements: Some(file), ..crate::spec::SetupSpec::default() };
            bench.read("mine", allowed, |loaded| loaded.spec.setup = Some(setup))
        };
        fs_err::write(bench.at("lab/base.txt"), "numpy<3\n-r more.txt\n").unwrap();
        fs_err::write(bench.at("lab/more.txt"), "toolz\n").unwrap();
        for lines in ["-r ../lab/base.txt", "-r folder/base.txt", "torch\n--requirement=../.aws/credentials"] {
            let error = read(lines, &[]).unwrap_err().to_string();
            assert!(error.contains("setup.requirements: `") && error.contains("outside the spec's folder"), "{error}");
        }
        let loaded = read("torch  # pinned later\n-r ../lab/base.txt\ntorch\n", &["lab"]).unwrap();
        assert_eq!(loaded.spec.setup().unwrap().packages(), ["torch", "numpy<3", "toolz"]);
        for (lines, why) in [
            ("-r needs.txt", "includes itself"),
            ("-c versions.txt", "names a file on this machine"),
            ("-e .", "editable"),
            ("./x.whl", "a path of this machine"),
            ("-r none.txt", "cannot be read"),
            ("--extra-index-url https://me:hush@example.org/simple", "a URL with a password"),
        ] {
            let error = read(lines, &[]).unwrap_err();
            assert!(error.to_string().contains(why), "{lines}: {error}");
            assert!(!format!("{error:?}").contains("hush"), "{error:?}");
        }
    }

    /// For a spec in the home folder, the home folder is its own folder.
    #[test]
    fn files_in_hidden_folders_are_not_sent() {
        let bench = Bench::new();
        let error = bench.credentials("", ".aws/credentials", &[]).unwrap_err().to_string();
        assert!(error.contains("is in a hidden folder"), "{error}");
        assert!(bench.compose("mine", ".hidden/more.yaml", &[]).is_err());
        assert!(bench.credentials("", "lab/keys", &[]).is_ok());
        assert!(bench.credentials("", ".aws/credentials", &[".aws"]).is_ok());
    }

    #[test]
    fn a_path_in_the_home_folder_is_one_of_another_folder() {
        let bench = Bench::new();
        let files = |path: &str, allowed: &[&str]| {
            bench.read("mine", allowed, |loaded| {
                let file =
                    crate::spec::FileSpec { path: Some(path.to_owned()), to: "x".to_owned(), ..Default::default() };
                loaded.spec.files = vec![file];
                from_home(&mut loaded.spec, bench.root.path());
            })
        };
        let real = fs_err::canonicalize(bench.at("lab/more.yaml")).unwrap().display().to_string();
        for path in ["~/lab/more.yaml", "~//lab/more.yaml"] {
            let error = files(path, &[]).unwrap_err().to_string();
            assert!(error.contains("files[0].path: `") && error.contains("outside the spec's folder"), "{error}");
            let loaded = files(path, &["lab"]).unwrap();
            assert_eq!(loaded.spec.files[0].source.as_deref(), Some(&*real));
        }
        assert!(files("~/mine/.s3", &[]).is_ok(), "the spec's own folder");
        assert!(files("~", &[]).is_err());
        // Neither another user's home nor a file of that name.
        fs_err::write(bench.at("mine/~x"), "").unwrap();
        assert!(files("~x", &[]).is_ok() && files("~nobody/x", &[]).is_err());
        let loaded = bench.read("mine", &["lab"], |loaded| {
            loaded.spec.compose =
                vec![crate::spec::Fragment { path: "~/lab/more.yaml".to_owned(), text: String::new() }];
            from_home(&mut loaded.spec, bench.root.path());
        });
        assert_eq!(loaded.unwrap().spec.compose[0].text, COMPOSE);
    }

    #[test]
    fn users_may_allow_other_folders() {
        let bench = Bench::new();
        for path in ["../lab/more.yaml", "link.yaml", "folder/more.yaml"] {
            assert_eq!(bench.compose("mine", path, &["lab"]).unwrap().spec.compose[0].text, COMPOSE, "{path}");
        }
        // If named by a symlink, the link's target is allowed.
        assert!(bench.compose("mine", "link.yaml", &["mine/folder"]).is_ok());
        assert!(bench.compose("mine", "link.yaml", &["mine", ".aws"]).is_err());
        let loaded = bench.credentials("mine", "folder/keys", &["lab"]).unwrap();
        let store = loaded.spec.services().object_store.settings().unwrap();
        let real = fs_err::canonicalize(bench.at("lab/keys")).unwrap();
        assert_eq!(Path::new(&store.external.unwrap().credentials_file), real);
        for wrong in ["nowhere", "lab/keys"] {
            let error = bench.compose("mine", "more.yaml", &[wrong]).unwrap_err();
            assert!(error.hints()[0].contains("--allow-path takes an existing folder"), "{error}");
        }
    }

    #[test]
    fn only_a_regular_file_of_a_sensible_size_is_sent() {
        let bench = Bench::new();
        let pipe = bench.at("mine/pipe.yaml");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        fs_err::write(bench.at("mine/large.yaml"), format!("{COMPOSE}#{}", "x".repeat(1 << 20))).unwrap();
        fs_err::write(bench.at("mine/large"), format!("{KEYS}#{}", "x".repeat(1 << 16))).unwrap();
        for (path, why) in [
            ("pipe.yaml", "only regular files are read"),
            ("large.yaml", "larger than 1.0 MiB"),
            ("none.yaml", "cannot be read"),
        ] {
            let error = bench.compose("mine", path, &[]).unwrap_err().to_string();
            assert!(error.contains(why), "{path}: {error}");
        }
        let text = |error: Error| error.to_string();
        assert!(text(bench.credentials("mine", "pipe.yaml", &[]).unwrap_err()).contains("only regular files"));
        assert!(text(bench.credentials("mine", "large", &[]).unwrap_err()).contains("larger than 64.0 KiB"));
        // A device is refused even in an allowed folder.
        let mut loaded = parse("cluster.yaml", "name: x\n", &find).unwrap();
        loaded.spec.compose = vec![crate::spec::Fragment { path: "zero.yaml".to_owned(), text: String::new() }];
        let error = read_beside(&mut loaded, &bench.at("mine"), &[PathBuf::from("/dev")]).unwrap_err();
        assert!(error.to_string().contains("only regular files are read"), "{error}");
    }
}
