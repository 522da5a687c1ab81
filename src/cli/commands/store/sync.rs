//! `gpucl store sync`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::get;
use super::open::Opened;
use super::place;
use super::progress::Progress;
use super::put::{self, Local};
use super::rm::AT_ONCE;
use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::exit_code;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::s3::{Object, S3Path};

/// The arguments of `store sync`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to copy: a folder of this machine, or s3://BUCKET/KEY
    from: String,
    /// Where to: the other of the two
    to: String,
    /// Delete at the destination what the source does not have
    #[arg(long)]
    delete: bool,
}

pub(super) async fn run(app: &App, opened: &Opened, args: Args) -> Result<u8> {
    let is_place = |text: &str| text.starts_with("s3://");
    match (is_place(&args.from), is_place(&args.to)) {
        (false, true) => up(app, opened, Path::new(&args.from), &place(&args.to)?, args.delete).await,
        (true, false) => down(app, opened, &place(&args.from)?, Path::new(&args.to), args.delete).await,
        _ => Err(usage("copy what differs", "one side is a folder of this machine, and the other begins with s3://")),
    }
}

/// To the store.
async fn up(app: &App, opened: &Opened, from: &Path, to: &S3Path, delete: bool) -> Result<u8> {
    let (mut files, mut odd) = (Vec::new(), Vec::new());
    put::walk(from, "", &mut files, &mut odd).doing(ErrorKind::NotFound, || format!("read {}", from.display()))?;
    let prefix = to.folder();
    let there = opened.client.list_all(&to.bucket, &prefix).await?;
    let known: BTreeMap<&str, &Object> = there.iter().map(|object| (object.key.as_str(), object)).collect();
    let all = files.len();
    let keyed: Vec<(String, Local)> = files.into_iter().map(|file| (format!("{prefix}{}", file.rest), file)).collect();
    let keep: std::collections::BTreeSet<&str> = keyed.iter().map(|(key, _)| key.as_str()).collect();
    let gone: Vec<&str> = match delete {
        true => known.keys().copied().filter(|key| !keep.contains(key) && !key.ends_with('/')).collect(),
        false => Vec::new(),
    };
    let changed: Vec<(String, Local)> = keyed
        .iter()
        .filter(|(key, file)| {
            known
                .get(key.as_str())
                .is_none_or(|object| is_newer(file.size, file.modified, object.size, object.modified))
        })
        .cloned()
        .collect();
    let progress = Progress::new(app, changed.iter().map(|(_, file)| file.size).sum());
    odd.iter().for_each(|(what, why)| progress.leave_out(app, what, why));
    put::send(opened, &to.bucket, &changed, &progress).await?;
    let doomed = stream::iter(&gone).map(Ok::<_, Error>);
    doomed.try_for_each_concurrent(AT_ONCE, |key| opened.client.delete(&to.bucket, key)).await?;
    progress.end(app, all - changed.len(), gone.len());
    Ok(exit_code::DONE)
}

/// From the store.
pub(super) async fn down(app: &App, opened: &Opened, from: &S3Path, to: &Path, delete: bool) -> Result<u8> {
    let doing = || format!("copy {from} to {}", to.display());
    let objects = opened.client.list_all(&from.bucket, &from.folder()).await?;
    if objects.is_empty() {
        return Err(Error::new(ErrorKind::NotFound, doing()).because("no object is below it"));
    }
    let (mut files, mut odd) = (Vec::new(), Vec::new());
    if to.exists() {
        put::walk(to, "", &mut files, &mut odd).doing(ErrorKind::Host, doing)?;
    }
    let known: BTreeMap<PathBuf, &Local> = files.iter().map(|file| (PathBuf::from(&file.rest), file)).collect();
    let counted = Progress::new(app, objects.iter().map(|object| object.size).sum());
    let wanted = get::below(app, &from.folder(), &objects, &counted);
    let all = wanted.len();
    let gone: Vec<&Path> = match delete {
        true => {
            let keep: std::collections::BTreeSet<&Path> = wanted.iter().map(|(path, _)| path.as_path()).collect();
            known.keys().map(PathBuf::as_path).filter(|path| !keep.contains(path)).collect()
        }
        false => Vec::new(),
    };
    let changed: Vec<(PathBuf, &Object)> = wanted
        .into_iter()
        .filter(|(path, object)| {
            known.get(path).is_none_or(|file| is_newer(object.size, object.modified, file.size, file.modified))
        })
        .collect();
    let folder = get::open_folder(to, changed.iter().map(|(path, _)| path.as_path()), doing)?;
    get::fetch(opened, &from.bucket, &folder, &changed, &counted).await?;
    for path in &gone {
        folder.remove(path).doing(ErrorKind::Host, doing)?;
    }
    counted.end(app, all - changed.len(), gone.len());
    Ok(exit_code::DONE)
}

/// Whether what has this size and time differs from the other: another size, or a later time. Times of stores have
/// whole seconds.
fn is_newer(size: u64, at: Option<jiff::Timestamp>, other: u64, then: Option<jiff::Timestamp>) -> bool {
    let seconds = |at: Option<jiff::Timestamp>| at.map(jiff::Timestamp::as_second);
    size != other || seconds(at) > seconds(then)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_size_or_a_later_second_differs() {
        let at = |text: &str| Some(text.parse::<jiff::Timestamp>().unwrap());
        let (early, late) = (at("2026-11-25T04:00:00.2Z"), at("2026-11-25T04:00:01Z"));
        assert!(is_newer(1, early, 2, late));
        assert!(is_newer(1, late, 1, early));
        assert!(!is_newer(1, early, 1, late));
        assert!(!is_newer(1, at("2026-11-25T04:00:00.9Z"), 1, early));
    }
}
