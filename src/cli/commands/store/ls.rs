//! `gpucl store ls`.

use serde_json::json;

use super::open::Opened;
use super::place;
use crate::cli::app::App;
use crate::cli::exit_code;
use crate::error::{Error, ErrorKind, Result};
use crate::s3::Object;
use crate::util::human;
use crate::util::text::printable_line;

/// The arguments of `store ls`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The place: s3://BUCKET/ or s3://BUCKET/KEY; without it, all buckets
    place: Option<String>,
    /// Also list what is in folders
    #[arg(short, long)]
    recursive: bool,
}

pub(super) async fn run(app: &App, opened: &Opened, args: Args) -> Result<u8> {
    let Some(text) = &args.place else {
        // Another's store may not tell.
        let buckets = opened.client.buckets().await.unwrap_or_else(|_| opened.buckets.clone());
        for bucket in buckets {
            match app.json() {
                true => app.ui.json(&json!({"v": 1, "type": "bucket", "bucket": bucket})),
                false => app.ui.data(format_args!("s3://{bucket}/")),
            }
        }
        return Ok(exit_code::DONE);
    };
    let at = place(text)?;
    let (mut shown, mut page) = (0_usize, None);
    if !at.key.is_empty()
        && !at.key.ends_with('/')
        && let Some(found) = opened.client.find(&at.bucket, &at.key).await?
    {
        shown += 1;
        print(app, &at.bucket, &Object { key: at.key.clone(), size: found.size, modified: found.modified });
    }
    loop {
        let listing = opened.client.list(&at.bucket, &at.folder(), !args.recursive, page.as_deref()).await?;
        shown += listing.folders.len() + listing.objects.len();
        for folder in &listing.folders {
            match app.json() {
                true => app.ui.json(&json!({"v": 1, "type": "folder", "bucket": at.bucket, "key": folder})),
                false => {
                    app.ui.data(format_args!("{:>20}  {:>10}  s3://{}/{}", "", "", at.bucket, printable_line(folder)))
                }
            }
        }
        listing.objects.iter().for_each(|object| print(app, &at.bucket, object));
        page = listing.next;
        if page.is_none() {
            break;
        }
    }
    if shown == 0 && !at.key.is_empty() {
        return Err(Error::new(ErrorKind::NotFound, format!("list {at}")).because("nothing is there"));
    }
    Ok(exit_code::DONE)
}

fn print(app: &App, bucket: &str, object: &Object) {
    if app.json() {
        app.ui.json(&json!({
            "v": 1, "type": "object", "bucket": bucket, "key": object.key, "bytes": object.size,
            "modified": object.modified.map(|at| at.to_string()),
        }));
    } else {
        let at = object.modified.map(|at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()).unwrap_or_default();
        app.ui.data(format_args!(
            "{at:>20}  {:>10}  s3://{bucket}/{}",
            human::bytes(object.size),
            printable_line(&object.key)
        ));
    }
}
