//! The way to one host: connects, and waits for it to answer.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::config::{self, Block, Trust};
use super::live::{ControlDir, Live};
use super::tool;
use super::trouble::{Cause, Retry, Trouble};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::event::{Bus, EventKind};
use crate::util::fs::{RECORD_LIMIT, read_text_within};

/// A caller that waits at least this long waits for a machine being created, whose name may not resolve yet.
const PATIENT: Duration = Duration::from_secs(60);
/// How long to retry a server that hangs up, even for a caller that does not wait: it may be overloaded for a moment.
const BUSY: Duration = Duration::from_secs(20);

/// How long a machine being created may refuse the key that is being installed on it.
const PROVISIONING: Duration = Duration::from_secs(180);

/// How long a server may take to use another host key, and to be connected to then.
const TAKES_KEY: Duration = Duration::from_secs(20);

/// How to connect to one host, kept for reconnects.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) block: Block,
    pub(super) home: String,
    pub(super) config: PathBuf,
    pub(super) people: PathBuf,
    pub(super) known_hosts: PathBuf,
    pub(super) control: Arc<ControlDir>,
    pub(super) events: Bus,
    pub(super) wait: Duration,
}

impl Route {
    /// The folder for this process's sockets.
    pub(super) fn socket_dir(&self) -> &Path {
        self.control.path()
    }

    /// Sends a warning event.
    pub(super) fn warn(&self, message: String) {
        self.events.warn(message);
    }

    /// Connects; retries while that may help.
    pub(super) async fn connect(&self) -> Result<Live> {
        let (name, begun) = (self.block.name(), Instant::now());
        let mut reported: Option<Cause> = None;
        let mut attempts = 0_u32;
        loop {
            // Another route of this process may have been the last to use the folder and removed it.
            self.control.create()?;
            let attempt = async {
                match &self.block.users_master {
                    Some(socket) => Live::join(socket).await,
                    None => {
                        let (config, control) = (self.config.clone(), Arc::clone(&self.control));
                        Live::connect(name.to_owned(), config, self.block.trust, None, control).await
                    }
                }
            };
            let trouble = match attempt.await {
                Ok(live) => {
                    self.report_first_use(&live);
                    if reported.is_some() {
                        self.events.note(format!("{name} answers by SSH"));
                    }
                    return Ok(live);
                }
                Err(trouble) => trouble,
            };
            attempts += 1;
            let (limit, pause) = match trouble.retry(self.wait >= PATIENT) {
                Retry::Never => return Err(self.error(&trouble)),
                Retry::Waits => (self.wait, Duration::from_secs(u64::from(attempts.min(5)))),
                Retry::Provisioning => (self.wait.min(PROVISIONING), Duration::from_secs(5)),
                Retry::Soon => (self.wait.max(BUSY), Duration::from_millis(200 << attempts.min(4))),
            };
            let left = limit.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Err(self.error(&trouble));
            }
            if reported != Some(trouble.cause) {
                reported = Some(trouble.cause);
                self.report_wait(&trouble, limit);
            }
            tokio::time::sleep(with_jitter(pause).min(left)).await;
        }
    }

    /// Connects once more, accepting nothing but this host key; retries while the server may still be taking it up.
    pub(super) async fn prove(&self, key: &str) -> Result<()> {
        let (name, begun) = (self.block.name(), Instant::now());
        let doing = || format!("connect to {name} by its own host key");
        self.control.create()?;
        let known = tempfile::Builder::new().prefix("known-").tempfile_in(self.control.path());
        let known = known.doing(ErrorKind::Host, doing)?;
        fs_err::write(known.path(), format!("{} {key}\n", self.block.alias())).doing(ErrorKind::Host, doing)?;
        loop {
            let (config, control) = (self.config.clone(), Arc::clone(&self.control));
            let file = Some(known.path().to_owned());
            match Live::connect(name.to_owned(), config, Trust::Made, file, control).await {
                Ok(_) => return Ok(()),
                Err(trouble) if begun.elapsed() > TAKES_KEY => {
                    return Err(trouble.error(&self.block).while_doing(doing()));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
    }

    fn report_wait(&self, trouble: &Trouble, limit: Duration) {
        let what = format!("{} to answer by SSH ({})", self.block.name(), trouble.in_short());
        let limit_milliseconds = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        self.events.note(format!("waiting for {what}"));
        self.events.send(EventKind::Waiting { what, limit_milliseconds });
    }

    /// Warns once when a new host key is trusted, and says how to pin it.
    fn report_first_use(&self, live: &Live) {
        if self.block.trust != Trust::FirstUse || !live.said.contains("Permanently added") {
            return;
        }
        let (name, alias) = (self.block.name(), self.block.alias());
        let fingerprint = tool::fingerprint(&self.known_hosts, &alias).unwrap_or_else(|| "of unknown type".to_owned());
        let text = read(&self.known_hosts).unwrap_or_default();
        let key =
            config::lines_of(&text, &alias).next().and_then(|line| line.split_once(' ')).map(|(_, key)| key.trim());
        self.events.warn(format!(
            "{name} was not known before: its host key {fingerprint} is trusted from now on. To be sure, compare it \
             with the output of `ssh-keygen -lf` on its console. To pin it, write into its entry of \
             `hosts:`  host_key: {}",
            key.unwrap_or_default()
        ));
    }

    fn error(&self, trouble: &Trouble) -> Error {
        let error = trouble.error(&self.block);
        match trouble.cause {
            // A jump host's messages do not reach us.
            Cause::HungUp | Cause::Other => {
                error.hint(format!("try it by hand: ssh -v -F {} {}", self.people.display(), self.block.name()))
            }
            _ => error,
        }
    }

    pub(super) fn is_root(&self) -> bool {
        self.block.user() == "root"
    }
}

/// Between 0.5 and 1.5 times a pause, so that callers refused together do not retry together.
fn with_jitter(pause: Duration) -> Duration {
    let mut byte = [128_u8; 1];
    let _ = getrandom::fill(&mut byte);
    pause.mul_f64(0.5 + f64::from(byte[0]) / 255.0)
}

/// A file's text; empty when the file does not exist.
pub(super) fn read(file: &Path) -> Result<String> {
    match read_text_within(file, RECORD_LIMIT) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        read => read.doing(ErrorKind::State, || format!("read {}", file.display())),
    }
}
