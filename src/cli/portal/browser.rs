//! Opening a page in the user's browser.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::cli::app::App;
use crate::error::{Doing as _, ErrorKind, Result};
use crate::util;

/// The file that the browser was opened with. Dropping it removes the file.
#[derive(Debug)]
pub struct Opener {
    file: PathBuf,
}

impl Drop for Opener {
    fn drop(&mut self) {
        let _ = fs_err::remove_file(&self.file);
    }
}

/// Opens a page with this program (`xdg-open`, `open`).
///
/// The key must not appear on a command line, where every user of the machine could read it. The program therefore gets
/// a private file in `folder` that redirects to the address.
///
/// # Errors
/// If the file cannot be written or the program cannot be started.
pub fn open_browser(program: &str, url: &str, folder: &Path) -> Result<Opener> {
    let doing = || "open the browser".to_owned();
    util::runtime_dir::make_runtime_dir(folder)?;
    let name = format!("open-{}.html", util::random::letters(8)?);
    let file = folder.join(name);
    let page = format!(
        "<!doctype html><meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\">\
         <meta http-equiv=\"refresh\" content=\"0;url={url}\"><title>gpucl</title><a href=\"{url}\">the dashboard</a>\n"
    );
    util::fs::write_atomic(&file, page.as_bytes(), 0o600).doing(ErrorKind::Host, doing)?;
    let opener = Opener { file };
    let mut child = util::child::async_command(program)
        .arg(&opener.file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .doing(ErrorKind::Host, doing)?;
    tokio::spawn(async move { child.wait().await });
    Ok(opener)
}

/// The program that opens a browser, if there is a display.
pub(crate) fn browser(app: &App) -> Option<&'static str> {
    let screen = |name| app.variable(name).is_some_and(|value| !value.is_empty());
    if cfg!(target_os = "macos") {
        Some("open")
    } else {
        (screen("DISPLAY") || screen("WAYLAND_DISPLAY")).then_some("xdg-open")
    }
}
