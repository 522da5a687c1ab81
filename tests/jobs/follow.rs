//! Following a log through broken connections, against a small server of our own that stands in for Ray's.

#![expect(clippy::unwrap_used, reason = "what a test stands on may fail it")]

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::SinkExt as _;
use gpucl::error::ErrorKind;
use gpucl::ray::{Client, Follow, FollowOptions, Followed, JobStatus, SubmitRequest, TokenChoice};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;

const TOKEN: &str = "the-token";

/// What one connection to the log does: plays the log's pieces up to here, then breaks off or closes in good order.
#[derive(Clone, Copy)]
enum Play {
    ThenBreak(usize),
    ThenClose(usize),
}

/// A stand-in for the part of Ray that serves one job `j`: a log of `pieces`, and what each connection to it does.
struct StandIn {
    base: String,
    connections: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn stand_in(pieces: &'static [&'static str], plays: &'static [Play]) -> StandIn {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    let task = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(serve(stream, pieces, plays, Arc::clone(&count)));
        }
    });
    StandIn { base, connections, task }
}

async fn serve(
    mut stream: TcpStream,
    pieces: &'static [&'static str],
    plays: &'static [Play],
    count: Arc<AtomicUsize>,
) {
    let mut seen = [0; 4096];
    let length = stream.peek(&mut seen).await.unwrap();
    let head = String::from_utf8_lossy(&seen[..length]).to_lowercase();
    if !head.contains(&format!("authorization: bearer {TOKEN}")) {
        return answer(&mut stream, "401 Unauthorized", "Unauthorized: Missing authentication token").await;
    }
    if head.starts_with("get /api/jobs/j/logs/tail ") {
        let play = plays[count.fetch_add(1, Ordering::SeqCst)];
        let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
        let (Play::ThenBreak(to) | Play::ThenClose(to)) = play;
        for piece in &pieces[..to] {
            socket.send(Message::text(*piece)).await.unwrap();
        }
        if matches!(play, Play::ThenClose(_)) {
            socket.close(None).await.unwrap();
        }
    } else if head.starts_with("get /api/jobs/j ") {
        // The job ends when the last of the planned connections was made.
        let status = if count.load(Ordering::SeqCst) == plays.len() { "FAILED" } else { "RUNNING" };
        let body = format!(
            r#"{{"type":"SUBMISSION","submission_id":"j","job_id":null,"status":"{status}","entrypoint":"x","driver_exit_code":3}}"#
        );
        answer(&mut stream, "200 OK", &body).await;
    } else if head.starts_with("get /api/jobs/j/logs ") {
        let body = serde_json::json!({"logs": pieces.concat()}).to_string();
        answer(&mut stream, "200 OK", &body).await;
    } else {
        answer(&mut stream, "404 Not Found", "Job nope does not exist").await;
    }
}

async fn answer(stream: &mut TcpStream, status: &str, body: &str) {
    let _ = stream.read(&mut [0; 4096]).await;
    let text = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
    let _ = stream.write_all(text.as_bytes()).await;
}

fn client(base: &str) -> Client {
    Client::new(base, TOKEN.to_owned().into())
}

const QUICK: FollowOptions = FollowOptions { give_up_after: Duration::from_secs(20), pause: Duration::from_millis(5) };

/// Follows `j` to its end; returns what was printed and what was said.
async fn followed(base: &str) -> (String, Vec<String>, Followed) {
    let said = Mutex::new((String::new(), Vec::new()));
    let mut on = |follow: Follow<'_>| {
        let mut said = said.lock().unwrap();
        match follow {
            Follow::Text(text) => said.0.push_str(text),
            Follow::Note(note) => said.1.push(note.to_owned()),
        }
        ControlFlow::Continue(())
    };
    let end = client(base).follow("j", QUICK, &mut on).await.unwrap();
    let (text, notes) = said.into_inner().unwrap();
    (text, notes, end)
}

#[track_caller]
fn assert_failed(end: &Followed) {
    assert!(
        matches!(end, Followed::Ended(job) if job.status == JobStatus::Failed && job.driver_exit_code == Some(3)),
        "{end:?}"
    );
}

#[tokio::test]
async fn a_log_is_whole_and_printed_once_through_broken_connections() {
    let pieces = &["one\n", "zwei ü\n", "three\n", "four\n"];
    let ray = stand_in(pieces, &[Play::ThenBreak(2), Play::ThenBreak(1), Play::ThenBreak(3), Play::ThenClose(4)]).await;
    let (text, notes, end) = followed(&ray.base).await;
    assert_eq!(text, pieces.concat());
    assert_eq!(notes.iter().filter(|note| note.contains("lost the connection")).count(), 3, "{notes:?}");
    assert_eq!(notes.iter().filter(|note| *note == "reconnected").count(), 3, "{notes:?}");
    assert_failed(&end);
}

#[tokio::test]
async fn an_orderly_close_does_not_end_following_a_running_job() {
    let ray = stand_in(&["a\n", "b\n"], &[Play::ThenClose(1), Play::ThenClose(2)]).await;
    let (text, _, end) = followed(&ray.base).await;
    assert_eq!(text, "a\nb\n");
    assert_eq!(ray.connections.load(Ordering::SeqCst), 2);
    assert_failed(&end);
}

#[tokio::test]
async fn the_log_of_a_job_that_ended_while_disconnected_is_complete() {
    let ray = stand_in(&["a\n", "b\n", "c\n"], &[Play::ThenBreak(2)]).await;
    let (text, notes, end) = followed(&ray.base).await;
    assert_eq!(text, "a\nb\nc\n");
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert_failed(&end);
}

#[tokio::test]
async fn a_follower_can_stop_following() {
    let ray = stand_in(&["a\n", "b\n"], &[Play::ThenClose(2)]).await;
    let end = client(&ray.base).follow("j", QUICK, &mut |_| ControlFlow::Break(())).await.unwrap();
    assert_eq!(end, Followed::Left);
}

#[tokio::test]
async fn an_unknown_job_a_wrong_token_and_silence_are_distinguished() {
    let ray = stand_in(&[], &[]).await;
    let unknown = client(&ray.base).follow("nope", QUICK, &mut |_| ControlFlow::Continue(())).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::NotFound);
    let wrong = Client::new(&ray.base, "other".to_owned().into()).jobs().await.unwrap_err();
    assert!(wrong.to_string().contains("refused the cluster's token (401)"), "{wrong}");
    assert!(!format!("{wrong:?}").contains("other\""), "{wrong:?}");
    assert_eq!(client(&ray.base).probe("/api/jobs/j", TokenChoice::None).await.unwrap(), 401);
    assert_eq!(client(&ray.base).probe("/api/jobs/j", TokenChoice::Wrong).await.unwrap(), 401);
    assert_eq!(client(&ray.base).probe("/api/jobs/j", TokenChoice::Right).await.unwrap(), 200);

    // A port that nobody listens on: bound once, and closed again.
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let patience = FollowOptions { give_up_after: Duration::from_millis(50), ..QUICK };
    let silent = client(&format!("http://{closed}"))
        .follow("j", patience, &mut |_| ControlFlow::Continue(()))
        .await
        .unwrap_err();
    assert_eq!(silent.kind(), ErrorKind::Ray);
    assert!(silent.hints().iter().any(|hint| hint.contains("gpucl status")), "{silent:?}");
}

/// A stand-in that takes a submission, breaks off without an answer, and knows the job afterwards, if it is to.
async fn forgetful(keeps: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut kept = None;
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = Vec::new();
            while !bytes.ends_with(b"}") && !bytes.ends_with(b"\r\n\r\n") {
                stream.read_buf(&mut bytes).await.unwrap();
            }
            let text = String::from_utf8(bytes).unwrap();
            if text.starts_with("POST ") {
                // A head of its own packet may end first.
                let body = text.split_once("\r\n\r\n").unwrap().1.to_owned();
                kept = keeps.then(|| serde_json::from_str::<serde_json::Value>(&body).unwrap());
                continue;
            }
            let (status, body) = match &kept {
                Some(job) => {
                    let job = serde_json::json!({"type": "SUBMISSION", "submission_id": job["submission_id"], "job_id": null,
                        "status": "PENDING", "entrypoint": job["entrypoint"], "metadata": job["metadata"]});
                    ("200 OK", job.to_string())
                }
                None => ("404 Not Found", "Job lost does not exist".to_owned()),
            };
            let text =
                format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
            stream.write_all(text.as_bytes()).await.unwrap();
        }
    });
    base
}

#[tokio::test]
async fn a_lost_answer_is_not_a_lost_job() {
    let request = SubmitRequest {
        entrypoint: "true".to_owned(),
        submission_id: Some("lost".to_owned()),
        ..SubmitRequest::default()
    };
    assert_eq!(client(&forgetful(true).await).submit(request.clone()).await.unwrap(), "lost");
    let error = client(&forgetful(false).await).submit(request.clone()).await.unwrap_err();
    assert!(error.hints().iter().any(|hint| hint.contains("may have been submitted")), "{error:?}");

    // Where nobody listens nothing was sent, and nothing is waited for.
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let began = std::time::Instant::now();
    let error = client(&format!("http://{closed}")).submit(request).await.unwrap_err();
    assert!(
        began.elapsed() < Duration::from_secs(2)
            && !error.hints().iter().any(|hint| hint.contains("may have been submitted")),
        "{error:?}"
    );
}
