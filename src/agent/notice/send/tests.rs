//! Receivers that hang, refuse, redirect and fail; programs that hang, fail and write down what they get.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::mpsc::{Receiver, channel};

use super::*;
use crate::agent::notice::{Notice, Said};

const AT_ONCE: Tries<'_> = Tries { pauses: &[Duration::ZERO; 3], limit: Duration::from_secs(10) };

/// A webhook on the loopback that answers this, one after the other, and then hangs; with what it was sent.
fn webhook(answers: &'static [&'static str]) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/services/s3cr3t", listener.local_addr().unwrap());
    let (sender, seen) = channel();
    std::thread::spawn(move || {
        let (mut answers, mut open) = (answers.iter(), Vec::new());
        for mut stream in listener.incoming().flatten() {
            let mut text = String::new();
            // The head says how long the rest is; the notice ends in a brace.
            while !text.trim_end().ends_with('}') {
                let mut piece = [0; 4096];
                match stream.read(&mut piece) {
                    Ok(0) | Err(_) => break,
                    Ok(read) => text.push_str(&String::from_utf8_lossy(&piece[..read])),
                }
            }
            let _ = sender.send(text);
            let Some(answer) = answers.next() else {
                open.push(stream);
                continue;
            };
            let _ = stream.write_all(format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n").as_bytes());
        }
    });
    (url, seen)
}

fn parcel(route: Route, folder: Option<&Path>) -> Parcel {
    let cluster = "demo".parse().unwrap();
    let notice = Notice::job_ended(&cluster, "job-1", "SUCCEEDED");
    Parcel { route, folder: folder.map(Path::to_owned), key: "job-job-1".to_owned(), again: false, notice }
}

async fn sent(route: Route) -> (Result<(), String>, Vec<String>) {
    let mut missed = Vec::new();
    let all = parcel(route, None);
    let done = deliver_with(&AT_ONCE, &all, &BTreeMap::new(), |why| missed.push(why.to_owned())).await;
    (done, missed)
}

#[tokio::test]
async fn a_webhook_that_fails_is_tried_again_and_gets_one_plain_object() {
    let (url, seen) = webhook(&["500 No", "200 OK"]);
    let (done, missed) = sent(Route::Webhook { url }).await;
    assert_eq!((done, missed.len()), (Ok(()), 1));
    assert!(missed[0].ends_with(" answered 500") && !missed[0].contains("s3cr3t"), "{missed:?}");
    let texts: Vec<String> = seen.try_iter().collect();
    assert_eq!(texts.len(), 2);
    let (head, body) = texts[1].split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /services/s3cr3t HTTP/1.1\r\n"), "{head}");
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    let whole = serde_json::json!({
        "v": 1, "cluster": "demo", "event": "job_ended", "text": "job job-1 on demo has ended: succeeded",
        "job": "job-1", "how": "succeeded",
    });
    assert_eq!(body, whole);
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_a_refusal_is_not_repeated() {
    let (other, reached) = webhook(&["200 OK"]);
    let redirect: &'static str = format!("302 Found\r\nlocation: {other}").leak();
    let (url, seen) = webhook(vec![redirect].leak());
    let (done, _) = sent(Route::Webhook { url }).await;
    assert!(done.unwrap_err().ends_with("answered 302: redirects are not followed"));
    let (url, refused) = webhook(&["404 Gone", "200 OK"]);
    assert!(sent(Route::Webhook { url }).await.0.unwrap_err().ends_with("answered 404"));
    assert_eq!((seen.try_iter().count(), refused.try_iter().count(), reached.try_iter().count()), (1, 1, 0));
}

#[tokio::test]
async fn nobody_listens_is_said_without_the_url() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (done, missed) = sent(Route::Webhook { url: format!("http://{closed}/services/s3cr3t") }).await;
    let why = done.unwrap_err();
    assert!(why.contains("cannot be reached: ") && why.contains(&closed.to_string()), "{why}");
    assert!(!format!("{why}{missed:?}").contains("s3cr3t"));
}

/// A program in a folder.
fn program(folder: &Path, text: &str) -> Route {
    let path = folder.join("notify.sh");
    fs_err::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs_err::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let files = vec![(path.clone(), crate::util::digest::of_file(&path).unwrap())];
    let command = vec![path.display().to_string(), "a b".to_owned()];
    Route::Command { command, folder: folder.to_owned(), files }
}

#[tokio::test]
async fn a_program_gets_the_notice_as_its_input_and_no_credentials() {
    let folder = tempfile::tempdir().unwrap();
    let route = program(folder.path(), "cat > input; env > environment; pwd > folder; printf '%s\\n' \"$@\" > args");
    let environment =
        [("PATH", "/usr/bin:/bin"), ("LC_ALL", "C"), ("AWS_SECRET_ACCESS_KEY", "s3cr3t"), ("OS_X", "s3cr3t")];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let all = parcel(route, None);
    assert_eq!(deliver_with(&AT_ONCE, &all, &environment, |_| {}).await, Ok(()));
    let read = |name: &str| fs_err::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(serde_json::from_str::<Notice>(&read("input")).unwrap(), all.notice);
    let names: Vec<String> =
        read("environment").lines().map(|line| line.split('=').next().unwrap().to_owned()).collect();
    assert!(
        names.iter().all(|name| ["PATH", "LC_ALL", "PWD", "OLDPWD", "SHLVL", "_"].contains(&name.as_str())),
        "{names:?}"
    );
    assert_eq!(read("folder").trim(), crate::util::fs::resolve(folder.path()).unwrap().unwrap().display().to_string());
    assert_eq!(read("args"), "a b\n", "no shell reads its arguments");
}

#[tokio::test]
async fn a_program_that_fails_is_tried_again_and_one_that_was_changed_is_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let route = program(folder.path(), "echo x >> runs; exit 3");
    assert!(sent(route.clone()).await.0.unwrap_err().contains("exit status: 3"));
    let runs = || fs_err::read_to_string(folder.path().join("runs")).unwrap().lines().count();
    assert_eq!(runs(), 3);
    let _ = program(folder.path(), "echo y >> runs");
    assert!(sent(route).await.0.unwrap_err().contains("is another one than was accepted"));
    assert_eq!(runs(), 3);
}

#[tokio::test]
async fn what_hangs_is_given_up_in_time() {
    let (url, seen) = webhook(&[]);
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    let hangs = program(folder.path(), &format!("sleep 60 & echo $! > {}; wait", pid.display()));
    let tries = Tries { pauses: &[Duration::ZERO; 2], limit: Duration::from_millis(400) };
    for route in [Route::Webhook { url }, hangs] {
        let begun = std::time::Instant::now();
        let done = deliver_with(&tries, &parcel(route, None), &BTreeMap::new(), |_| {}).await;
        assert!(done.unwrap_err().ends_with("did not answer in 400ms"));
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
    assert_eq!(seen.try_iter().count(), 2);
    let child: u32 = fs_err::read_to_string(pid).unwrap().trim().parse().unwrap();
    let is_gone = || crate::util::process::Identity::of(child).is_none_or(|process| !process.goes_on());
    for _ in 0..100 {
        if is_gone() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("what the program has started goes on");
}

#[tokio::test]
async fn one_that_was_said_is_not_sent_again() {
    let folder = tempfile::tempdir().unwrap();
    super::said::begin(folder.path()).unwrap();
    let (url, seen) = webhook(&["200 OK", "200 OK"]);
    let all = parcel(Route::Webhook { url }, Some(folder.path()));
    for _ in 0..2 {
        assert_eq!(deliver_with(&AT_ONCE, &all, &BTreeMap::new(), |_| {}).await, Ok(()));
    }
    assert_eq!(seen.try_iter().count(), 1);
    assert!(Said::of(folder.path()).has("job-job-1"));
}
