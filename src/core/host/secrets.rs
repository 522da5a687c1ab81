//! The secrets of a running job: a file in the cluster's data folder, private to the user of jobs.

use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::mpsc;

use super::ssh::path::HostPath;
use super::ssh::stream::StreamHost;
use super::ssh::transfer::last_line;
use crate::error::{Error, ErrorKind, Result};

/// The variable with the id of secrets, which is all that Ray has of them; `templates/ray-native/worker.py` reads it.
pub const SECRETS: &str = "GPUCL_SECRETS";
/// Enters the folder, which is of this user alone, or makes it; nobody else's folder and no link is used.
/// `templates/ray-native/worker.py` reads it, `stop` and `down` remove it.
const ENTER: &str = r#"
umask 077
[ -d .gpucl-secrets ] || mkdir .gpucl-secrets || [ -d .gpucl-secrets ]
if [ -L .gpucl-secrets ]; then echo ".gpucl-secrets is a link in the data folder there" >&2; exit 1; fi
cd -P .gpucl-secrets
[ "$(stat -c '%u %a' .)" = "$(id -u) 700" ] || { echo ".gpucl-secrets in the data folder there is open to others" >&2; exit 1; }
"#;
const PUT: &str = "cat >\"./.$file\"\nmv -f -- \"./.$file\" \"./$file\"\n";
/// The shell cannot go up: the user of jobs may not enter the folder above the data folder.
const REMOVE: &str = "rm -f -- \"./$file\" \"./.$file\"\nrmdir ../.gpucl-secrets 2>/dev/null || :\n";

/// Puts a job's secrets on a host whose data folder this is; `id` is made of letters and digits.
///
/// # Errors
/// When the data folder cannot be written.
pub async fn put_secrets(host: &dyn StreamHost, data: HostPath<'_>, id: &str, text: &SecretString) -> Result<()> {
    let bytes = text.expose_secret().as_bytes().to_vec();
    run(host, data, &format!("file={id}\n{ENTER}{PUT}"), bytes, "give a host the secrets of the job").await
}

/// Removes a job's secrets from a host.
///
/// # Errors
/// When the data folder cannot be written.
pub async fn remove_secrets(host: &dyn StreamHost, data: HostPath<'_>, id: &str) -> Result<()> {
    let program = format!("file={id}\n[ -d .gpucl-secrets ] || exit 0\n{ENTER}{REMOVE}");
    run(host, data, &program, Vec::new(), "remove the secrets of the job from a host").await
}

async fn run(host: &dyn StreamHost, data: HostPath<'_>, program: &str, given: Vec<u8>, doing: &str) -> Result<()> {
    let (into, input) = mpsc::channel(1);
    if !given.is_empty() {
        let _ = into.try_send(given);
    }
    drop(into);
    let (out, mut ignored) = mpsc::channel(1);
    let program = format!("set -eu\n{program}");
    let drain = async move { while ignored.recv().await.is_some() {} };
    let (ended, ()) = tokio::join!(host.run(program.as_bytes(), data, input, out), drain);
    let ended = ended?;
    match ended.code {
        Some(0) => Ok(()),
        Some(_) => Err(Error::new(ErrorKind::Host, doing)
            .because(last_line(&ended.said, "it failed there"))
            .because(format!("on {}", host.machine()))),
        None => Err(Error::new(ErrorKind::Host, doing).because("the connection to the host broke")),
    }
}
