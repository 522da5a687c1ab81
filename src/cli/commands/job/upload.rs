//! The upload of a job's working folder and modules.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::cli::app::App;
use crate::error::{Error, ErrorKind, Result};
use crate::ray::{Client, ModuleSource, OnProgress, Package, UploadOutcome, WorkingDir};
use crate::util::human;

/// How often a long upload reports its progress.
const SAY_EVERY: Duration = Duration::from_secs(2);

/// Packs and uploads the working folder; returns its URI.
pub(super) async fn working_folder(app: &App, client: &Client, working_dir: WorkingDir) -> Result<String> {
    let pack = move || match working_dir {
        WorkingDir::Folder(folder, excludes) => Package::of_folder(&folder, &excludes),
        WorkingDir::Zip(path) => Package::of_zip(&path),
    };
    bring(app, client, pack, "working_dir", "working folder").await
}

/// Packs and uploads a module of `py_modules`; returns its URI.
pub(super) async fn module(app: &App, client: &Client, source: ModuleSource) -> Result<String> {
    let (ModuleSource::Folder(path, _) | ModuleSource::File(path) | ModuleSource::Wheel(path)) = &source;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let what = format!("module {name}");
    bring(app, client, move || Package::of_module(&source), "py_module", &what).await
}

async fn bring(
    app: &App,
    client: &Client,
    pack: impl FnOnce() -> Result<Package> + Send + 'static,
    kind: &str,
    what: &str,
) -> Result<String> {
    let packing = tokio::task::spawn_blocking(pack).await;
    let package =
        packing.map_err(|error| Error::new(ErrorKind::Internal, format!("pack the {what}")).caused_by(&error))??;
    for skipped in package.skipped() {
        app.ui.status(format_args!("left out {skipped}"));
    }
    let outcome = client.upload(&package, Some(progress(app))).await?;
    let size = human::bytes(package.bytes().len() as u64);
    let files =
        if package.files() > 0 { format!("{}, ", human::count(package.files(), "file")) } else { String::new() };
    let done = match outcome {
        UploadOutcome::Uploaded => "uploaded",
        UploadOutcome::Present => "unchanged, not uploaded again",
    };
    app.ui.status(format_args!("{what} {done}: {files}{size}"));
    if app.json() {
        app.ui.json(&json!({
            "v": 1, "type": kind, "uri": package.uri(), "bytes": package.bytes().len(), "files": package.files(),
            "uploaded": outcome == UploadOutcome::Uploaded, "left_out": package.skipped(),
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
