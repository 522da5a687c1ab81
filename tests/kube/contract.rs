//! The provider's contract on a real Kubernetes, and two users with the same owner.

use gpucl::name::{Key, Scope};
use gpucl::provider::conformance::{Subject, run};
use gpucl::provider::{Context, HostRequest, Provider, Recorder, UserEnvironment};
use gpucl::providers::find;
use serde_json::{Value, json};

use super::testbed::{self, kubectl, nothing_is_left, turn};
use crate::conformance::listing;
use crate::support::TestEnv;

fn provider(env: &TestEnv, user: &str, more: &Value) -> Box<dyn Provider> {
    let (events, _inbox) = gpucl::event::Bus::new();
    let context = Context {
        data_dir: env.home().join("data"),
        cache_dir: env.home().join("cache"),
        runtime_dir: env.root().join("sockets"),
        clusters_dir: env.root().join(format!("clusters-{user}")),
        user_environment: UserEnvironment { home: env.home(), ..UserEnvironment::default() },
        events,
    };
    let mut settings = testbed::settings(user, more);
    settings.as_object_mut().unwrap().remove("name");
    find("kubernetes").unwrap().open(&settings, &context).unwrap()
}

#[tokio::test]
#[ignore = "by hand: just kube"]
async fn kubernetes_keeps_the_contract_as_committed() {
    let _turn = turn();
    let env = TestEnv::new();
    let provider = provider(&env, "ada", &json!({}));
    let cuts = if std::env::var_os("GPUCL_POINTS").is_some() { (1..=64).collect() } else { vec![1, 3, 9, 27] };
    let patience = std::time::Duration::from_secs(180);
    let subject = Subject { cuts, patience, ..Subject::new(provider.as_ref()).unwrap() };
    let results = run(&subject, &mut |result| println!("{result:?}")).await;
    assert_eq!(listing(&results), include_str!("../../providers/kubernetes/conformance.txt"));
    nothing_is_left();
}

struct Nobody;

#[async_trait::async_trait]
impl Recorder for Nobody {
    async fn exists(&self, _key: &Key, _id: &str) -> gpucl::error::Result<()> {
        Ok(())
    }
}

/// An object of the name that ours would have, without our labels, is neither adopted nor changed nor deleted.
#[tokio::test]
#[ignore = "testbed"]
async fn an_object_of_somebody_elses_is_left_alone() {
    let _turn = turn();
    let env = TestEnv::new();
    let scope = Scope { owner: "samesame".parse().unwrap(), cluster: "demo".parse().unwrap() };
    kubectl(&["-n", "team-a", "create", "secret", "generic", "demo-samesame", "--from-literal=auth_token=theirs"]);
    let provider = provider(&env, "ada", &json!({}));
    let requests = provider.expand(&scope, &HostRequest::new(Key::host(0), Value::Null)).unwrap();
    let error = provider.acquire(&scope.tag(&requests[0].key), &requests[0], &Nobody).await.unwrap_err();
    assert!(error.to_string().contains("not this cluster's"), "{error}");
    assert!(provider.observe(&scope).await.unwrap().is_empty());
    let theirs = kubectl(&["-n", "team-a", "get", "secret", "demo-samesame", "-o", "jsonpath={.data.auth_token}"]);
    assert_eq!(theirs, "dGhlaXJz");
    kubectl(&["-n", "team-a", "delete", "secret", "demo-samesame"]);
    nothing_is_left();
}
