//! What every node of a cluster on a platform does before its Ray starts: packages and commands, data sets and files.
//!
//! `templates/raycluster/start.py` does it, in each node, from files that the platform brings there. A node that runs is
//! not made again for other data or files: `up` sends it what changed, and the same program takes it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::cluster::local_files;
use crate::error::{Doing as _, ErrorKind, Result};
use crate::event::Bus;
use crate::host::{ExecEnd, Host, Stream};
use crate::provider::platform::{PREPARATION, Preparation};
use crate::render::{Library, quote, write_files};
use crate::runtime::data::{clone_of, set_of};
use crate::spec::Spec;
use crate::util::digest;

/// The program that prepares a node.
const START: &str = "start.py";
/// What it does, as JSON.
const WANTED: &str = "start.json";
/// The digest of all of it.
const DIGEST: &str = "digest";
/// Where a node that runs has what `up` brought it, in place of [`PREPARATION`].
const BROUGHT: &str = "/tmp/gpucl/start";

/// What a spec lets nodes do, without the files for it; `None` if nothing.
pub(super) fn of(spec: &Spec) -> Option<Preparation> {
    let setup = spec.setup().map(|setup| setup.digest());
    let is_there = setup.is_some() || spec.has_data();
    is_there.then(|| Preparation {
        setup,
        limit: spec.timeouts.data.0 + spec.timeouts.prepare.0,
        ..Preparation::default()
    })
}

/// What a spec lets nodes do, with the files for it, which are read on this machine: blocks on disk reads.
pub(super) fn with_files(spec: &Spec, library: &Library, events: &Bus) -> Result<Option<Preparation>> {
    let Some(mut preparation) = of(spec) else { return Ok(None) };
    let files = &mut preparation.files;
    let mut bundles = Vec::new();
    let mut content = Vec::new();
    for (index, local) in local_files::read(spec, events)?.iter().enumerate() {
        let (list, archive) = (format!("files-{index}.json"), format!("files-{index}.tar.gz"));
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        let doing = || format!("pack the files of {}", local.bundle.to);
        local.packed(0..local.count(), &mut packed).doing(ErrorKind::Usage, doing)?;
        files.insert(archive.clone(), packed.finish().doing(ErrorKind::Internal, doing)?);
        files.insert(list.clone(), local.bundle.list.clone().into_bytes());
        content.push(local.bundle.list.clone());
        bundles.push(json!({ "list": list, "archive": archive }));
    }
    let clones: Vec<Value> = spec.files.iter().filter_map(clone_of).collect();
    let sets: Vec<Value> = spec.data.iter().map(set_of).collect();
    let setup = spec.setup().map(|setup| {
        let packages = setup.packages();
        json!({ "packages": packages, "index_url": setup.index_url, "commands": setup.commands, "digest": setup.digest() })
    });
    let wanted = json!({
        "setup": setup, "constraint": format!("ray=={}", spec.ray.version),
        "sets": sets, "bundles": bundles, "clones": clones,
    });
    files.insert(DIGEST.to_owned(), digest::of_json(&(&wanted, content)).into_bytes());
    files.insert(WANTED.to_owned(), wanted.to_string().into_bytes());
    files.insert(START.to_owned(), library.read("templates/raycluster/start.py")?.0);
    files.insert("fill.py".to_owned(), library.read("templates/data/fill.py")?.0);
    Ok(Some(preparation))
}

/// What a node that runs says of its data and files.
pub(super) struct Prepared {
    pub(super) passed: bool,
    /// The last line that it said.
    pub(super) saw: String,
}

/// Checks the data and files of a node that runs, and fills what is not whole. With `wanted`, it gets what changed.
pub(super) async fn check(host: &dyn Host, wanted: Option<&Preparation>) -> Result<Prepared> {
    let digest = wanted.and_then(|wanted| wanted.files.get(DIGEST)).map(|digest| String::from_utf8_lossy(digest));
    let (mut is_wanted, prepared) = run(host, &again(digest.as_deref())).await?;
    if let (true, Some(wanted)) = (std::mem::take(&mut is_wanted), wanted) {
        return Ok(run(host, &brought(&wanted.files, digest.as_deref())).await?.1);
    }
    Ok(prepared)
}

/// Runs the program of the folder that was brought last, if its digest is this one, or any when absent.
fn again(digest: Option<&str>) -> String {
    let test = digest.map(|digest| format!("[ \"$(cat $folder/{DIGEST} 2>/dev/null)\" = {} ] && ", quote(digest)));
    format!(
        "for folder in {BROUGHT} {PREPARATION}; do\n\
         [ -e $folder/{START} ] && {}exec python $folder/{START} again 2>&1\n\
         done\necho ::want\n",
        test.unwrap_or_default()
    )
}

/// Puts the files onto the node, and runs the program.
fn brought(files: &BTreeMap<String, Vec<u8>>, digest: Option<&str>) -> String {
    let mut script = format!("umask 077\nrm -rf {BROUGHT}.new && mkdir -p {BROUGHT}.new || exit 1\n");
    script.push_str(&write_files(&format!("{BROUGHT}.new"), files));
    let _ = write!(script, "rm -rf {BROUGHT} && mv {BROUGHT}.new {BROUGHT} || exit 1\n{}", again(digest));
    script
}

async fn run(host: &dyn Host, script: &str) -> Result<(bool, Prepared)> {
    let mut lines = Vec::new();
    let ended = host.exec(script, &mut |_: Stream, line: &str| lines.push(line.to_owned())).await?;
    let is_wanted = lines.iter().any(|line| line == "::want");
    let saw = lines.pop().unwrap_or_else(|| "it said nothing".to_owned());
    Ok((is_wanted, Prepared { passed: ended == ExecEnd::Exited(0) && !is_wanted, saw }))
}
