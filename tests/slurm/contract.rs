//! The provider's contract on a real Slurm, and two users who do not touch each other's jobs.

use gpucl::name::{Key, Scope};
use gpucl::provider::conformance::{Subject, run};
use gpucl::provider::{Context, HostRequest, Provider, Recorder, UserEnvironment};
use gpucl::providers::find;
use serde_json::{Value, json};

use super::testbed::{self, login, nothing_is_left, turn};
use crate::conformance::listing;
use crate::support::TestEnv;

fn provider(env: &TestEnv, user: &str) -> Box<dyn Provider> {
    let (events, _inbox) = gpucl::event::Bus::new();
    let context = Context {
        data_dir: env.home().join("data"),
        cache_dir: env.home().join(format!("cache-{user}")),
        runtime_dir: env.root().join("sockets"),
        clusters_dir: env.root().join(format!("clusters-{user}")),
        user_environment: UserEnvironment { home: env.home(), ..UserEnvironment::default() },
        events,
    };
    let mut settings = testbed::settings(user, &json!({ "hours": 0.1, "cpus": 1, "memory": "500MiB" }));
    settings.as_object_mut().unwrap().remove("name");
    find("slurm").unwrap().open(&settings, &context).unwrap()
}

#[tokio::test]
#[ignore = "by hand: just slurm"]
async fn slurm_keeps_the_contract_as_committed() {
    let _turn = turn();
    let env = TestEnv::new();
    let provider = provider(&env, "ada");
    let cuts = if std::env::var_os("GPUCL_POINTS").is_some() { (1..=64).collect() } else { vec![1, 3, 9, 27] };
    let subject = Subject { cuts, ..Subject::new(provider.as_ref()).unwrap() };
    let results = run(&subject, &mut |result| println!("{result:?}")).await;
    assert_eq!(listing(&results), include_str!("../../providers/slurm/conformance.txt"));
    nothing_is_left();
}

struct Nobody;

#[async_trait::async_trait]
impl Recorder for Nobody {
    async fn exists(&self, _key: &Key, _id: &str) -> gpucl::error::Result<()> {
        Ok(())
    }
}

/// Both are in one account, and have the same owner by a copied home folder: what is another user's is never ours.
#[tokio::test]
#[ignore = "testbed"]
async fn two_users_do_not_touch_each_others_jobs() {
    let _turn = turn();
    let env = TestEnv::new();
    let scope = Scope { owner: "samesame".parse().unwrap(), cluster: "demo".parse().unwrap() };
    let (ada, bob) = (provider(&env, "ada"), provider(&env, "bob"));
    let mut ids = Vec::new();
    for provider in [&ada, &bob] {
        let hosts = vec![HostRequest::new(Key::host(0), Value::Null)];
        let resolved = provider.resolve(&scope, hosts).await.unwrap();
        let job = provider.expand(&scope, &resolved.hosts[0]).unwrap().remove(0);
        let tag = scope.tag(&job.key);
        let acquired = provider.acquire(&tag, &job, &Nobody).await.unwrap();
        provider.wait_usable(&tag, &job, &acquired.id).await.unwrap();
        ids.push(acquired.id);
    }
    for (provider, id) in [(&ada, &ids[0]), (&bob, &ids[1])] {
        let seen = provider.observe(&scope).await.unwrap();
        assert_eq!(seen.iter().map(|found| &found.id).collect::<Vec<_>>(), [id]);
    }
    // Another's job with the same name, by its number.
    let mut others = ada.observe(&scope).await.unwrap().remove(0);
    others.id.clone_from(&ids[1]);
    ada.release(&scope, &others).await.unwrap();
    assert!(login("bob", "squeue -h -u $(id -un) -o %i").contains(&ids[1]), "bob's job goes on");
    // A number that is another job's of the same user by now: Slurm counts from 1 again after a reset.
    let own = login("ada", "sbatch --parsable --job-name=thesis --time=5 --wrap='sleep 100'").trim().to_owned();
    others.id.clone_from(&own);
    ada.release(&scope, &others).await.unwrap();
    assert!(login("ada", "squeue -h -u $(id -un) -o '%i %T'").contains(&own), "the thesis goes on");
    login("ada", &format!("scancel {own}"));
    for provider in [&ada, &bob] {
        for found in provider.observe(&scope).await.unwrap() {
            provider.release(&scope, &found).await.unwrap();
        }
    }
    nothing_is_left();
}
