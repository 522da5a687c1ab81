//! An MLflow server: its address, its login, and a timeout on every call.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::time::Duration;

use futures_util::stream;
use reqwest::header::CONTENT_LENGTH;
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use secrecy::{ExposeSecret as _, SecretString};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{Doing as _, Error, ErrorKind, Result, Status};
use crate::util::http::{Unread, body, innermost};
use crate::util::text::{printable_line, shortened};

/// The timeout for connecting.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// How long the server may be silent: SQLite has one writer, and a store of artifacts may be slow.
const SILENCE_LIMIT: Duration = Duration::from_secs(120);
/// The longest answer that is read as a whole, in bytes: a page of metrics, or of runs with their parameters.
const BODY_LIMIT: usize = 64 << 20;
/// How often a call that changes nothing is made.
const TRIES: u32 = 4;
/// The pause before it is made again.
const PAUSE: Duration = Duration::from_secs(1);
/// How much of a file is read at a time, in bytes.
const PIECE: usize = 256 << 10;

/// How a server knows who asks.
#[derive(Debug, Clone, Default)]
pub enum Login {
    /// It does not ask.
    #[default]
    Open,
    /// A user name and a password.
    Password {
        /// The user name.
        user: String,
        /// The password.
        password: SecretString,
    },
    /// A token.
    Token(SecretString),
}

impl Login {
    /// The variables that give a client the address and this login.
    pub fn variables(&self, url: &str) -> BTreeMap<&'static str, String> {
        let mut variables = BTreeMap::from([("MLFLOW_TRACKING_URI", url.to_owned())]);
        match self {
            Self::Open => {}
            Self::Password { user, password } => {
                variables.insert("MLFLOW_TRACKING_USERNAME", user.clone());
                variables.insert("MLFLOW_TRACKING_PASSWORD", password.expose_secret().to_owned());
            }
            Self::Token(token) => {
                variables.insert("MLFLOW_TRACKING_TOKEN", token.expose_secret().to_owned());
            }
        }
        variables
    }
}

/// A server.
pub struct Server {
    http: reqwest::Client,
    base: Url,
    login: Login,
}

/// An entry of a folder of artifacts.
#[derive(Debug, Clone, serde::Deserialize)]
pub(super) struct Entry {
    /// Its name in the folder.
    pub(super) path: String,
    #[serde(default)]
    pub(super) is_dir: bool,
}

impl Server {
    /// The server at this URL.
    ///
    /// # Errors
    /// If it is not a URL.
    pub fn new(url: &str, login: Login) -> Result<Self> {
        let doing = || format!("use MLflow at {url}");
        let wrong = |why: &str| Error::new(ErrorKind::Usage, doing()).because(why);
        let base = Url::parse(url).map_err(|error| wrong(&error.to_string()))?;
        if base.cannot_be_a_base() {
            return Err(wrong("it is not a URL of a server"));
        }
        // Redirects would lead the login to another server.
        let builder = crate::util::http::client_for(&base)
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_LIMIT)
            .read_timeout(SILENCE_LIMIT);
        let http = crate::util::http::built(builder, doing)?;
        Ok(Self { http, base, login })
    }

    /// Its version.
    pub(super) async fn version(&self) -> Result<String> {
        let mut answer = self.ask(&|| self.request(Method::GET, self.url(&["version"])), true).await?;
        let doing = "read MLflow's version";
        Ok(String::from_utf8_lossy(&whole(&mut answer, doing).await?).trim().to_owned())
    }

    /// A call that only reads, with the parameters in the query.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str, query: &[(&str, &str)]) -> Result<T> {
        let request = || self.request(Method::GET, self.api(path)).query(query);
        read(path, self.ask(&request, true).await?).await
    }

    /// A call that only reads, with the parameters in the body.
    pub(super) async fn search<T: DeserializeOwned>(&self, path: &str, what: &Value) -> Result<T> {
        let request = || self.request(Method::POST, self.api(path)).json(what);
        read(path, self.ask(&request, true).await?).await
    }

    /// A call that changes something; it is made once.
    pub(super) async fn change<T: DeserializeOwned>(&self, method: Method, path: &str, what: &Value) -> Result<T> {
        let request = || self.request(method.clone(), self.api(path)).json(what);
        read(path, self.ask(&request, false).await?).await
    }

    /// A call that changes something, whose answer says nothing.
    pub(super) async fn set(&self, path: &str, what: &Value) -> Result<()> {
        self.change::<Value>(Method::POST, path, what).await.map(drop)
    }

    /// The entries of a folder of artifacts; none if it does not exist.
    pub(super) async fn list(&self, folder: &str) -> Result<Vec<Entry>> {
        #[derive(serde::Deserialize)]
        struct Listing {
            #[serde(default)]
            files: Vec<Entry>,
        }
        let url = self.url(&["api", "2.0", "mlflow-artifacts", "artifacts"]);
        let request = || self.request(Method::GET, url.clone()).query(&[("path", folder)]);
        Ok(read::<Listing>("list artifacts", self.ask(&request, true).await?).await?.files)
    }

    /// Reads an artifact; each piece goes to `piece`.
    pub(super) async fn download(&self, path: &str, piece: &mut (dyn FnMut(&[u8]) -> Result<()> + Send)) -> Result<()> {
        let doing = || format!("read the artifact {}", printable_line(path));
        let mut answer = self.ask(&|| self.request(Method::GET, self.artifact(path)), true).await?;
        while let Some(bytes) = answer
            .chunk()
            .await
            .map_err(|error| Error::new(ErrorKind::Host, doing()).because(error.without_url().to_string()))?
        {
            piece(&bytes)?;
        }
        Ok(())
    }

    /// Writes an artifact of this size from a file; `moved` gets each number of bytes that was read for it.
    pub(super) async fn upload(&self, path: &str, file: File, size: u64, moved: &dyn Fn(u64)) -> Result<()> {
        let pieces = stream::unfold((file, size), |(mut file, left)| async move {
            if left == 0 {
                return None;
            }
            let mut piece = vec![0; PIECE.min(usize::try_from(left).unwrap_or(PIECE))];
            let read = file.read(&mut piece).and_then(|read| match read {
                0 => Err(std::io::Error::other("the file became shorter while it was read")),
                read => Ok(read),
            });
            Some(match read {
                Ok(read) => {
                    piece.truncate(read);
                    (Ok(piece), (file, left - read as u64))
                }
                Err(error) => (Err(error), (file, 0)),
            })
        });
        let request = self.request(Method::PUT, self.artifact(path)).header(CONTENT_LENGTH, size);
        let request = request.body(reqwest::Body::wrap_stream(pieces));
        let answer = request.send().await.map_err(|error| unreachable(&error))?;
        refused(answer).await?;
        moved(size);
        Ok(())
    }

    fn api(&self, path: &str) -> Url {
        let parts: Vec<&str> = ["api", "2.0", "mlflow"].into_iter().chain(path.split('/')).collect();
        self.url(&parts)
    }

    fn artifact(&self, path: &str) -> Url {
        let parts: Vec<&str> =
            ["api", "2.0", "mlflow-artifacts", "artifacts"].into_iter().chain(path.split('/')).collect();
        self.url(&parts)
    }

    fn url(&self, parts: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(parts);
        }
        url
    }

    fn request(&self, method: Method, url: Url) -> RequestBuilder {
        let request = self.http.request(method, url);
        match &self.login {
            Login::Open => request,
            Login::Password { user, password } => request.basic_auth(user, Some(password.expose_secret())),
            Login::Token(token) => request.bearer_auth(token.expose_secret()),
        }
    }

    /// Makes a call, several times if that may help and does no harm.
    async fn ask(&self, request: &(dyn Fn() -> RequestBuilder + Sync), may_repeat: bool) -> Result<Response> {
        let mut tries = 1;
        loop {
            let answer = match request().send().await {
                Ok(answer) => refused(answer).await,
                Err(error) => Err(unreachable(&error)),
            };
            match answer {
                Err(error) if may_repeat && tries < TRIES && error.retry_status() == Status::Temporary => {
                    tries += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                answer => return answer,
            }
        }
    }
}

/// Whether an error says that the thing does not exist.
pub(super) fn is_absent(error: &Error) -> bool {
    error.kind() == ErrorKind::NotFound
}

fn unreachable(error: &reqwest::Error) -> Error {
    Error::new(ErrorKind::Host, "ask MLflow").because(innermost(error)).status(Status::Temporary)
}

/// The answer, unless it is a refusal.
async fn refused(mut answer: Response) -> Result<Response> {
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let path = answer.url().path().to_owned();
    let text = body(&mut answer, 64 << 10).await.unwrap_or_default();
    let said = serde_json::from_slice::<Value>(&text).unwrap_or_default();
    let why = match said["message"].as_str() {
        Some(message) => shortened(&printable_line(message)),
        None => format!("it answers {status}"),
    };
    let kind = match status {
        StatusCode::NOT_FOUND => ErrorKind::NotFound,
        _ => ErrorKind::Host,
    };
    let error = Error::new(kind, format!("ask MLflow for {path}")).because(why);
    Err(match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => error.because("the server refuses this login"),
        StatusCode::TOO_MANY_REQUESTS => error.status(Status::Temporary),
        status if status.is_server_error() => error.status(Status::Temporary),
        _ => error,
    })
}

async fn whole(answer: &mut Response, doing: &str) -> Result<Vec<u8>> {
    body(answer, BODY_LIMIT).await.map_err(|unread| {
        let error = Error::new(ErrorKind::Host, doing);
        match unread {
            Unread::Broken(broken) => error.because(broken.without_url().to_string()).status(Status::Temporary),
            Unread::TooLong(limit) => error.because(format!("its answer is longer than {limit} bytes")),
        }
    })
}

async fn read<T: DeserializeOwned>(path: &str, mut answer: Response) -> Result<T> {
    let doing = format!("ask MLflow: {path}");
    let bytes = whole(&mut answer, &doing).await?;
    let bytes = if bytes.is_empty() { b"{}" } else { bytes.as_slice() };
    serde_json::from_slice(bytes).doing(ErrorKind::Host, || doing)
}
