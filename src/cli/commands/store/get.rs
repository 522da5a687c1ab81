//! `gpucl store get`.

use std::path::{Path, PathBuf};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::open::Opened;
use super::place;
use super::progress::Progress;
use super::rm::AT_ONCE;
use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::exit_code;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::s3::{Download, Object, local_path};
use crate::util::folder::{Existing, Folder, Goal};

/// The arguments of `store get`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An object or a folder of them: s3://BUCKET/KEY
    place: String,
    /// The file or folder to write
    #[arg(default_value = ".")]
    to: PathBuf,
    /// Copy everything below the key, as from a folder
    #[arg(short, long)]
    recursive: bool,
}

pub(super) async fn run(app: &App, opened: &Opened, args: Args) -> Result<u8> {
    let at = place(&args.place)?;
    let doing = || format!("copy {at} to {}", args.to.display());
    if !args.recursive {
        if at.key.is_empty() || at.key.ends_with('/') {
            return Err(usage(doing(), "it names a folder").hint("everything in it: --recursive"));
        }
        let Some(found) = opened.client.find(&at.bucket, &at.key).await? else {
            let error = Error::new(ErrorKind::NotFound, doing()).because("the object does not exist");
            let below = opened.client.list(&at.bucket, &at.folder(), true, None).await?;
            let is_folder = !below.objects.is_empty() || !below.folders.is_empty();
            return Err(if is_folder { error.hint("it is a folder; everything in it: --recursive") } else { error });
        };
        let (folder, file) = match args.to.file_name() {
            Some(name) if !args.to.is_dir() => (args.to.parent().unwrap_or(Path::new("")), PathBuf::from(name)),
            _ => (&*args.to, local_path(at.name()).ok_or_else(|| usage(doing(), "no file can have its name"))?),
        };
        let folder = open_folder(folder, [file.as_path()], doing)?;
        let progress = Progress::new(app, found.size);
        let what = Download { bucket: &at.bucket, key: &at.key, folder: &folder, file: &file };
        let (bytes, has_resumed) = opened.client.download(&what, &|bytes| progress.moved(bytes)).await?;
        if has_resumed {
            app.ui.status("went on where an earlier download ended");
        }
        progress.done(bytes);
        progress.end(app, 0, 0);
        return Ok(exit_code::DONE);
    }
    let objects = opened.client.list_all(&at.bucket, &at.folder()).await?;
    if objects.is_empty() {
        return Err(Error::new(ErrorKind::NotFound, doing()).because("no object is below it"));
    }
    let progress = Progress::new(app, objects.iter().map(|object| object.size).sum());
    let wanted = below(app, &at.folder(), &objects, &progress);
    let folder = open_folder(&args.to, wanted.iter().map(|(path, _)| path.as_path()), doing)?;
    fetch(opened, &at.bucket, &folder, &wanted, &progress).await?;
    progress.end(app, 0, 0);
    Ok(exit_code::DONE)
}

/// Opens a folder that the user named for files at these paths.
///
/// # Errors
/// When a link, or something else, is in the way of one of them. Nothing was changed then.
pub(super) fn open_folder<'a>(
    folder: &Path,
    files: impl IntoIterator<Item = &'a Path>,
    doing: impl FnOnce() -> String,
) -> Result<Folder> {
    let opened = Goal::named(folder).open(files, Existing::Replaced).doing(ErrorKind::Host, doing);
    opened
        .map_err(|error| error.because("nothing was copied").hint("remove what is in the way, or name another folder"))
}

/// Objects with their paths below a folder, without those that no file can be.
pub(super) fn below<'a>(
    app: &App,
    prefix: &str,
    objects: &'a [Object],
    progress: &Progress,
) -> Vec<(PathBuf, &'a Object)> {
    let mut all = Vec::new();
    for object in objects {
        let rest = object.key.strip_prefix(prefix).unwrap_or(&object.key);
        match local_path(rest) {
            Some(path) => all.push((path, object)),
            // Some programs mark folders so.
            None if (rest.is_empty() || rest.ends_with('/')) && object.size == 0 => {}
            None => progress.leave_out(app, &object.key, "no file can have its name"),
        }
    }
    all
}

/// Reads objects into files below a folder.
pub(super) async fn fetch(
    opened: &Opened,
    bucket: &str,
    folder: &Folder,
    wanted: &[(PathBuf, &Object)],
    progress: &Progress,
) -> Result<()> {
    let all = stream::iter(wanted).map(Ok::<_, Error>);
    all.try_for_each_concurrent(AT_ONCE, |(path, object)| async move {
        let what = Download { bucket, key: &object.key, folder, file: path };
        let (bytes, _) = opened.client.download(&what, &|bytes| progress.moved(bytes)).await?;
        progress.done(bytes);
        Ok(())
    })
    .await
}
