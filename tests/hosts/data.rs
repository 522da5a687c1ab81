//! Files of a cluster in containers: the data folder, mounts, and what `down --keep-data` keeps.

use super::spec::{env, gpucl, spec};
use super::testbed::TestHost;
use crate::support::{TestEnv, turn};

/// No GPUs and no services but Jupyter.
const MORE: &str = "services: {object_store: false, prometheus: false}\n\
    mounts:\n  - {host: /srv/sets, at: /sets, read_only: true}\n  - {volume: models, at: /models}\n";

#[test]
#[ignore = "testbed"]
fn files_go_to_jobs_and_notebooks_and_come_back() {
    let _turn = turn();
    let host = TestHost::start("data", &["--gpus", "nvidia:1"]);
    let env = env();
    env.write("cluster.yaml", &spec("data", &[&host], MORE));

    gpucl(&env, &["up"]).exits(1).says("mounts: host-0 has no /srv/sets");
    host.sh("mkdir -p /srv/real && echo a set >/srv/real/set.txt && ln -s /srv/real /srv/sets");
    gpucl(&env, &["up"]).exits(1).says("/srv/sets is reached through a link on host-0; its own path is /srv/real");
    host.sh("rm /srv/sets && mv /srv/real /srv/sets");
    gpucl(&env, &["up"]).exits(0).says("jobs and notebooks can read /srv/sets of every host, at /sets");

    jobs_and_copies(&env, &host);
    links_of_jobs_lead_nowhere(&env, &host);

    gpucl(&env, &["down", "--yes", "--keep-data"]).exits(0).says("kept: data folder /var/lib/gpucl/");
    assert_eq!(host.sh("cat /var/lib/gpucl/gpucl-*/data/results.txt").trim(), "from here");
    assert_eq!(host.sh("docker volume ls -q | grep -c models").trim(), "1");
    gpucl(&env, &["up"]).exits(0);
    gpucl(&env, &["cp", "head:results.txt", "again.txt"]).exits(0);
    gpucl(&env, &["down", "--yes", "--purge"]).exits(0).prints("nothing of data is left");
    assert!(!host.try_sh("test -e /var/lib/gpucl").status.success(), "the folder of gpucl is gone");
    assert_eq!(host.sh("cat /srv/sets/set.txt").trim(), "a set", "a mounted folder is not ours to remove");
}

fn jobs_and_copies(env: &TestEnv, host: &TestHost) {
    env.write("in.txt", "from here\n");
    gpucl(env, &["cp", "in.txt", "head:sets/a/"]).exits(0);
    let owner = host.sh("stat -c %u /var/lib/gpucl/gpucl-*/data /var/lib/gpucl/gpucl-*/data/sets/a/in.txt | sort -u");
    assert_eq!(owner.trim(), "1000", "what is brought belongs to the containers' user");
    let job = "cat $GPUCL_DATA/sets/a/in.txt >$GPUCL_DATA/results.txt && cat /sets/set.txt && echo m >/models/m && \
               ! touch /sets/mine";
    gpucl(env, &["job", "submit", "--", "sh", "-c", job]).exits(0).prints("a set");
    gpucl(env, &["cp", "head:results.txt", "."]).exits(0);
    assert_eq!(std::fs::read_to_string(env.work().join("results.txt")).unwrap(), "from here\n");
    gpucl(env, &["cp", "worker-0:/data/results.txt", "same.txt"]).exits(0);
    let seen = "docker exec $(docker ps -q --filter name=jupyter) sh -c 'cat $GPUCL_DATA/results.txt /models/m'";
    let jupyter = host.sh(seen);
    assert_eq!(jupyter, "from here\nm\n");
    // Paths of the host itself are still those of the login user.
    gpucl(env, &["cp", "in.txt", "head:~/mine.txt"]).exits(0);
    gpucl(env, &["exec", "--", "cat", "mine.txt"]).exits(0).prints("from here");
}

fn links_of_jobs_lead_nowhere(env: &TestEnv, host: &TestHost) {
    let job = "ln -s /etc $GPUCL_DATA/out && ln -s /etc/shadow $GPUCL_DATA/shadow";
    gpucl(env, &["job", "submit", "--", "sh", "-c", job]).exits(0);
    for path in ["head:out/in.txt", "head:out/", "head:shadow"] {
        gpucl(env, &["cp", "in.txt", path]).exits(1).says("is a link there");
    }
    for path in ["head:out/shadow", "head:shadow"] {
        let _ = gpucl(env, &["cp", path, "stolen"]).exits(1);
        assert!(!env.work().join("stolen").exists());
    }
    assert!(!host.try_sh("test -e /etc/in.txt").status.success());
    host.sh("rm /var/lib/gpucl/gpucl-*/data/out /var/lib/gpucl/gpucl-*/data/shadow");
}
