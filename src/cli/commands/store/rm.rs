//! `gpucl store rm`.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::json;

use super::open::Opened;
use super::place;
use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::exit_code;
use crate::error::{Error, ErrorKind, Result};
use crate::util::human;

/// How many objects are deleted or copied at the same time.
pub(super) const AT_ONCE: usize = 8;

/// The arguments of `store rm`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The objects: s3://BUCKET/KEY
    #[arg(required = true, value_name = "OBJECT")]
    places: Vec<String>,
    /// Delete everything below a key, as below a folder
    #[arg(short, long)]
    recursive: bool,
}

pub(super) async fn run(app: &App, opened: &Opened, args: Args) -> Result<u8> {
    let mut doomed = Vec::new();
    for text in &args.places {
        let at = place(text)?;
        let doing = || format!("delete {at}");
        if args.recursive {
            let objects = opened.client.list_all(&at.bucket, &at.folder()).await?;
            doomed.extend(objects.into_iter().map(|object| (at.bucket.clone(), object.key)));
        } else if at.key.is_empty() || at.key.ends_with('/') {
            return Err(usage(doing(), "it names a folder").hint("everything in it: --recursive"));
        }
        if !at.key.is_empty() && opened.client.find(&at.bucket, &at.key).await?.is_some() {
            doomed.push((at.bucket.clone(), at.key.clone()));
        } else if !args.recursive {
            return Err(Error::new(ErrorKind::NotFound, doing()).because("the object does not exist"));
        }
    }
    // What is deepest goes first: a store may keep folders as objects of their own.
    doomed.sort_by(|one, other| other.cmp(one));
    doomed.dedup();
    let all = stream::iter(&doomed).map(Ok::<_, Error>);
    all.try_for_each_concurrent(AT_ONCE, |(bucket, key)| opened.client.delete(bucket, key)).await?;
    if app.json() {
        app.ui.json(&json!({"v": 1, "type": "deleted", "objects": doomed.len()}));
    } else {
        app.ui.status(format_args!("deleted: {}", human::count(doomed.len(), "object")));
    }
    Ok(exit_code::DONE)
}
