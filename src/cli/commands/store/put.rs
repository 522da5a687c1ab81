//! `gpucl store put`.

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

/// The arguments of `store put`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files and folders of this machine, then the place: s3://BUCKET/KEY, with a slash at its end to keep their names
    #[arg(required = true, num_args = 2.., value_name = "SRC... PLACE")]
    paths: Vec<String>,
}

/// A file of this machine.
#[derive(Debug, Clone)]
pub(super) struct Local {
    pub(super) path: PathBuf,
    /// Its path below the folder that was named, as in keys.
    pub(super) rest: String,
    pub(super) size: u64,
    pub(super) modified: Option<jiff::Timestamp>,
}

pub(super) async fn run(app: &App, opened: &Opened, args: Args) -> Result<u8> {
    let Some((goal, sources)) = args.paths.split_last() else { return Err(usage("copy", "no path was given")) };
    let goal = place(goal)?;
    let is_folder = goal.key.is_empty() || goal.key.ends_with('/') || sources.len() > 1;
    let (mut files, mut odd) = (Vec::new(), Vec::new());
    for source in sources {
        let path = Path::new(source);
        let doing = || format!("copy {source} to {goal}");
        let kind = fs_err::metadata(path).doing(ErrorKind::NotFound, doing)?;
        let name = path.file_name().and_then(|name| name.to_str());
        if kind.is_dir() {
            let below = match name {
                Some(name) if is_folder => format!("{}{name}/", goal.folder()),
                _ => goal.folder(),
            };
            let mut found = Vec::new();
            walk(path, "", &mut found, &mut odd).doing(ErrorKind::Host, doing)?;
            files.extend(found.into_iter().map(|file| (format!("{below}{}", file.rest), file)));
        } else if kind.is_file() {
            let name = name.ok_or_else(|| usage(doing(), "its name is not UTF-8"))?;
            let key = if is_folder { format!("{}{name}", goal.folder()) } else { goal.key.clone() };
            let file = Local { path: path.to_owned(), rest: name.to_owned(), size: kind.len(), modified: None };
            files.push((key, file));
        } else {
            return Err(Error::new(ErrorKind::Usage, doing()).because("it is neither a file nor a folder"));
        }
    }
    let progress = Progress::new(app, files.iter().map(|(_, file)| file.size).sum());
    odd.iter().for_each(|(what, why)| progress.leave_out(app, what, why));
    send(opened, &goal.bucket, &files, &progress).await?;
    progress.end(app, 0, 0);
    Ok(exit_code::DONE)
}

/// Writes files under these keys.
pub(super) async fn send(opened: &Opened, bucket: &str, files: &[(String, Local)], progress: &Progress) -> Result<()> {
    let all = stream::iter(files).map(Ok::<_, Error>);
    all.try_for_each_concurrent(AT_ONCE, |(key, file)| async move {
        let sent = opened.client.upload(&file.path, bucket, key, &|bytes| progress.moved(bytes)).await?;
        progress.done(sent);
        Ok(())
    })
    .await
}

/// All files below a folder, and what cannot be copied. Links are not followed.
pub(super) fn walk(
    folder: &Path,
    rest: &str,
    files: &mut Vec<Local>,
    odd: &mut Vec<(String, &'static str)>,
) -> std::io::Result<()> {
    let mut entries: Vec<_> = fs_err::read_dir(folder)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(fs_err::DirEntry::file_name);
    for entry in entries {
        let (path, kind) = (entry.path(), entry.file_type()?);
        let name = entry.file_name();
        let Some(name) = name.to_str() else {
            odd.push((path.display().to_string(), "its name is not UTF-8"));
            continue;
        };
        if name.starts_with(".gpucl-part-") {
            continue;
        }
        let rest = if rest.is_empty() { name.to_owned() } else { format!("{rest}/{name}") };
        if kind.is_dir() {
            walk(&path, &rest, files, odd)?;
        } else if kind.is_file() {
            let known = entry.metadata()?;
            let modified = known.modified().ok().and_then(|at| jiff::Timestamp::try_from(at).ok());
            files.push(Local { path, rest, size: known.len(), modified });
        } else {
            odd.push((path.display().to_string(), "it is neither a file nor a folder"));
        }
    }
    Ok(())
}
