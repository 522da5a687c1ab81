//! The folder of an export, as input: it may be of a stranger, so that nothing of it is believed before it was checked.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use super::record::{Content, Experiment, Listed, LoggedModel, Manifest, Point, Registered, Run};
use super::{LAYOUT, MANIFEST};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::s3::local_path;
use crate::util::digest;
use crate::util::folder::{FOLDER, step};
use crate::util::text::printable_line;

/// The largest manifest or record, in bytes: it is held in memory.
const RECORD_LIMIT: u64 = 64 << 20;
/// The longest line of a file of metrics, in bytes; a name has at most 250 characters.
const LINE_LIMIT: u64 = 16 << 10;
/// The most items of one kind.
const MOST_ITEMS: usize = 1_000_000;
/// The highest number of a version; those before it that were deleted are made and deleted again.
const HIGHEST_VERSION: u32 = 10_000;

/// An export that was read and checked.
#[derive(Debug)]
pub(super) struct Source {
    top: OwnedFd,
    path: PathBuf,
    pub(super) manifest: Manifest,
    pub(super) experiments: BTreeMap<String, Experiment>,
    pub(super) runs: BTreeMap<String, Run>,
    pub(super) logged_models: BTreeMap<String, LoggedModel>,
    /// The registered models, each with its folder.
    pub(super) registered: Vec<(String, Registered)>,
}

impl Source {
    /// Reads and checks an export.
    ///
    /// # Errors
    /// If it is not whole, or has something that an export has not.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let doing = || format!("read the export {}", path.display());
        // The folder that the user named may be a link; nothing in it may.
        let top = rustix::fs::open(path, FOLDER.difference(OFlags::NOFOLLOW), Mode::empty())
            .map_err(std::io::Error::from)
            .doing(ErrorKind::Usage, doing)?;
        let manifest = Manifest::new(String::new(), "");
        let (experiments, runs, logged_models) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let registered = Vec::new();
        let mut source = Self { top, path: path.to_owned(), manifest, experiments, runs, logged_models, registered };
        source.read().map_err(|error| error.while_doing(doing()).hint("nothing was changed"))?;
        Ok(source)
    }

    /// A file of the export, to be read from its beginning.
    pub(super) fn file(&self, path: &str) -> Result<File> {
        let doing = || format!("read {} of the export {}", printable_line(path), self.path.display());
        let below = local_path(path).ok_or_else(|| wrong(format!("`{}` leads out of it", printable_line(path))))?;
        let (above, name) = (below.parent().unwrap_or(Path::new("")), below.file_name().unwrap_or_default());
        let open = || -> std::io::Result<File> {
            let mut folder = self.top.try_clone()?;
            for part in above {
                folder = step(folder.as_fd(), part)?;
            }
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = File::from(rustix::fs::openat(&folder, OsStr::new(name), flags, Mode::empty())?);
            match file.metadata()?.is_file() {
                true => Ok(file),
                false => Err(std::io::Error::other("it is not a file")),
            }
        };
        open().map_err(|error| match error.raw_os_error() {
            Some(code) if code == rustix::io::Errno::LOOP.raw_os_error() => {
                Error::new(ErrorKind::Usage, doing()).because("it is a link")
            }
            _ => Error::new(ErrorKind::Usage, doing()).caused_by(&error),
        })
    }

    /// The points of a run's metrics, in pieces of at most `most`.
    pub(super) fn points(&self, run: &str, most: usize) -> Result<impl Iterator<Item = Result<Vec<Point>>>> {
        let mut lines = BufReader::new(self.file(&format!("runs/{run}/metrics.jsonl"))?);
        let mut number = 0;
        let run = run.to_owned();
        let next = move || -> Result<Vec<Point>> {
            let (mut points, mut line) = (Vec::new(), Vec::new());
            while points.len() < most {
                line.clear();
                let doing = || format!("read the metrics of run {run}");
                (&mut lines).take(LINE_LIMIT).read_until(b'\n', &mut line).doing(ErrorKind::Usage, doing)?;
                if line.is_empty() {
                    break;
                }
                number += 1;
                let point: Point = serde_json::from_slice(&line)
                    .doing(ErrorKind::Usage, || format!("read line {number} of the metrics of run {run}"))?;
                let is_value = point.value.is_number() || point.value == "NaN";
                if !is_value {
                    return Err(wrong(format!("line {number} of the metrics of run {run} has no number")));
                }
                points.push(point);
            }
            Ok(points)
        };
        let mut next = next;
        Ok(std::iter::from_fn(move || Some(next()).filter(|points| !matches!(points, Ok(points) if points.is_empty()))))
    }

    /// The size of all artifacts.
    pub(super) fn bytes(&self) -> u64 {
        self.artifacts().map(|(_, file)| file.size).fold(0, u64::saturating_add)
    }

    /// All artifacts, each with its folder.
    fn artifacts(&self) -> impl Iterator<Item = (String, &Listed)> {
        fn each(folder: String, files: &[Listed]) -> impl Iterator<Item = (String, &Listed)> {
            files.iter().map(move |file| (folder.clone(), file))
        }
        let runs = self.runs.values().flat_map(|run| each(format!("runs/{}", run.id), &run.artifacts));
        let models =
            self.logged_models.values().flat_map(|one| each(format!("logged-models/{}", one.id), &one.artifacts));
        let versions = self.registered.iter().flat_map(|(folder, model)| {
            model.versions.iter().filter_map(move |version| match &version.content {
                Content::Own(files) => Some(each(format!("{folder}/{}", version.version), files)),
                _ => None,
            })
        });
        runs.chain(models).chain(versions.flatten())
    }

    fn read(&mut self) -> Result<()> {
        let text = self.text(MANIFEST).map_err(|error| {
            error.because(format!("a whole export has {MANIFEST}, which `gpucl mlflow export` writes last"))
        })?;
        self.manifest = parsed(MANIFEST, &text)?;
        if self.manifest.kind != Manifest::KIND {
            return Err(wrong(format!("{MANIFEST} is not that of an export")));
        }
        version(MANIFEST, self.manifest.v)?;
        let records = std::mem::take(&mut self.manifest.records);
        if records.len() > MOST_ITEMS {
            return Err(wrong(format!("it has more than {MOST_ITEMS} records")));
        }
        let mut metrics = BTreeSet::new();
        for record in &records {
            self.check(&record.path, record)?;
            let parts: Vec<&str> = record.path.split('/').collect();
            match parts.as_slice() {
                ["experiments", file] => {
                    let one: Experiment = self.parse(record)?;
                    is_of(record, one.v, &one.id, file.strip_suffix(".json"))?;
                    self.experiments.insert(one.id.clone(), one);
                }
                ["runs", id, "run.json"] => {
                    let one: Run = self.parse(record)?;
                    is_of(record, one.v, &one.id, Some(id))?;
                    self.runs.insert(one.id.clone(), one);
                }
                ["runs", id, "metrics.jsonl"] => {
                    metrics.insert((*id).to_owned());
                }
                ["logged-models", id, "model.json"] => {
                    let one: LoggedModel = self.parse(record)?;
                    is_of(record, one.v, &one.id, Some(id))?;
                    self.logged_models.insert(one.id.clone(), one);
                }
                ["registry", index, "model.json"] if index.parse::<usize>().is_ok() => {
                    let one: Registered = self.parse(record)?;
                    version(&record.path, one.v)?;
                    self.registered.push((format!("registry/{index}"), one));
                }
                _ => return Err(wrong(format!("`{}` is no file of an export", printable_line(&record.path)))),
            }
        }
        self.manifest.records = records;
        self.fits_together(&metrics)?;
        for (folder, file) in self.artifacts() {
            let has_escape = file
                .path
                .as_bytes()
                .windows(3)
                .any(|it| it[0] == b'%' && it[1].is_ascii_hexdigit() && it[2].is_ascii_hexdigit());
            // A server decodes names more than once.
            if local_path(&file.path).is_none() || has_escape || file.path.contains('\\') {
                return Err(wrong(format!("`{}` is no name of an artifact", printable_line(&file.path))));
            }
            self.check(&format!("{folder}/artifacts/{}", file.path), file)?;
        }
        for run in &metrics {
            self.points(run, 1000)?.try_for_each(|points| points.map(drop))?;
        }
        Ok(())
    }

    /// Checks that what refers to something refers to what is there.
    fn fits_together(&self, metrics: &BTreeSet<String>) -> Result<()> {
        let no_experiment = |id: &str| !self.experiments.contains_key(id);
        for run in self.runs.values() {
            if no_experiment(&run.experiment) || !metrics.contains(&run.id) {
                return Err(wrong(format!("run {} has no experiment or no metrics.jsonl in it", run.id)));
            }
        }
        if let Some(model) = self.logged_models.values().find(|model| no_experiment(&model.experiment)) {
            return Err(wrong(format!("the logged model {} has no experiment in it", model.id)));
        }
        let mut names = BTreeSet::new();
        for (_, model) in &self.registered {
            let shown = printable_line(&model.name);
            if !names.insert(&model.name) {
                return Err(wrong(format!("it has the registered model {shown} twice")));
            }
            let mut before = 0;
            for version in &model.versions {
                if version.version <= before || version.version > HIGHEST_VERSION {
                    return Err(wrong(format!("the versions of {shown} are not ascending up to {HIGHEST_VERSION}")));
                }
                before = version.version;
                let (is_there, path) = match &version.content {
                    Content::Run { id, path } => (self.runs.contains_key(id), path.as_str()),
                    Content::LoggedModel { id, path } => (self.logged_models.contains_key(id), path.as_str()),
                    Content::Own(_) => (true, ""),
                    Content::At(uri) => (is_remote(uri), ""),
                };
                if !is_there || !(path.is_empty() || local_path(path).is_some()) {
                    return Err(wrong(format!("version {before} of {shown} has no content in it")));
                }
            }
        }
        Ok(())
    }

    /// Checks a file's size and digest.
    fn check(&self, path: &str, listed: &Listed) -> Result<()> {
        let mut file = self.file(path)?;
        let doing = || format!("read {}", printable_line(path));
        let (mut hash, mut size, mut piece) = (Sha256::new(), 0, vec![0; 256 << 10]);
        loop {
            let read = file.read(&mut piece).doing(ErrorKind::Usage, doing)?;
            size += read as u64;
            if read == 0 || size > listed.size {
                break;
            }
            hash.update(&piece[..read]);
        }
        let digest = digest::hex(&hash.finalize());
        if size != listed.size || digest != listed.sha256 {
            return Err(wrong(format!("{} is not as it was written", printable_line(path))));
        }
        Ok(())
    }

    fn parse<T: DeserializeOwned>(&self, record: &Listed) -> Result<T> {
        parsed(&record.path, &self.text(&record.path)?)
    }

    fn text(&self, path: &str) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let read = self.file(path)?.take(RECORD_LIMIT + 1).read_to_end(&mut bytes);
        let read = read.doing(ErrorKind::Usage, || format!("read {path}"))?;
        match read as u64 <= RECORD_LIMIT {
            true => Ok(bytes),
            false => Err(wrong(format!("{path} is larger than {RECORD_LIMIT} bytes"))),
        }
    }
}

/// Whether a text is an id as MLflow makes them.
pub(super) fn is_id(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.chars().all(|it| it.is_ascii_alphanumeric() || it == '-' || it == '_')
}

/// Whether a URI leads to another service, and to no file or item of the server.
fn is_remote(uri: &str) -> bool {
    uri.split_once("://").is_some_and(|(scheme, _)| {
        let is_scheme = !scheme.is_empty() && scheme.chars().all(|it| it.is_ascii_alphanumeric());
        is_scheme && !matches!(scheme.to_ascii_lowercase().as_str(), "file" | "runs" | "models")
    })
}

fn parsed<T: DeserializeOwned>(path: &str, text: &[u8]) -> Result<T> {
    serde_json::from_slice(text).doing(ErrorKind::Usage, || format!("read {}", printable_line(path)))
}

fn version(path: &str, version: u32) -> Result<()> {
    match version {
        LAYOUT => Ok(()),
        _ => Err(wrong(format!("{path} has the layout {version}, and this gpucl reads {LAYOUT}"))),
    }
}

fn is_of(record: &Listed, v: u32, id: &str, path: Option<&str>) -> Result<()> {
    version(&record.path, v)?;
    match is_id(id) && path == Some(id) {
        true => Ok(()),
        false => Err(wrong(format!("{} is of another item", printable_line(&record.path)))),
    }
}

fn wrong(why: String) -> Error {
    Error::new(ErrorKind::Usage, "read an export of MLflow").because(why)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::{Value, json};

    use super::*;

    /// An export with a run, an artifact and a registered model, changed by `change` before its digests are taken.
    fn export(change: impl FnOnce(&mut BTreeMap<String, Value>)) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        let artifact = json!({"path": "a/x.txt", "size": 2, "sha256": digest::whole(b"hi")});
        let mut records = BTreeMap::from([
            ("experiments/1.json".to_owned(), json!({"v": 1, "id": "1", "name": "food", "tags": []})),
            (
                "runs/abc/run.json".to_owned(),
                json!({"v": 1, "id": "abc", "experiment": "1", "name": "n", "user": "u", "status": "FINISHED",
                    "start_time": 1, "end_time": 2, "params": [], "tags": [], "datasets": [], "model_inputs": [],
                    "model_outputs": [], "artifacts_at": null, "artifacts": [artifact]}),
            ),
            (
                "registry/0/model.json".to_owned(),
                json!({"v": 1, "name": "food", "description": "", "tags": [], "aliases": [], "versions": [
                    {"version": 2, "created": 1, "description": "", "stage": "None", "run": "abc", "tags": [],
                     "content": {"run": {"id": "abc", "path": "a"}}}]}),
            ),
            ("runs/abc/metrics.jsonl".to_owned(), json!({"key": "loss", "value": 0.1, "timestamp": 1, "step": 0})),
        ]);
        change(&mut records);
        let mut listed = Vec::new();
        for (path, record) in &records {
            let text = record.to_string();
            fs_err::create_dir_all(at(path).parent().unwrap()).unwrap();
            fs_err::write(at(path), &text).unwrap();
            listed.push(json!({"path": path, "size": text.len(), "sha256": digest::whole(text.as_bytes())}));
        }
        fs_err::create_dir_all(at("runs/abc/artifacts/a")).unwrap();
        fs_err::write(at("runs/abc/artifacts/a/x.txt"), "hi").unwrap();
        let manifest = json!({"v": 1, "type": "mlflow_export", "mlflow": "3", "cluster": "c",
            "exported": "2026-01-01T00:00:00Z", "records": listed});
        fs_err::write(at(MANIFEST), manifest.to_string()).unwrap();
        folder
    }

    fn refused(folder: &tempfile::TempDir) -> String {
        format!("{:?}", Source::open(folder.path()).unwrap_err())
    }

    #[test]
    fn a_whole_export_is_read() {
        let folder = export(|_| {});
        let source = Source::open(folder.path()).unwrap();
        assert_eq!((source.runs.len(), source.registered.len(), source.bytes()), (1, 1, 2));
        assert_eq!(source.points("abc", 10).unwrap().map(|points| points.unwrap().len()).sum::<usize>(), 1);
    }

    #[test]
    fn an_export_that_is_not_whole_or_was_changed_is_refused() {
        let folder = export(|_| {});
        fs_err::remove_file(folder.path().join(MANIFEST)).unwrap();
        assert!(refused(&folder).contains("writes last"));
        let folder = export(|_| {});
        fs_err::write(folder.path().join("runs/abc/artifacts/a/x.txt"), "ho").unwrap();
        assert!(refused(&folder).contains("is not as it was written"));
        let folder = export(|_| {});
        fs_err::write(folder.path().join("runs/abc/run.json"), "{}").unwrap();
        assert!(refused(&folder).contains("is not as it was written"));
    }

    #[test]
    fn no_file_outside_of_an_export_is_read_through_it() {
        let secret = tempfile::tempdir().unwrap();
        fs_err::create_dir(secret.path().join("a")).unwrap();
        fs_err::write(secret.path().join("a/x.txt"), "hi").unwrap();
        // A link instead of a file, and of a folder on its way.
        let folder = export(|_| {});
        let file = folder.path().join("runs/abc/artifacts/a/x.txt");
        fs_err::remove_file(&file).unwrap();
        symlink(secret.path().join("a/x.txt"), &file).unwrap();
        assert!(refused(&folder).contains("is a link"), "{}", refused(&folder));
        let folder = export(|_| {});
        fs_err::remove_dir_all(folder.path().join("runs/abc/artifacts")).unwrap();
        symlink(secret.path(), folder.path().join("runs/abc/artifacts")).unwrap();
        assert!(Source::open(folder.path()).is_err());
        // A path that leads out, and names that a server would decode to one.
        for path in ["../../../../x", "/etc/passwd", "a/../x", "", "a//x", "%2e%2e/x", "a\\x"] {
            let named = |records: &mut BTreeMap<String, Value>| {
                records.get_mut("runs/abc/run.json").unwrap()["artifacts"][0]["path"] = path.into();
            };
            assert!(refused(&export(named)).contains("no name of an artifact"), "{path}");
        }
        // A pipe is not waited for.
        let folder = export(|_| {});
        let pipe = folder.path().join("experiments/1.json");
        fs_err::remove_file(&pipe).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert!(refused(&folder).contains("is not a file"));
    }

    #[test]
    fn records_of_an_export_must_fit_together() {
        let set = |path: &'static str, pointer: &'static str, value: Value| {
            export(move |records| *records.get_mut(path).unwrap().pointer_mut(pointer).unwrap() = value)
        };
        for (path, pointer, value, why) in [
            ("runs/abc/run.json", "/id", json!("../x"), "is of another item"),
            ("runs/abc/run.json", "/experiment", json!("7"), "has no experiment"),
            ("runs/abc/run.json", "/v", json!(2), "layout 2"),
            ("registry/0/model.json", "/versions/0/version", json!(4_000_000), "not ascending"),
            ("registry/0/model.json", "/versions/0/content/run/id", json!("other"), "has no content"),
            ("registry/0/model.json", "/versions/0/content/run/path", json!("../.."), "has no content"),
            ("registry/0/model.json", "/versions/0/content", json!({"at": "file:///etc"}), "has no content"),
            ("registry/0/model.json", "/versions/0/content", json!({"at": "/etc"}), "has no content"),
            ("runs/abc/metrics.jsonl", "/value", json!("a lot"), "has no number"),
        ] {
            let text = refused(&set(path, pointer, value));
            assert!(text.contains(why), "{path}{pointer}: {text}");
        }
        let odd = export(|records| drop(records.insert("other/x.json".to_owned(), json!({}))));
        assert!(Source::open(odd.path()).is_err());
    }
}
