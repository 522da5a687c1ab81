use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::super::{Config, TimeSource, TooFast};
use super::client::{Cloud, Reply, with};

/// A time source that tests move forward.
#[derive(Debug, Default)]
struct Turned(AtomicU64);

impl TimeSource for Turned {
    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// Lambda's limits, with a clock of the test.
async fn limited(too_fast: TooFast) -> (Cloud, Arc<Turned>) {
    let time = Arc::new(Turned::default());
    let lambda = Config::default();
    let config = Config {
        request_every: lambda.request_every,
        launch_every: lambda.launch_every,
        time: Some(time.clone()),
        too_fast,
        ..Config::prompt()
    };
    (with(config).await, time)
}

async fn after(cloud: &Cloud, time: &Turned, wait: u64, launch: bool) -> Reply {
    time.0.fetch_add(wait, Ordering::SeqCst);
    if launch { cloud.launch(json!({})).await } else { cloud.call("GET", "/instances", Value::Null).await }
}

fn retry_after(reply: &Reply) -> Option<&str> {
    reply.headers.get("retry-after").map(|value| value.to_str().unwrap())
}

#[tokio::test]
async fn one_request_a_second_and_one_launch_in_twelve() {
    let (cloud, time) = limited(TooFast::Refused { retry_after: true }).await;
    assert_eq!(after(&cloud, &time, 0, false).await.status, 200);
    let early = after(&cloud, &time, 400, false).await;
    assert_eq!((early.status, retry_after(&early)), (429, Some("1")));
    assert_eq!(after(&cloud, &time, 600, false).await.status, 200, "the refused one does not count");
    assert_eq!(after(&cloud, &time, 960, true).await.status, 200, "a little jitter is tolerated");
    let early = after(&cloud, &time, 2000, true).await;
    assert_eq!((early.status, retry_after(&early)), (429, Some("10")));
    assert_eq!(after(&cloud, &time, 2000, false).await.status, 200, "others need not wait for launches");
    assert_eq!(after(&cloud, &time, 8000, true).await.status, 200);
    let pace = cloud.sandbox.pace();
    assert_eq!((pace.requests, pace.launches, pace.too_fast, pace.launches_too_fast), (7, 3, 1, 1));
    assert_eq!((pace.shortest_gap_ms, pace.shortest_launch_gap_ms), (Some(400), Some(2000)));
    assert_eq!((pace.launched_at.len(), cloud.sandbox.snapshot().instances.len()), (3, 2));
    assert_eq!(cloud.sandbox.validated().undeclared["429"], 2);
    cloud.sandbox.check().unwrap();
}

#[tokio::test]
async fn too_fast_requests_may_lack_retry_after_or_only_be_counted() {
    let (cloud, time) = limited(TooFast::Refused { retry_after: false }).await;
    after(&cloud, &time, 0, false).await;
    let early = after(&cloud, &time, 0, false).await;
    assert_eq!((early.status, retry_after(&early)), (429, None));
    cloud.sandbox.change(|config| config.too_fast = TooFast::Counted);
    assert_eq!(after(&cloud, &time, 0, true).await.status, 200);
    assert_eq!(cloud.sandbox.pace().too_fast, 2);
}
