//! A job's log: read at once, streamed, or followed to the job's end across broken connections.

use std::ops::ControlFlow;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message};

use super::client::{Client, refused, whole};
use super::jobs::{Job, check_known_form};
use super::reason::reason;
use crate::error::{Error, ErrorKind, Result, Status};
use crate::util::human;

/// The timeout for connecting and upgrading to a WebSocket.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);
/// The interval of pings.
const PING_EVERY: Duration = Duration::from_secs(15);
/// How long the connection may be silent, without even a pong.
const SILENCE_LIMIT: Duration = Duration::from_secs(50);
/// One message has up to ten lines, and a progress bar may be one line of many megabytes.
const MESSAGE_LIMIT: usize = 256 * 1024 * 1024;

/// How often a followed job is asked whether it has ended, at the beginning and later: Ray closes the stream of its log
/// only three seconds after that (ray 2.60.0).
const ENDED_EVERY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(1));
/// With a longer log, the stream's own end is awaited, in bytes: reading it all again would take longer.
const SHORT_LOG: usize = 4 * 1024 * 1024;

/// The longest log that is read at once, in bytes; a longer one is followed.
const WHOLE_LIMIT: usize = 256 * 1024 * 1024;

/// A piece of output for the follower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow<'a> {
    /// The next piece of the log.
    Text(&'a str),
    /// A note about the connection or the job.
    Note(&'a str),
}

/// How following ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Followed {
    /// The job ended and its whole log was delivered.
    Ended(Box<Job>),
    /// The follower broke off.
    Left,
}

/// Timeouts of following.
#[derive(Debug, Clone, Copy)]
pub struct FollowOptions {
    /// How long Ray may be unreachable before following fails.
    pub give_up_after: Duration,
    /// The first pause before reconnecting; it doubles up to ten times this value.
    pub pause: Duration,
}

impl Default for FollowOptions {
    fn default() -> Self {
        Self { give_up_after: Duration::from_secs(300), pause: Duration::from_millis(500) }
    }
}

/// One connection to a job's log, which plays it from the beginning.
#[derive(Debug)]
pub struct LogTail {
    socket: WebSocketStream<TcpStream>,
    ping: tokio::time::Interval,
    heard: Instant,
}

impl LogTail {
    /// The next piece; `None` if the server closed the connection normally.
    ///
    /// # Errors
    /// With status `Temporary` if the connection broke.
    pub async fn next(&mut self) -> Result<Option<String>> {
        let doing = "follow the log";
        let broken = |cause: &dyn std::fmt::Display| {
            Error::new(ErrorKind::Ray, doing).because("the connection broke").because(cause).status(Status::Temporary)
        };
        loop {
            tokio::select! {
                message = self.socket.next() => {
                    self.heard = Instant::now();
                    match message {
                        Some(Ok(Message::Text(text))) => return Ok(Some(text.as_str().to_owned())),
                        // Such as 1011: Ray failed to read the log.
                        Some(Ok(Message::Close(Some(frame)))) if u16::from(frame.code) >= 1002 => {
                            return Err(broken(&format!("closed with code {}", u16::from(frame.code))));
                        }
                        Some(Ok(Message::Close(_))) => return Ok(None),
                        Some(Ok(_)) => {}
                        Some(Err(error)) => return Err(broken(&error)),
                        None => return Err(broken(&"it ended without a close frame")),
                    }
                }
                _ = self.ping.tick() => {
                    if self.heard.elapsed() > SILENCE_LIMIT {
                        return Err(broken(&format!("no message for {}", human::short_duration(SILENCE_LIMIT))));
                    }
                    if let Err(error) = self.socket.send(Message::Ping(Vec::new().into())).await {
                        return Err(broken(&error));
                    }
                }
            }
        }
    }
}

impl Client {
    /// Reads a job's log up to its current end.
    ///
    /// # Errors
    /// Of kind `NotFound` if Ray does not know the job.
    pub async fn logs(&self, id: &str) -> Result<String> {
        #[derive(Deserialize)]
        struct Logs {
            logs: String,
        }
        let doing = format!("read the log of job {id}");
        check_known_form(id, &doing)?;
        match self.read_long::<Logs>(&format!("/api/jobs/{id}/logs"), WHOLE_LIMIT, &doing).await {
            Ok(logs) => Ok(logs.logs),
            Err(error) if error.causes().iter().any(|cause| cause.contains("UnicodeDecodeError")) => {
                self.log_file(id, &doing).await.ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads the log file directly: Ray's job API fails at the first byte that is not UTF-8.
    async fn log_file(&self, id: &str, doing: &str) -> Option<String> {
        let node = self.job(id).await.ok()?.driver_node_id?;
        let path = format!("/api/v0/logs/file?node_id={node}&filename=job-driver-{id}.log&lines=-1&format=text");
        let bytes = whole(self.read_answer(&path, doing).await.ok()?, WHOLE_LIMIT, doing).await.ok()?;
        // The job API normalizes line ends to `\n`; byte offsets must match it.
        Some(String::from_utf8_lossy(&bytes).replace("\r\n", "\n").replace('\r', "\n"))
    }

    /// Opens a stream of a job's log from the beginning.
    ///
    /// # Errors
    /// Of kind `NotFound` if Ray does not know the job; with status `Temporary` if it cannot be reached.
    pub async fn tail(&self, id: &str) -> Result<LogTail> {
        let doing = format!("follow the log of job {id}");
        check_known_form(id, &doing)?;
        let unreachable = |cause: &dyn std::fmt::Display| {
            Error::new(ErrorKind::Ray, doing.clone())
                .because(format!("{} cannot be reached", self.base()))
                .because(cause)
                .status(Status::Temporary)
                .hint("is the cluster up? `gpucl status`")
        };
        let wrong = || Error::new(ErrorKind::Ray, doing.clone()).because(format!("`{}` is not a URL", self.base()));
        let url = reqwest::Url::parse(self.base()).map_err(|_| wrong())?;
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return Err(wrong());
        };
        let mut request = format!("ws://{host}:{port}/api/jobs/{id}/logs/tail")
            .into_client_request()
            .map_err(|error| unreachable(&error))?;
        request.headers_mut().insert("authorization", self.bearer(&doing)?);
        let config =
            WebSocketConfig::default().max_message_size(Some(MESSAGE_LIMIT)).max_frame_size(Some(MESSAGE_LIMIT));
        let connecting = async {
            let stream = TcpStream::connect((host, port)).await.map_err(tungstenite::Error::Io)?;
            tokio_tungstenite::client_async_with_config(request, stream, Some(config)).await
        };
        let socket = match tokio::time::timeout(CONNECT_LIMIT, connecting).await {
            Ok(Ok((socket, _))) => socket,
            Ok(Err(tungstenite::Error::Http(answer))) => {
                let body = answer.body().as_deref().map(String::from_utf8_lossy).unwrap_or_default();
                return Err(refused(&doing, answer.status(), &body));
            }
            Ok(Err(error)) => return Err(unreachable(&error)),
            Err(_) => return Err(unreachable(&"no answer in time")),
        };
        let mut ping = tokio::time::interval_at(Instant::now() + PING_EVERY, PING_EVERY);
        ping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        Ok(LogTail { socket, ping, heard: Instant::now() })
    }

    /// Follows a job's log to the job's end across broken connections, delivering each byte once.
    ///
    /// Ray only appends to a log and plays it from the beginning on every connection, so delivered bytes are counted
    /// and skipped.
    ///
    /// # Errors
    /// If Ray refuses, does not know the job, or cannot be reached for [`FollowOptions::give_up_after`].
    pub async fn follow(
        &self,
        id: &str,
        options: FollowOptions,
        on: &mut (dyn for<'a> FnMut(Follow<'a>) -> ControlFlow<()> + Send),
    ) -> Result<Followed> {
        let mut following =
            Following { client: self, id, on, handed_over: 0, waited_for: None, last_contact: Instant::now() };
        let mut pause = options.pause;
        let (mut lost, mut closed_early) = (false, false);
        loop {
            let before = following.handed_over;
            let error = match following.one_connection(&mut lost).await {
                Ok(Some(Followed::Ended(job))) if closed_early || following.handed_over == 0 => {
                    return Ok(if following.rest().await.is_break() { Followed::Left } else { Followed::Ended(job) });
                }
                Ok(Some(followed)) => return Ok(followed),
                // Closed normally while the job runs: Ray's reader of the log was lost, or cannot read it.
                Ok(None) => {
                    closed_early = true;
                    if following.handed_over == before
                        && let Ok(text) = self.logs(id).await
                        && following.hand_over(&text, &mut 0).is_break()
                    {
                        return Ok(Followed::Left);
                    }
                    None
                }
                Err(error) if error.retry_status() == Status::Permanent && error.kind() != ErrorKind::Timeout => {
                    return Err(error);
                }
                Err(error) => Some(error),
            };
            if following.handed_over > before {
                pause = options.pause;
            }
            if let Some(error) = error {
                if following.last_contact.elapsed() > options.give_up_after {
                    let again =
                        format!("the job may still be running; follow it again: `gpucl job logs {id} --follow`");
                    return Err(error.hint(again));
                }
                if !lost {
                    lost = true;
                    let note = format!("lost the connection to job {id}; the job keeps running, reconnecting");
                    if (following.on)(Follow::Note(&note)).is_break() {
                        return Ok(Followed::Left);
                    }
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(options.pause * 10);
        }
    }
}

struct Following<'a, 'b> {
    client: &'a Client,
    id: &'a str,
    on: &'a mut (dyn for<'c> FnMut(Follow<'c>) -> ControlFlow<()> + Send + 'b),
    handed_over: usize,
    waited_for: Option<String>,
    last_contact: Instant,
}

impl Following<'_, '_> {
    /// Follows over one connection; `None` if it was closed normally and the job still runs.
    async fn one_connection(&mut self, lost: &mut bool) -> Result<Option<Followed>> {
        // For a job that has ended, one answer is enough: a poor link may never carry a whole stream.
        if *lost && let Some(followed) = self.if_ended().await? {
            return Ok(Some(followed));
        }
        let mut tail = self.client.tail(self.id).await?;
        self.last_contact = Instant::now();
        if std::mem::take(lost) && (self.on)(Follow::Note("reconnected")).is_break() {
            return Ok(Some(Followed::Left));
        }
        let mut seen = 0;
        let mut look = tokio::time::interval_at(Instant::now() + PING_EVERY / 3, PING_EVERY);
        let begun = Instant::now();
        let mut asked = begun;
        loop {
            let pause = (begun.elapsed() / 20).clamp(ENDED_EVERY.0, ENDED_EVERY.1);
            let piece = tokio::select! {
                piece = tail.next() => {
                    let piece = piece?;
                    self.last_contact = Instant::now();
                    piece
                }
                () = tokio::time::sleep_until(asked + pause), if self.handed_over < SHORT_LOG => {
                    let followed = self.if_ended().await;
                    asked = Instant::now();
                    match followed {
                        Ok(Some(followed)) => return Ok(Some(followed)),
                        // The stream says what is wrong.
                        Ok(None) | Err(_) => continue,
                    }
                }
                // A job without any output may wait for resources: report each reason once.
                _ = look.tick(), if self.handed_over == 0 => {
                    if self.report_waiting().await.is_break() {
                        return Ok(Some(Followed::Left));
                    }
                    continue;
                }
            };
            let Some(piece) = piece else { break };
            if self.hand_over(&piece, &mut seen).is_break() {
                return Ok(Some(Followed::Left));
            }
        }
        let job = self.client.job(self.id).await?;
        Ok(job.status.is_terminal().then(|| Followed::Ended(Box::new(job))))
    }

    /// Delivers the rest of the log if the job has ended.
    async fn if_ended(&mut self) -> Result<Option<Followed>> {
        let job = self.client.job(self.id).await?;
        self.last_contact = Instant::now();
        if !job.status.is_terminal() {
            return Ok(None);
        }
        let text = self.client.logs(self.id).await?;
        let left = self.hand_over(&text, &mut 0).is_break();
        Ok(Some(if left { Followed::Left } else { Followed::Ended(Box::new(job)) }))
    }

    /// Delivers the new part of a piece. `seen` is how much of the log this connection has played, in bytes.
    fn hand_over(&mut self, piece: &str, seen: &mut usize) -> ControlFlow<()> {
        let known = self.handed_over.saturating_sub(*seen).min(piece.len());
        *seen += piece.len();
        // A boundary within a character is impossible while the log is append-only; if it happens, nothing is lost.
        let new = piece.get(known..).unwrap_or(piece);
        if new.is_empty() {
            return ControlFlow::Continue(());
        }
        self.handed_over = (*seen).max(self.handed_over);
        (self.on)(Follow::Text(new))
    }

    /// Delivers the rest of the log: Ray closes the stream normally if it cannot read the log.
    async fn rest(&mut self) -> ControlFlow<()> {
        match self.client.logs(self.id).await {
            Ok(text) => self.hand_over(&text, &mut 0),
            Err(error) => {
                let note = format!("the log of job {} is incomplete here: {error}", self.id);
                (self.on)(Follow::Note(&note))
            }
        }
    }

    async fn report_waiting(&mut self) -> ControlFlow<()> {
        let Ok(job) = self.client.job(self.id).await else {
            return ControlFlow::Continue(());
        };
        if job.status != super::jobs::JobStatus::Pending {
            return ControlFlow::Continue(());
        }
        let why = self.client.situation(&job).await.ok().and_then(|situation| reason(&job, &situation));
        let message = why.as_deref().or_else(|| job.short_message()).unwrap_or("it has not started yet").to_owned();
        if self.waited_for.as_ref() == Some(&message) {
            return ControlFlow::Continue(());
        }
        let said = (self.on)(Follow::Note(&format!("job {} is waiting: {message}", self.id)));
        self.waited_for = Some(message);
        said
    }
}
