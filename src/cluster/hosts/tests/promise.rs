//! A host with fewer GPUs than promised is reported.

use super::cloud::Cloud;
use super::{Home, spec_with};
use crate::event::CheckOutcome;
use crate::name::Key;
use crate::provider::GpuOffer;

fn home(there: [usize; 2]) -> Home {
    let home = Home::new(Cloud::new(2));
    home.cloud.state().gpus = vec![GpuOffer { model: "NVIDIA A100".to_owned(), count: Some(2) }];
    (0..2).zip(there).for_each(|(host, count)| home.hosts.has_gpus(Key::host(host), count));
    home
}

#[tokio::test(start_paused = true)]
async fn a_host_with_fewer_gpus_than_promised_is_reported_however_workers_are_counted() {
    for workers in ["{per: gpu}", "{per: host}", "{per: host, gpus: 1}", "{count: 2, gpus: 1}"] {
        let went = home([2, 1]).up(&spec_with(workers, 2, ""), None).await;
        went.result.unwrap();
        let reported: Vec<(String, CheckOutcome, &str)> =
            went.promises.iter().map(|of| (of.host.display_name(), of.outcome, of.saw.as_str())).collect();
        let both = "promised 2 x NVIDIA A100, found 2: NVIDIA A100 at 0000:01:00.0, NVIDIA A100 at 0000:02:00.0";
        let one = "promised 2 x NVIDIA A100, found 1: NVIDIA A100 at 0000:01:00.0";
        let all = [("host-0".to_owned(), CheckOutcome::Passed, both), ("host-1".to_owned(), CheckOutcome::Failed, one)];
        assert_eq!(reported, all, "{workers}");
        // A later `verify` queries no provider: the promise is in the journal.
        assert!(went.known.host(&Key::host(1)).unwrap().promised.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn declared_gpus_are_not_compared_with_the_promise() {
    let went = home([0, 0]).up(&spec_with("{count: 2, gpus: 2}", 2, "gpu: declared\n"), None).await;
    went.result.unwrap();
    assert_eq!(went.promises, []);
}
