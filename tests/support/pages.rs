//! The pages that `gpucl dashboard` opens.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use super::{Browser, TestEnv, ask, interrupt};

/// `gpucl dashboard`, which runs until this is dropped.
struct Page {
    child: Child,
    /// The address of Ray's page.
    url: String,
    /// The address of MLflow's, if the cluster has it.
    mlflow: Option<String>,
}

impl Page {
    #[track_caller]
    fn open(env: &TestEnv, cluster: &str) -> Self {
        let mut child = env
            .command(&["--output", "json", "dashboard", "--no-open", "-c", cluster])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pages: serde_json::Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
        let url = pages["pages"]["dashboard"].as_str().unwrap().to_owned();
        let mlflow = pages["pages"]["mlflow"].as_str().map(str::to_owned);
        Self { child, url, mlflow }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        interrupt(&self.child);
        let _ = self.child.wait();
    }
}

/// Ray's page answers programs that have the cluster's token, and nobody else.
#[track_caller]
pub(crate) fn dashboard_wants_its_token(env: &TestEnv, cluster: &str) {
    let page = Page::open(env, cluster);
    let port = page.url.split("localhost:").nth(1).unwrap().split('/').next().unwrap();
    let state = env.home().join(".local/state/gpucl/clusters").join(cluster);
    let token = std::fs::read_to_string(state.join("secrets/ray_token")).unwrap();
    let url = format!("http://127.0.0.1:{port}/api/version");
    let (with, _) = ask("GET", &url, &[("Authorization", &format!("Bearer {}", token.trim()))], "").unwrap();
    let (without, _) = ask("GET", &url, &[], "").unwrap();
    drop(page);
    assert!(with == 200 && [401, 403].contains(&without), "{with} {without}");
}

/// Ray's page in a real browser: it logs in, and lists the cluster's nodes.
pub(crate) fn dashboard_lists_nodes_in_a_browser(env: &TestEnv, cluster: &str, nodes: usize) {
    let page = Page::open(env, cluster);
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let mut browser = Browser::start().await;
        browser.visit(&page.url).await;
        browser.until("document.body.innerText.includes('Overview')").await;
        browser.ask("location.hash = '#/cluster'").await;
        let alive = format!("document.body.innerText.split('ALIVE').length - 1 >= {nodes}");
        browser.until(&alive).await;
    });
}

/// MLflow's page in a real browser, without a login of its own: a run, the value of its metric, and its artifact.
pub(crate) fn a_run_is_seen_in_a_browser(
    env: &TestEnv,
    cluster: &str,
    run: &str,
    metric: [&str; 2],
    artifact: [&str; 2],
) {
    let page = Page::open(env, cluster);
    let mlflow = page.mlflow.as_ref().unwrap();
    let ([name, value], [file, content]) = (metric, artifact);
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let mut browser = Browser::start().await;
        browser.visit(mlflow).await;
        browser.until("location.search === ''").await;
        for (place, texts) in
            [("", [name, value]), (&format!("/artifacts/{file}"), [file.rsplit('/').next().unwrap(), content])]
        {
            browser.ask(&format!("location.hash = '#/experiments/1/runs/{run}{place}'")).await;
            for text in texts {
                browser.until(&format!("document.body.innerText.includes('{text}')")).await;
            }
        }
    });
}
