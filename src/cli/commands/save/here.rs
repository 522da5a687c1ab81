//! Copies to this machine: what `end.save` names with `to: here:…`.

use std::path::{Path, PathBuf};

use crate::agent::seen::Saved;
use crate::cli::app::App;
use crate::cli::commands::store::copy_from_store;
use crate::cli::output::BytesBar;
use crate::cli::target::Target;
use crate::error::{Error, ErrorKind, Result};
use crate::host::{Differences, End, Here, SyncOptions, compare};
use crate::spec::{Bucket, OutputPath, SaveFrom};

/// How often a copy that was not the same afterwards is made again: a job may write meanwhile.
const PASSES: usize = 3;

/// Copies one, and verifies it by digests; what failed is in the result.
pub(super) async fn copy(app: &App, target: &Target, from: &SaveFrom, to: &OutputPath) -> Saved {
    let folder = folder_of_spec(app, target).join(to.to_string());
    let copied = match (refuse_links(&folder_of_spec(app, target), &to.to_string()), from) {
        (Err(error), _) => Err(error),
        (Ok(()), SaveFrom::Data(path)) => from_hosts(app, target, &path.to_string(), &folder).await,
        (Ok(()), SaveFrom::Bucket(bucket)) => from_store(app, bucket, &folder).await,
    };
    let failed = copied.err().map(|error| error.to_string());
    // What is there now is what counts, whoever brought it.
    let (files, bytes) = size_of(&folder);
    let to = format!("here:{to}");
    Saved { from: String::from(from.clone()), to, files, bytes, complete: failed.is_none(), failed, newest: None }
}

/// The folder of the spec, or where the command was started if it came from no file.
fn folder_of_spec(app: &App, target: &Target) -> PathBuf {
    let path = target.known.state.spec_path.as_deref().map(Path::new);
    path.and_then(Path::parent).map_or_else(|| app.here.clone(), Path::to_owned)
}

/// Refuses a way through a link: one that an earlier copy brought, from a job's data folder, may lead anywhere.
fn refuse_links(above: &Path, to: &str) -> Result<()> {
    let mut path = above.to_owned();
    for part in to.split('/') {
        path.push(part);
        if path.is_symlink() {
            return Err(Error::new(ErrorKind::Host, "save here")
                .because(format!("{} is a link; nothing was written", path.display()))
                .hint("remove it, or name another folder"));
        }
    }
    Ok(())
}

/// From the data folder of every host; of several, into a folder of its own each.
async fn from_hosts(app: &App, target: &Target, path: &str, folder: &Path) -> Result<()> {
    let machines = target.machines(app).await?.chosen(&[]).await?;
    let several = machines.len() > 1;
    for machine in &machines {
        let from = machine.end(path, false).await?;
        let to = End::Here(Here { path: if several { folder.join(machine.name()) } else { folder.to_owned() } });
        fs_err::create_dir_all(folder).map_err(|error| Error::new(ErrorKind::Host, "save here").caused_by(&error))?;
        match until_same(&from, &to, &BytesBar::new(&app.ui)).await {
            // Nobody wrote there: there is nothing to save.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            copied => copied?,
        }
    }
    Ok(())
}

/// Copies until both are the same, by the digests of what differs in time or size, and at the end of everything.
async fn until_same(from: &End<'_>, to: &End<'_>, bar: &BytesBar) -> Result<()> {
    let by_digest = || SyncOptions { checksum: true, ..SyncOptions::default() };
    // By size and time first, which is fast; two files of one size may have one time.
    let mut options = SyncOptions::default();
    for _ in 0..PASSES {
        compare(from, to, options).await?.carry_out(&mut |progress| bar.set(progress.done, progress.all)).await?;
        if compare(from, to, by_digest()).await?.is_nothing() {
            return Ok(());
        }
        options = by_digest();
    }
    let left = compare(from, to, by_digest()).await?;
    match differing(&left) {
        None => Ok(()),
        Some(name) => Err(Error::new(ErrorKind::Host, "save here")
            .because(format!("{name} is another one at its source than here: it is being written"))),
    }
}

fn differing(left: &Differences<'_>) -> Option<String> {
    if left.is_nothing() {
        return None;
    }
    left.lines().into_iter().map(|(_, path)| path).next()
}

/// From the cluster's store.
async fn from_store(app: &App, bucket: &Bucket, folder: &Path) -> Result<()> {
    copy_from_store(app, &bucket.to_string(), folder).await
}

/// How many files are below a folder, and how large they are, in bytes; or of one file.
fn size_of(path: &Path) -> (u64, u64) {
    let (mut files, mut bytes, mut left) = (0, 0, vec![path.to_owned()]);
    while let Some(path) = left.pop() {
        let Ok(found) = fs_err::symlink_metadata(&path) else { continue };
        if found.is_dir() {
            left.extend(fs_err::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        } else {
            files += 1;
            bytes += found.len();
        }
    }
    (files, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_copy_goes_through_a_link_that_a_job_may_have_made() {
        let folder = tempfile::tempdir().unwrap();
        fs_err::create_dir_all(folder.path().join("results/run")).unwrap();
        std::os::unix::fs::symlink("/etc", folder.path().join("results/other")).unwrap();
        assert!(refuse_links(folder.path(), "results/run").is_ok() && refuse_links(folder.path(), "new/deep").is_ok());
        let error = refuse_links(folder.path(), "results/other/sub").unwrap_err().to_string();
        assert!(error.contains("is a link; nothing was written"), "{error}");
    }
}
