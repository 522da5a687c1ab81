//! The client: one store, one pair of keys, and a timeout on every call.

use std::sync::Mutex;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};
use reqwest::header::{ETAG, IF_MATCH, LAST_MODIFIED, RANGE};
use reqwest::{Method, Response, StatusCode, Url};
use rusty_s3::actions::{CreateMultipartUpload, ListObjectsV2};
use rusty_s3::{Bucket, Credentials, S3Action, UrlStyle};
use secrecy::{ExposeSecret as _, SecretString};

use crate::error::{Doing as _, Error, ErrorKind, Result, Status};
use crate::util::http::{Unread, body};
use crate::util::text::shortened;

/// How long a signature is valid.
const VALID_FOR: Duration = Duration::from_secs(15 * 60);
/// The timeout for connecting.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// How long a store may be silent.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);
/// The longest answer that is read as a whole, in bytes: a thousand long keys, encoded.
const BODY_LIMIT: usize = 16 * 1024 * 1024;
/// The pauses before a call that failed temporarily is made again, of which there are four: 0.5, 1, 2 and 4 seconds.
const PAUSES: ExponentialBuilder =
    ExponentialBuilder::new().with_min_delay(Duration::from_millis(500)).with_factor(2.0).with_max_times(4);

/// A client of one store.
pub struct Client {
    http: reqwest::Client,
    endpoint: Url,
    region: String,
    keys: Credentials,
    /// Uploads in parts that are not complete: bucket, key and id.
    open: Mutex<Vec<(String, String, String)>>,
}

/// An object in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// The key.
    pub key: String,
    /// The size in bytes.
    pub size: u64,
    /// When it was written, if the store says.
    pub modified: Option<jiff::Timestamp>,
}

/// One page of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// The objects.
    pub objects: Vec<Object>,
    /// The beginnings of keys up to the next slash, as folders.
    pub folders: Vec<String>,
    /// Where the next page begins, if there is one.
    pub next: Option<String>,
}

/// An object that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectFacts {
    /// The size in bytes.
    pub size: u64,
    /// What changes with its content.
    pub etag: String,
    /// When it was written, if the store says.
    pub modified: Option<jiff::Timestamp>,
}

impl Client {
    /// A client for the store at this URL. `keys` has the form of `~/.aws/credentials`, with the profile `default`.
    ///
    /// # Errors
    /// When the URL or the keys cannot be read.
    pub fn new(endpoint: &str, region: &str, keys: &SecretString) -> Result<Self> {
        let doing = || format!("use the object store at {endpoint}");
        let wrong = |why: &str| Error::new(ErrorKind::State, doing()).because(why);
        let endpoint = Url::parse(endpoint).map_err(|error| wrong(&error.to_string()))?;
        let value = |name: &str| {
            let lines = keys.expose_secret().lines().filter_map(|line| line.split_once('='));
            lines.map(|(own, value)| (own.trim(), value.trim())).find(|(own, _)| *own == name).map(|(_, value)| value)
        };
        let id = value("aws_access_key_id").ok_or_else(|| wrong("its credentials have no aws_access_key_id"))?;
        let secret =
            value("aws_secret_access_key").ok_or_else(|| wrong("its credentials have no aws_secret_access_key"))?;
        let keys = match value("aws_session_token") {
            Some(token) => Credentials::new_with_token(id, secret, token),
            None => Credentials::new(id, secret),
        };
        // Redirects would lead a signed request to another server.
        let builder = crate::util::http::client_for(&endpoint)
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_LIMIT)
            .read_timeout(SILENCE_LIMIT);
        let http = crate::util::http::built(builder, doing)?;
        Ok(Self { http, endpoint, region: region.to_owned(), keys, open: Mutex::default() })
    }

    pub(super) fn bucket(&self, name: &str) -> Result<Bucket> {
        Bucket::new(self.endpoint.clone(), UrlStyle::Path, name.to_owned(), self.region.clone())
            .map_err(|error| Error::new(ErrorKind::Usage, format!("use the bucket {name}")).because(error.to_string()))
    }

    pub(super) fn keys(&self) -> Option<&Credentials> {
        Some(&self.keys)
    }

    /// The names of all buckets.
    ///
    /// # Errors
    /// When the store refuses or does not answer.
    pub async fn buckets(&self) -> Result<Vec<String>> {
        let doing = "list the buckets";
        let url = || {
            let none = std::iter::empty::<(&str, &str)>;
            let now = jiff::Timestamp::now();
            rusty_s3::signing::sign(
                &now,
                rusty_s3::Method::Get,
                self.endpoint.clone(),
                self.keys.key(),
                self.keys.secret(),
                self.keys.token(),
                &self.region,
                VALID_FOR.as_secs(),
                none(),
                none(),
            )
        };
        let text = self.text(doing, Method::GET, &url, &[], &[]).await?;
        // Names of buckets have no characters that XML would encode.
        let names = text.split("<Bucket>").skip(1).filter_map(|part| part.split("<Name>").nth(1)?.split('<').next());
        Ok(names.map(str::to_owned).collect())
    }

    /// One page of the objects whose keys begin with `prefix`; with `by_folder`, only up to the next slash.
    ///
    /// # Errors
    /// When there is no such bucket, or the store refuses or does not answer.
    pub async fn list(&self, bucket: &str, prefix: &str, by_folder: bool, page: Option<&str>) -> Result<Listing> {
        let doing = format!("list s3://{bucket}/{prefix}");
        let own = self.bucket(bucket)?;
        let mut action = ListObjectsV2::new(&own, self.keys());
        action.with_prefix(prefix);
        if by_folder {
            action.with_delimiter("/");
        }
        if let Some(page) = page {
            action.with_continuation_token(page);
        }
        let text = self.text(&doing, Method::GET, &|| action.sign(VALID_FOR), &[], &[]).await?;
        let read = ListObjectsV2::parse_response(&text).map_err(|error| {
            Error::new(ErrorKind::Host, &*doing).because(format!("its answer is unreadable: {error}"))
        })?;
        let object = |one: rusty_s3::actions::list_objects_v2::ListObjectsContent| Object {
            key: one.key,
            size: one.size.unwrap_or_default(),
            modified: one.last_modified.and_then(|text| text.parse().ok()),
        };
        Ok(Listing {
            objects: read.contents.into_iter().map(object).collect(),
            folders: read.common_prefixes.into_iter().map(|one| one.prefix).collect(),
            next: read.next_continuation_token,
        })
    }

    /// All objects whose keys begin with `prefix`.
    ///
    /// # Errors
    /// As for [`Self::list`].
    pub async fn list_all(&self, bucket: &str, prefix: &str) -> Result<Vec<Object>> {
        let (mut all, mut page) = (Vec::new(), None);
        loop {
            let listing = self.list(bucket, prefix, false, page.as_deref()).await?;
            all.extend(listing.objects);
            page = listing.next;
            if page.is_none() {
                return Ok(all);
            }
        }
    }

    /// The object of this key, if it is there.
    ///
    /// # Errors
    /// When the store refuses or does not answer.
    pub async fn find(&self, bucket: &str, key: &str) -> Result<Option<ObjectFacts>> {
        let own = self.bucket(bucket)?;
        let action = own.head_object(self.keys(), key);
        let doing = format!("find s3://{bucket}/{key}");
        match self.send(&doing, Method::HEAD, &|| action.sign(VALID_FOR), &[], &[]).await {
            Ok(answer) => Ok(Some(found(&answer))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Begins to read an object from byte `from` on, as long as it is still the one with this `etag`.
    pub(super) async fn read(&self, bucket: &str, key: &str, from: u64, etag: &str) -> Result<Response> {
        let own = self.bucket(bucket)?;
        let action = own.get_object(self.keys(), key);
        let range = format!("bytes={from}-");
        let mut headers = vec![(IF_MATCH.as_str(), etag)];
        if from > 0 {
            headers.push((RANGE.as_str(), &range));
        }
        let doing = format!("read s3://{bucket}/{key}");
        let answer = self.send(&doing, Method::GET, &|| action.sign(VALID_FOR), &headers, &[]).await?;
        if from > 0 && answer.status() != StatusCode::PARTIAL_CONTENT {
            return Err(Error::new(ErrorKind::Host, doing).because("the store does not send parts of an object"));
        }
        Ok(answer)
    }

    /// Writes a small object in one call.
    pub(super) async fn write(&self, bucket: &str, key: &str, bytes: &[u8]) -> Result<()> {
        let own = self.bucket(bucket)?;
        let action = own.put_object(self.keys(), key);
        let doing = format!("write s3://{bucket}/{key}");
        self.send(&doing, Method::PUT, &|| action.sign(VALID_FOR), &[], bytes).await.map(drop)
    }

    /// Begins an upload in parts; returns its id.
    pub(super) async fn begin(&self, bucket: &str, key: &str) -> Result<String> {
        let own = self.bucket(bucket)?;
        let action = own.create_multipart_upload(self.keys(), key);
        let doing = format!("write s3://{bucket}/{key}");
        let text = self.text(&doing, Method::POST, &|| action.sign(VALID_FOR), &[], &[]).await?;
        let read = CreateMultipartUpload::parse_response(&text).map_err(|error| {
            Error::new(ErrorKind::Host, &*doing).because(format!("the store's answer is unreadable: {error}"))
        })?;
        let id = read.upload_id().to_owned();
        self.open().push((bucket.to_owned(), key.to_owned(), id.clone()));
        Ok(id)
    }

    /// Writes one part; returns its tag.
    pub(super) async fn part(&self, bucket: &str, key: &str, id: &str, number: u16, bytes: &[u8]) -> Result<String> {
        let own = self.bucket(bucket)?;
        let action = own.upload_part(self.keys(), key, number, id);
        let doing = format!("write part {number} of s3://{bucket}/{key}");
        let answer = self.send(&doing, Method::PUT, &|| action.sign(VALID_FOR), &[], bytes).await?;
        match found(&answer).etag {
            etag if etag.is_empty() => Err(Error::new(ErrorKind::Host, doing).because("the store gave it no tag")),
            etag => Ok(etag),
        }
    }

    /// Completes an upload in parts.
    pub(super) async fn complete(&self, bucket: &str, key: &str, id: &str, parts: &[String]) -> Result<()> {
        let own = self.bucket(bucket)?;
        let parts = || parts.iter().map(String::as_str);
        let action = own.complete_multipart_upload(self.keys(), key, id, parts());
        let bytes = own.complete_multipart_upload(self.keys(), key, id, parts()).body();
        let doing = format!("complete s3://{bucket}/{key}");
        let text = self.text(&doing, Method::POST, &|| action.sign(VALID_FOR), &[], bytes.as_bytes()).await?;
        // A store may begin its answer before it knows how the call ends.
        if text.contains("<Error>") {
            return Err(Error::new(ErrorKind::Host, doing).because(reason(&text)));
        }
        self.open().retain(|(_, _, open)| open != id);
        Ok(())
    }

    /// Gives up all uploads in parts that are not complete, so that the store keeps nothing of them.
    pub async fn give_up(&self) {
        let all = std::mem::take(&mut *self.open());
        for (bucket, key, id) in all {
            let Ok(own) = self.bucket(&bucket) else { continue };
            let action = own.abort_multipart_upload(self.keys(), &key, &id);
            // What is left of an upload has no name, and goes with the store.
            let _ = self.send("give up an upload", Method::DELETE, &|| action.sign(VALID_FOR), &[], &[]).await;
        }
    }

    fn open(&self) -> std::sync::MutexGuard<'_, Vec<(String, String, String)>> {
        self.open.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Deletes an object. One that does not exist is no error.
    ///
    /// # Errors
    /// When the store refuses or does not answer.
    pub async fn delete(&self, bucket: &str, key: &str) -> Result<()> {
        let own = self.bucket(bucket)?;
        let action = own.delete_object(self.keys(), key);
        let doing = format!("delete s3://{bucket}/{key}");
        self.send(&doing, Method::DELETE, &|| action.sign(VALID_FOR), &[], &[]).await.map(drop)
    }

    async fn text(
        &self,
        doing: &str,
        method: Method,
        url: &(dyn Fn() -> Url + Sync),
        headers: &[(&str, &str)],
        bytes: &[u8],
    ) -> Result<String> {
        let mut answer = self.send(doing, method, url, headers, bytes).await?;
        let bytes = body(&mut answer, BODY_LIMIT).await.map_err(|unread| match unread {
            Unread::Broken(error) => Error::new(ErrorKind::Host, doing).because(error.without_url().to_string()),
            Unread::TooLong(most) => Error::new(ErrorKind::Host, doing).because(format!("more than {most} bytes")),
        })?;
        String::from_utf8(bytes).doing(ErrorKind::Host, || doing.to_owned())
    }

    /// Sends a call, again if it failed temporarily; each time with a new signature.
    async fn send(
        &self,
        doing: &str,
        method: Method,
        url: &(dyn Fn() -> Url + Sync),
        headers: &[(&str, &str)],
        bytes: &[u8],
    ) -> Result<Response> {
        let once = || self.once(doing, &method, url(), headers, bytes);
        once.retry(PAUSES).when(|error: &Error| error.retry_status() == Status::Temporary).await
    }

    async fn once(
        &self,
        doing: &str,
        method: &Method,
        url: Url,
        headers: &[(&str, &str)],
        bytes: &[u8],
    ) -> Result<Response> {
        let mut request = self.http.request(method.clone(), url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if *method == Method::PUT || *method == Method::POST {
            request = request.body(bytes.to_vec());
        }
        // The URL has the signature.
        let mut answer = request.send().await.map_err(|error| {
            let error = error.without_url();
            let at = self.endpoint.as_str().trim_end_matches('/');
            let why = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            Error::new(ErrorKind::Host, doing).because(format!("no answer from {at}: {why}")).status(Status::Temporary)
        })?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let text = body(&mut answer, BODY_LIMIT).await.unwrap_or_default();
        let text = reason(&String::from_utf8_lossy(&text));
        let why = if text.is_empty() {
            format!("HTTP {}", status.as_u16())
        } else {
            format!("HTTP {}: {text}", status.as_u16())
        };
        Err(match status {
            StatusCode::NOT_FOUND => Error::new(ErrorKind::NotFound, doing).because(if text.is_empty() {
                "it does not exist".to_owned()
            } else {
                text
            }),
            StatusCode::PRECONDITION_FAILED => Error::new(ErrorKind::Host, doing).because("it was replaced meanwhile"),
            StatusCode::TOO_MANY_REQUESTS => Error::new(ErrorKind::Host, doing).because(why).status(Status::Temporary),
            status if status.is_server_error() => {
                Error::new(ErrorKind::Host, doing).because(why).status(Status::Temporary)
            }
            _ => Error::new(ErrorKind::Host, doing).because(why),
        })
    }
}

/// What the headers say of an object.
pub(super) fn found(answer: &Response) -> ObjectFacts {
    let text = |name| answer.headers().get(name).and_then(|value| value.to_str().ok());
    // The client takes a HEAD's length for that of its empty body.
    let size =
        answer.headers().get(reqwest::header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let modified =
        text(LAST_MODIFIED).and_then(|text| jiff::fmt::rfc2822::parse(text).ok().map(|zoned| zoned.timestamp()));
    ObjectFacts { size: size.unwrap_or_default(), etag: text(ETAG).unwrap_or_default().to_owned(), modified }
}

/// What a store says in its error.
fn reason(text: &str) -> String {
    let inside = |name: &str| {
        let rest = text.split_once(&format!("<{name}>"))?.1;
        Some(rest.split_once('<')?.0.trim())
    };
    match (inside("Code"), inside("Message")) {
        (Some(code), Some(message)) if !message.is_empty() => shortened(&format!("{code}: {message}")),
        (Some(code), _) => shortened(code),
        _ => shortened(text.trim()),
    }
}
