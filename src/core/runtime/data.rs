//! The stage `fill` of a host: fills its data sets and brings its files before nodes start, and checks them at each `up`.
//!
//! The program that fills is `templates/data/fill.py`. It runs as the user of jobs, where jobs run: with containers in a
//! container of their image, so that nothing of an archive or a command runs as root.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::error::Result;
use crate::host::StageFile;
use crate::playbook::{KnownError, Stage, Step};
use crate::render::{quote, quote_path};
use crate::runtime::project::{Bundle, Filling, PrepareRequest};
use crate::spec::{DataSpec, FileSpec};
use crate::util::digest;

/// The name of the stage.
pub(super) const STAGE: &str = "fill";

/// Whether a set is whole: it was filled as the spec says now, and its check passes.
const HOLDS: &str = "as_job sh -c '[ \"$(cat \"$GPUCL_DATA/.gpucl/$1.state\")\" = \"filled $2\" ] && \
                     cd \"$GPUCL_DATA/$1\" && exec sh -c \"$3\"' - \"$data_name\" \"$data_want\" \"$data_check\" </dev/null";
/// Fills a set with the program.
const FILL: &str = "printf '%s' \"$data_set\" | as_job \"$python\" -I -B \"$fill\" fill \"$GPUCL_DATA\"";

/// How a runtime runs programs as the user of jobs.
pub(super) struct JobUser<'a> {
    /// Shell code that defines `as_job`, which runs its arguments as that user, and sets `python`, `fill` (the path of
    /// the program) and `GPUCL_DATA` as that user sees them.
    pub(super) prelude: &'a str,
    /// The shell code that fills a set by an image; it has the prelude before it.
    pub(super) by_image: &'a str,
    /// Where the program is delivered, from the host's folder.
    pub(super) program: &'a str,
    /// The steps before the first set.
    pub(super) before: Vec<Step>,
    /// The steps after the last one, also after a failure.
    pub(super) after: Vec<Step>,
    /// The files of these steps.
    pub(super) files: Vec<StageFile>,
    /// Shell variables of all steps.
    pub(super) variables: BTreeMap<String, String>,
}

/// How the data folder of a host is filled; `None` when the spec has nothing for it.
pub(super) fn filling(request: &PrepareRequest<'_>, way: JobUser<'_>) -> Result<Option<Filling>> {
    let spec = request.spec;
    if !spec.has_data() {
        return Ok(None);
    }
    let JobUser { prelude, by_image, program, before, after, mut files, mut variables } = way;
    let (bytes, _) = request.library.read("templates/data/fill.py")?;
    let wants =
        request.files.iter().map(|bundle| wants(request, bundle, &way_of(prelude, &variables), &bytes)).collect();
    files.push(StageFile { path: program.to_owned(), mode: 0o644, bytes });
    variables.extend([("data_image".to_owned(), String::new()), ("data_command".to_owned(), String::new())]);
    let mut steps = before;
    steps.extend(spec.data.iter().map(|data| step(data, prelude, by_image)));
    for bundle in request.files {
        files.push(StageFile { path: bundle.listing(), mode: 0o600, bytes: bundle.list.clone().into_bytes() });
        steps.push(bring(bundle, prelude));
    }
    steps.extend(spec.files.iter().filter_map(|file| clone(file, prelude)));
    steps.extend(after.into_iter().map(|step| Step { finally: true, ..step }));
    let timeout = spec.timeouts.data.0;
    let stage = Stage { name: STAGE.to_owned(), steps, files, variables, timeout, wants_facts: false };
    Ok(Some(Filling { stage, wants }))
}

/// The beginning of a script outside of the stage: its variables, and how jobs run.
fn way_of(prelude: &str, variables: &BTreeMap<String, String>) -> String {
    let set = |(name, value): (&String, &String)| format!("{name}={}\n", quote(value));
    format!("{}{prelude}", variables.iter().map(set).collect::<String>())
}

/// The script that asks a host which files it wants. The stage that delivers the program has not run yet.
fn wants(request: &PrepareRequest<'_>, bundle: &Bundle, way: &str, program: &[u8]) -> String {
    let home = quote_path(&request.host.folders.home);
    let program = quote(&String::from_utf8_lossy(program));
    let list = quote(&bundle.list);
    format!(
        "gpucl_home={home}\ncd \"$gpucl_home\" && mkdir -p data lib || exit 1\nchmod 755 lib\n{way}program={program}\n\
         printf '%s' {list} | as_job \"$python\" -I -B -c \"$program\" wants \"$GPUCL_DATA\" 2>&1\n"
    )
}

fn bring(bundle: &Bundle, prelude: &str) -> Step {
    let (list, archive) = (quote(&bundle.listing()), quote(&bundle.archive()));
    let call = "as_job \"$python\" -I -B \"$fill\"";
    Step {
        name: format!("bring the files of {}", bundle.to),
        unless: Some(format!("{prelude}{call} have \"$GPUCL_DATA\" <\"$gpucl_home\"/{list}\n")),
        run: format!(
            "{prelude}[ -e {archive} ] || {{ echo 'data: the files were not sent'; exit 1; }}\n\
             {call} take \"$GPUCL_DATA\" <\"$gpucl_home\"/{archive}\nrm -f {archive}\n"
        ),
        affected_paths: vec![format!("data folder, {}: files of this machine", bundle.to)],
        hint: Some("run `gpucl up` again: it sends what is missing".to_owned()),
        errors: vec![known("data: ", None)],
        ..Step::default()
    }
}

fn clone(file: &FileSpec, prelude: &str) -> Option<Step> {
    let wanted = clone_of(file)?.to_string();
    let call = format!("printf '%s' {} | as_job \"$python\" -I -B \"$fill\"", quote(&wanted));
    Some(Step {
        name: format!("clone {}", file.to),
        unless: Some(format!("{prelude}{call} cloned \"$GPUCL_DATA\"\n")),
        run: format!("{prelude}{call} clone \"$GPUCL_DATA\"\n"),
        affected_paths: vec![format!("data folder, {}: {}", file.to, file.describe())],
        hint: Some("can the host reach the repository, and has it this commit? `gpucl up --update-files` takes what `ref` is now".to_owned()),
        errors: vec![known("data: ", None)],
        ..Step::default()
    })
}

fn known(matches: &str, hint: Option<&str>) -> KnownError {
    KnownError { matches: matches.to_owned(), says: "{line}".to_owned(), hint: hint.map(str::to_owned), retry: false }
}

/// The digest of what a data set is filled with.
fn digest_of(data: &DataSpec) -> String {
    digest::of_json(&(1, &data.name, &data.from))
}

/// A data set, as `fill.py` is asked to fill it.
pub fn set_of(data: &DataSpec) -> Value {
    let DataSpec { name, from, check } = data;
    json!({
        "name": name, "digest": digest_of(data), "check": check,
        "url": from.url, "sha256": from.sha256, "command": from.command,
    })
}

/// A repository, as `fill.py` is asked to clone it; `None` for other files.
pub fn clone_of(file: &FileSpec) -> Option<Value> {
    let (url, commit) = (file.git.as_ref()?, file.commit.as_ref()?);
    Some(json!({ "to": file.to, "url": url, "ref": file.reference(), "commit": commit }))
}

fn step(data: &DataSpec, prelude: &str, by_image: &str) -> Step {
    let DataSpec { name, from, check } = data;
    let set = set_of(data);
    let want = digest_of(data);
    let mut variables = BTreeMap::from([
        ("data_name".to_owned(), name.clone()),
        ("data_want".to_owned(), want),
        ("data_check".to_owned(), check.clone()),
        ("data_set".to_owned(), set.to_string()),
    ]);
    if let Some(image) = &from.image {
        variables.insert("data_image".to_owned(), image.clone());
        variables.insert("data_command".to_owned(), from.command.clone().unwrap_or_default());
    }
    let run = if from.image.is_some() { by_image } else { FILL };
    Step {
        name: format!("fill the data set {name}"),
        unless: Some(format!("{prelude}{HOLDS}\n")),
        run: format!("{prelude}{run}\n"),
        variables,
        affected_paths: vec![format!("data set {name}, {}", from.describe())],
        hint: Some(format!("correct the data set {name} in the spec, then run `gpucl up` again")),
        errors: if from.url.is_some() { url_errors() } else { Vec::new() },
        ..Step::default()
    }
}

fn url_errors() -> Vec<KnownError> {
    let goes_on = "run `gpucl up` again: it goes on where the download was cut";
    vec![
        known("has the SHA-256", Some("if that is the file that you want, write its sum into the spec: `sha256:`")),
        known(
            "No space left on device|are free there|Disk quota exceeded|File too large",
            Some("make room on the host's disk; the next `gpucl up` goes on where the download was cut"),
        ),
        known("cannot be downloaded", Some(goes_on)),
        known("data: ", None),
    ]
}
