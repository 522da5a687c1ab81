//! The upload of a job's working folder and modules.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::cli::app::App;
use crate::error::{Error, ErrorKind, Result};
use crate::ray::{Client, Module, ModuleSource, OnProgress, Package, UploadOutcome, WorkingDir};
use crate::util::human;

/// How often a long upload reports its progress.
const SAY_EVERY: Duration = Duration::from_secs(2);

/// A package, and where its URI goes.
pub(crate) struct Packed {
    pub(crate) package: Package,
    /// What it is, for messages.
    what: String,
    /// Its place in `py_modules`; the working folder has none.
    pub(crate) module: Option<usize>,
}

/// Packs the working folder and the modules.
///
/// # Errors
/// If one cannot be read, or is too large.
pub(crate) async fn pack(app: &App, folder: Option<WorkingDir>, modules: Vec<Module>) -> Result<Vec<Packed>> {
    let mut all = Vec::new();
    if let Some(folder) = folder {
        let pack = move || match folder {
            WorkingDir::Folder(folder, excludes) => Package::of_folder(&folder, &excludes),
            WorkingDir::Zip(path) => Package::of_zip(&path),
        };
        all.push(pack_one(app, pack, "working folder".to_owned(), None).await?);
    }
    for Module { at, source } in modules {
        let (ModuleSource::Folder(path, _) | ModuleSource::File(path) | ModuleSource::Wheel(path)) = &source;
        let what = format!("module {}", path.file_name().unwrap_or(path.as_os_str()).to_string_lossy());
        all.push(pack_one(app, move || Package::of_module(&source), what, Some(at)).await?);
    }
    Ok(all)
}

async fn pack_one(
    app: &App,
    pack: impl FnOnce() -> Result<Package> + Send + 'static,
    what: String,
    module: Option<usize>,
) -> Result<Packed> {
    let packing = tokio::task::spawn_blocking(pack).await;
    let package =
        packing.map_err(|error| Error::new(ErrorKind::Internal, format!("pack the {what}")).caused_by(&error))??;
    for skipped in package.skipped() {
        app.ui.status(format_args!("left out {skipped}"));
    }
    if let [first, others @ ..] = package.hiding() {
        let all = others.iter().fold(first.clone(), |all, name| format!("{all}, {name}"));
        let (hides, it) = if others.is_empty() { ("hides a module", "it") } else { ("hide modules", "them") };
        app.ui.status(format_args!(
            "note: {all} in the {what} {hides} of Python or Ray that Ray needs: processes of the job may end at their \
             start; rename {it}, or list {it} in .rayignore"
        ));
    }
    Ok(Packed { package, what, module })
}

/// Uploads a package; returns its URI.
///
/// # Errors
/// If Ray does not answer or refuses it.
pub(crate) async fn upload(app: &App, client: &Client, packed: &Packed) -> Result<String> {
    let Packed { package, what, module } = packed;
    let outcome = client.upload(package, Some(progress(app))).await?;
    let size = human::bytes(package.bytes().len() as u64);
    let files =
        if package.files() > 0 { format!("{}, ", human::count(package.files(), "file")) } else { String::new() };
    let done = match outcome {
        UploadOutcome::Uploaded => "uploaded",
        UploadOutcome::Present => "unchanged, not uploaded again",
    };
    app.ui.status(format_args!("{what} {done}: {files}{size}"));
    if app.json() {
        let kind = if module.is_some() { "py_module" } else { "working_dir" };
        app.ui.json(&json!({
            "v": 1, "type": kind, "uri": package.uri(), "bytes": package.bytes().len(), "files": package.files(),
            "uploaded": outcome == UploadOutcome::Uploaded, "left_out": package.skipped(),
            "hides": package.hiding(),
        }));
    }
    Ok(package.uri())
}

/// Reports the progress of a long upload, every few seconds.
fn progress(app: &App) -> OnProgress {
    let ui = app.ui;
    let reported = Mutex::new(Instant::now());
    Arc::new(move |sent, total| {
        let Ok(mut reported) = reported.lock() else { return };
        if reported.elapsed() >= SAY_EVERY && sent < total {
            *reported = Instant::now();
            ui.status(format_args!("uploading: {} of {}", human::bytes(sent), human::bytes(total)));
        }
    })
}
