//! Two clusters on one machine: their programs take turns.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use gpucl::error::{ErrorKind, Result};
use gpucl::event::{Bus, EventKind};
use gpucl::host::{ExecEnd, Host, LocalHost, OnLine};
use gpucl::playbook;

use super::support::{run, stage, step};

/// A host of one cluster on a machine that another cluster has a host on as well.
struct Tenant {
    host: LocalHost,
    lock: PathBuf,
}

impl Tenant {
    fn new(folder: &tempfile::TempDir, tag: &str) -> Self {
        Self {
            host: LocalHost::new(tag, folder.path().join(tag), std::env::vars_os()).unwrap(),
            lock: folder.path().join("lock"),
        }
    }
}

#[async_trait]
impl Host for Tenant {
    fn name(&self) -> &str {
        self.host.name()
    }

    fn home(&self) -> &str {
        self.host.home()
    }

    fn lock(&self) -> String {
        self.lock.display().to_string()
    }

    async fn exec(&self, program: &str, on_line: OnLine<'_>) -> Result<ExecEnd> {
        self.host.exec(program, on_line).await
    }
}

#[tokio::test]
async fn a_program_of_another_cluster_is_waited_for_and_named() {
    let folder = tempfile::Builder::new().prefix("gpucl-test-tenants-").tempdir().unwrap();
    let (first, second) =
        (Tenant::new(&folder, "gpucl-aaaaaaaa-one-host0"), Tenant::new(&folder, "gpucl-bbbbbbbb-two-host0"));
    let work = folder.path().join("work");
    let (begun, go) = (folder.path().join("begun"), folder.path().join("go"));
    let holding = stage(vec![step(
        "hold",
        &format!(
            "echo one >>'{}'; touch '{}'; until [ -e '{}' ]; do sleep 0.05; done; echo one >>'{}'",
            work.display(),
            begun.display(),
            go.display(),
            work.display()
        ),
    )]);
    let waiting = stage(vec![step("work", &format!("echo two >>'{}'", work.display()))]);
    let other = async {
        while !begun.exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // Its own limit holds for the wait as well.
        let mut short = waiting.clone();
        short.timeout = Duration::from_secs(1);
        let error = run(&second, &short).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Host);
        assert!(
            error.to_string().contains("(stage prepare gpucl-aaaaaaaa-one-host0) did not end within 1 seconds"),
            "{error}"
        );
        let (bus, mut inbox) = Bus::new();
        let opener = async {
            let what = loop {
                if let Some(EventKind::Waiting { what, .. }) = inbox.recv().await {
                    break what;
                }
            };
            fs_err::write(&go, "").unwrap();
            what
        };
        tokio::join!(playbook::run_stage(&second, &waiting, &bus, std::future::pending()), opener)
    };
    let (held, (waited, what)) = tokio::join!(run(&first, &holding), other);
    held.unwrap();
    waited.unwrap();
    assert_eq!(what, "gpucl-bbbbbbbb-two-host0: the program `prepare` of gpucl-aaaaaaaa-one-host0 to end");
    assert_eq!(fs_err::read_to_string(work).unwrap(), "one\none\ntwo\n");
}
