//! Two fresh hosts with one GPU each: opened to each other and to nobody else.

use std::time::Instant;

use crate::hosts::closed;
use crate::hosts::served;
use crate::hosts::spec::{env, gpucl, spec};
use crate::hosts::testbed::TestHost;
use crate::support::alone;

#[test]
#[ignore = "by hand: just testbed-all"]
fn two_fresh_hosts_come_to_ready_and_go() {
    let _turn = alone();
    let hosts = [
        TestHost::start("two-a", &["--gpus", "nvidia:1", "--image", "fresh"]),
        TestHost::start("two-b", &["--gpus", "nvidia:1", "--image", "fresh"]),
    ];
    let env = env();
    env.write("cluster.yaml", &spec("two", &[&hosts[0], &hosts[1]], "services: {mlflow: true}\n"));
    let begin = Instant::now();
    let before: Vec<usize> = hosts.iter().map(TestHost::sessions).collect();
    let up = gpucl(&env, &["up"]).exits(0).prints("ready:");
    println!("first up of two: {:.0} s\n{}\n{}", begin.elapsed().as_secs_f64(), up.stderr, up.stdout);
    for (host, before) in hosts.iter().zip(before) {
        let sessions = host.sessions() - before;
        assert!(sessions <= 4, "{sessions} SSH sessions for a first up");
        assert!(up.stderr.contains(&host.uuids()[0]));
    }
    served::plain_jobs_and_notebooks_log_runs(&env, &hosts[0]);
    served::applications_answer_who_has_the_key(&env, &[&hosts[0], &hosts[1]]);
    for host in &hosts {
        closed::nothing_of_ours_answers(host);
    }
    let before: Vec<usize> = hosts.iter().map(TestHost::sessions).collect();
    gpucl(&env, &["up"]).exits(0).prints("nothing was changed");
    let after: Vec<usize> = hosts.iter().map(TestHost::sessions).collect();
    assert_eq!(before.iter().map(|before| before + 1).collect::<Vec<_>>(), after, "an unchanged up is one session");
    gpucl(&env, &["down", "--yes"]).exits(0);
    for host in &hosts {
        assert_eq!(host.sh("docker ps -aq").trim(), "");
        assert!(!host.sh("nft list ruleset 2>/dev/null || true").contains("gpucl"));
    }
}
