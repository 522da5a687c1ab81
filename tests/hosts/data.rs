//! Files of a cluster in containers: the data folder, mounts, and what `down --keep-data` keeps.

use super::spec::{env, gpucl, spec};
use super::testbed::TestHost;
use crate::support::{TestEnv, turn, until};

/// No GPUs and no services but Jupyter.
const MORE: &str = "services: {object_store: false, prometheus: false}\n\
    mounts:\n  - {host: /srv/sets, at: /sets, read_only: true}\n  - {volume: models, at: /models}\n";

/// Data sets by a command, by an image, and from a server on the host itself; `SUM` and `ADDRESS` are filled in.
const SETS: &str = "data:\n  \
    - {name: made, from: {command: 'id -u >by; ! touch /opt/gpucl/x'}, check: 'grep -q -x 1000 by'}\n  \
    - {name: imaged, from: {image: 'gpucl-test/ray:2.60.0', command: 'id -u >by'}, check: 'grep -q -x 1000 by'}\n  \
    - {name: fetched, from: {url: 'http://ADDRESS:8099/a b.tgz', sha256: SUM}, check: 'test -s set/x'}\n";

#[test]
#[ignore = "by hand: just more-hosts"]
fn files_go_to_jobs_and_notebooks_and_come_back() {
    let _turn = turn();
    let host = TestHost::start("data", &["--gpus", "nvidia:1"]);
    let env = env();
    env.write("cluster.yaml", &spec("data", &[&host], MORE));

    gpucl(&env, &["up"]).exits(1).says("mounts: host-0 has no /srv/sets");
    host.sh("mkdir -p /srv/real && echo a set >/srv/real/set.txt && ln -s /srv/real /srv/sets");
    gpucl(&env, &["up"]).exits(1).says("/srv/sets is reached through a link on host-0; its own path is /srv/real");
    host.sh("rm /srv/sets && mv /srv/real /srv/sets");
    a_set_that_cannot_be_had_starts_nothing(&env, &host);
    gpucl(&env, &["up"]).exits(0).says("jobs and notebooks can read /srv/sets of every host, at /sets");

    sets_are_filled_once(&env, &host);
    jobs_and_copies(&env, &host);
    links_of_jobs_lead_nowhere(&env, &host);
    a_notebook_submits_jobs(&host);

    gpucl(&env, &["down", "--yes", "--keep-data"]).exits(0).says("kept: data folder /var/lib/gpucl/");
    assert_eq!(host.sh("cat /var/lib/gpucl/gpucl-*/data/results.txt").trim(), "from here");
    assert_eq!(host.sh("docker volume ls -q | grep -c models").trim(), "1");
    host.sh("cd /var/lib/gpucl/gpucl-*/data/made && echo kept >>by");
    let again = gpucl(&env, &["up"]).exits(0).says("fill the data set fetched: nothing to do");
    assert!(again.stderr.contains("fill the data set made: nothing to do"), "{}", again.stderr);
    gpucl(&env, &["cp", "head:results.txt", "again.txt"]).exits(0);
    gpucl(&env, &["down", "--yes", "--purge"]).exits(0).prints("nothing of data is left");
    assert!(!host.try_sh("test -e /var/lib/gpucl").status.success(), "the folder of gpucl is gone");
    assert_eq!(host.sh("cat /srv/sets/set.txt").trim(), "a set", "a mounted folder is not ours to remove");
}

/// As README has it: data in, a job that reads and writes it, results out; `$SHARED` of the job is this folder of the
/// nodes, which all hosts share.
pub(crate) fn data_in_and_results_out(env: &TestEnv, shared: Option<&str>) {
    let words: String = (0..1000).map(|number| format!("line {number}\n")).collect();
    env.write("words.txt", &words);
    gpucl(env, &["cp", "words.txt", "head:sets/"]).exits(0);
    let count = format!(
        "wc -l <$GPUCL_DATA/sets/words.txt >$GPUCL_DATA/count.txt && cp $GPUCL_DATA/count.txt {}/kept.txt",
        shared.unwrap_or("$GPUCL_DATA")
    );
    gpucl(env, &["job", "submit", "--", "sh", "-c", &count]).exits(0);
    gpucl(env, &["cp", "head:count.txt", "."]).exits(0);
    assert_eq!(std::fs::read_to_string(env.work().join("count.txt")).unwrap().trim(), "1000");
    if let Some(shared) = shared {
        let read = format!("cat {shared}/kept.txt");
        let on_a_worker = ["job", "submit", "--entrypoint-num-gpus", "1", "--", "sh", "-c", &read];
        gpucl(env, &on_a_worker).exits(0).prints("1000");
    }
}

/// A wrong sum stops `up` with its reason before any node.
fn a_set_that_cannot_be_had_starts_nothing(env: &TestEnv, host: &TestHost) {
    host.sh("mkdir -p /srv/www/set && echo a set >/srv/www/set/x && cd /srv/www && tar -czf 'a b.tgz' set && \
             (setsid python3 -m http.server 8099 >/dev/null 2>&1 </dev/null &)");
    let sum = host.sh("cat /srv/www/*.tgz | sha256sum | cut -d' ' -f1");
    let sets = SETS.replace("ADDRESS", host.address()).replace("a b", "a%20b");
    let with = |sum: &str| spec("data", &[host], &format!("{MORE}{}", sets.replace("SUM", sum)));
    env.write("cluster.yaml", &with(&"0".repeat(64)));
    let _ = gpucl(env, &["up"]).exits(1).says(&format!("has the SHA-256 {}, and the spec says 00", sum.trim()));
    assert_eq!(host.sh("docker ps -aq"), "", "neither a node nor what filled the sets");
    env.write("cluster.yaml", &with(sum.trim()));
}

fn sets_are_filled_once(env: &TestEnv, host: &TestHost) {
    let data = "cd /var/lib/gpucl/gpucl-*/data";
    let owners = host.sh(&format!("{data} && stat -c %u made made/by imaged/by fetched/set/x .gpucl | sort -u"));
    assert_eq!(owners.trim(), "1000", "sets belong to the user of jobs");
    assert_eq!(host.sh("docker ps -aq --filter label=gpucl.probe; docker network ls -q --filter name=_fill"), "");
    let _ = gpucl(env, &["plan"]).exits(0).is("nothing to change\n");
    gpucl(env, &["job", "submit", "--", "sh", "-c", "cat $GPUCL_DATA/fetched/set/x && rm -r $GPUCL_DATA/fetched"])
        .exits(0)
        .prints("a set");
    let _ = gpucl(env, &["plan"]).exits(0).prints("host-0, fill data: some of its data is gone or fails its check");
    let again = gpucl(env, &["up"]).exits(0).says("fill the data set made: nothing to do");
    assert!(again.stderr.contains("fill the data set fetched: done"), "{}", again.stderr);
    assert!(!again.stderr.contains("deploy"), "no node is touched: {}", again.stderr);
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
    syncs_and_secrets(env, host);
    // Paths of the host itself are still those of the login user.
    gpucl(env, &["cp", "in.txt", "head:~/mine.txt"]).exits(0);
    gpucl(env, &["exec", "--", "cat", "mine.txt"]).exits(0).prints("from here");
}

/// What is synced belongs to the user of jobs as well; a secret reaches a job's processes, and no description.
fn syncs_and_secrets(env: &TestEnv, host: &TestHost) {
    let _ = env.write("set/a b/one.txt", "one\n");
    gpucl(env, &["sync", "set", "head:synced"]).exits(0).says("synced: 1 file sent");
    gpucl(env, &["sync", "set", "worker-0:/data/synced", "--delete"]).exits(0).says("1 unchanged");
    let owner = host.sh("find /var/lib/gpucl/gpucl-*/data/synced -exec stat -c %u {} + | sort -u");
    assert_eq!(owner.trim(), "1000");
    let set = env
        .command(&["secret", "set", "MY_TOKEN"])
        .stdin(std::fs::File::open(env.write("token", "v3ry-s3cret")).unwrap())
        .output()
        .unwrap();
    assert!(set.status.success());
    let code = "import os, ray\nray.init()\nget = ray.remote(lambda: len(os.environ.get('MY_TOKEN', '')))\n\
                print('driver', len(os.environ.get('MY_TOKEN', '')), 'task', ray.get(get.remote()))\n\
                os.system('touch $GPUCL_DATA/started; sleep 20')\n";
    let _ = env.write("code/has.py", code);
    let job = ["job", "submit", "--id", "secret", "--working-dir", "code", "--no-wait", "--secret", "MY_TOKEN", "--"];
    gpucl(env, &[&job[..], &["python", "has.py"]].concat()).exits(0);
    until("the job with a secret", 60, || {
        host.try_sh("test -e /var/lib/gpucl/gpucl-*/data/started").status.success().then_some(())
    });
    let file = "stat -c '%u %a' /var/lib/gpucl/gpucl-*/data/.gpucl-secrets/*";
    assert_eq!(host.sh(file).trim(), "1000 600");
    let found = "docker inspect $(docker ps -q) | grep -c s3cret; docker logs $(docker ps -q --filter name=head) 2>&1 | grep -c s3cret; \
                 cat /proc/*/cmdline | tr '\\0' ' ' | grep -c '[v]3ry-s3cret'; \
                 docker exec $(docker ps -q --filter name=head) grep -rc s3cret /tmp/ray --include=* -l | wc -l";
    assert_eq!(host.sh(&format!("{found}; true")), "0\n0\n0\n0\n");
    gpucl(env, &["job", "logs", "secret", "--follow"]).exits(0).prints("driver 11 task 11");
    assert!(!host.try_sh("ls -d /var/lib/gpucl/gpucl-*/data/.gpucl-secrets").status.success(), "gone with the job");
    host.sh("rm -r /var/lib/gpucl/gpucl-*/data/started /var/lib/gpucl/gpucl-*/data/synced");
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

/// At the notebook's terminal: nobody pastes a token, and repositories are cloned into the workspace.
fn a_notebook_submits_jobs(host: &TestHost) {
    let at =
        |command: &str| host.sh(&format!("docker exec $(docker ps -q --filter name=jupyter) sh -c '{command}' 2>&1"));
    let said = at("ray job submit -- echo from a notebook");
    assert!(said.contains("from a notebook") && said.contains("succeeded"), "{said}");
    at("cd /workspace && git init -q --bare /tmp/one.git && git clone -q /tmp/one.git && test -d one/.git");
}
