//! `gpucl store`: objects of the cluster's object store.

mod get;
mod ls;
mod open;
mod progress;
mod put;
mod rm;
mod sync;

use clap::Subcommand;

use self::open::Opened;
use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::signals::Ends;
use crate::error::{Error, ErrorKind, Result};
use crate::s3::S3Path;

/// What to do with objects.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List buckets, or the objects and folders at a place
    Ls(ls::Args),
    /// Copy objects to this machine; a download that was cut goes on where it ended
    Get(get::Args),
    /// Copy files and folders of this machine into the store
    Put(put::Args),
    /// Copy what differs between a folder of this machine and a place in the store
    Sync(sync::Args),
    /// Delete objects
    Rm(rm::Args),
}

pub(crate) async fn run(app: &App, command: Command) -> anyhow::Result<u8> {
    let mut ends = Ends::listen()?;
    let opened = Opened::open(app).await?;
    let work = async {
        match command {
            Command::Ls(args) => ls::run(app, &opened, args).await,
            Command::Get(args) => get::run(app, &opened, args).await,
            Command::Put(args) => put::run(app, &opened, args).await,
            Command::Sync(args) => sync::run(app, &opened, args).await,
            Command::Rm(args) => rm::run(app, &opened, args).await,
        }
    };
    let done = ends.unless(work).await;
    opened.client.give_up().await;
    opened.close().await;
    match done {
        Some(done) => Ok(done?),
        None => Err(Error::new(ErrorKind::Cancelled, "finish")
            .because("it was interrupted")
            .hint("run it again: `store get` goes on where it ended, and `store sync` leaves out what is there")
            .into()),
    }
}

/// Copies what differs below a place of the store, as `s3://BUCKET/PREFIX`, into a folder of this machine.
///
/// # Errors
/// If the store is not reached, or refuses, or the folder cannot be written.
pub(super) async fn copy_from_store(app: &App, from: &str, to: &std::path::Path) -> Result<()> {
    let opened = Opened::open(app).await?;
    let done = sync::down(app, &opened, &place(from)?, to, false).await;
    opened.client.give_up().await;
    opened.close().await;
    done.map(|_| ())
}

/// The place that a user named.
fn place(text: &str) -> Result<S3Path> {
    S3Path::of(text).ok_or_else(|| {
        usage("find a place in the store", format!("`{text}` names no bucket")).hint("for example: s3://ray/runs/")
    })
}
