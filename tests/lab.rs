//! The lab of `examples/lab`, block by block as its README has them: on a host by SSH, on this machine, and at
//! Chameleon. Each prints what every command took, and how it ended.

use std::time::Instant;

use gpucl::sandbox::chameleon::User;

use crate::chameleon::site::Site;
use crate::hosts;
use crate::support::blocks::{Shown, answers, bring_program_alone, shown};
use crate::support::{TestEnv, tagged_processes, turn, until};

const README: &str = include_str!("../examples/lab/README.md");
/// The headings of the parts that need a site; the rest runs on any cluster called `lab`.
const AT_A_SITE: [&str; 2] = ["## Before the lease", "## The lease"];

/// The commands of the parts with these headings, or of all others.
fn commands(at_a_site: bool) -> Vec<Shown> {
    let parts = README.split("\n## ").filter(|part| {
        let heading = format!("## {}", part.lines().next().unwrap_or_default());
        AT_A_SITE.contains(&heading.as_str()) == at_a_site
    });
    let commands = shown(&parts.collect::<Vec<_>>().join("\n"));
    assert!(commands.len() >= if at_a_site { 5 } else { 18 }, "{commands:?}");
    commands
}

/// The data set of the spec of this machine, for the specs of other hosts.
fn data_set() -> &'static str {
    let spec = include_str!("../examples/lab/small/nvidia.yaml");
    &spec[spec.find("\ndata:").unwrap() + 1..]
}

/// The programs without PyTorch in the working folder, gpucl by its name, and this spec.
fn bring(env: &TestEnv, spec: &str) {
    bring_program_alone(env);
    for name in ["food.py", "plain.py", "train.py", "tune.py", "runtime.json"] {
        let path = format!("{}/examples/lab/small/{name}", env!("CARGO_MANIFEST_DIR"));
        env.write(name, &std::fs::read_to_string(path).unwrap());
    }
    env.write("nvidia.yaml", spec);
    env.write("cluster.yaml", spec);
    ["nvidia.yaml", "cluster.yaml"].iter().for_each(|spec| env.accept(spec));
}

/// Runs commands in their order, and prints what each took.
fn run(env: &TestEnv, commands: &[Shown]) {
    let begin = Instant::now();
    for shown in commands {
        let started = Instant::now();
        let command = if shown.command.contains("WORKER") {
            shown.command.replace("WORKER", &worker_with_the_job(env))
        } else {
            shown.command.clone()
        };
        let printed = answers(env, &Shown { command: command.clone(), lines: shown.lines.clone() });
        let last = printed.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        println!("lab {:6.1} s  {command}\n              {}", started.elapsed().as_secs_f64(), last.trim());
    }
    println!("lab {:6.1} s  all {} commands", begin.elapsed().as_secs_f64(), commands.len());
}

/// The worker on which the job `long` trains, once it has saved a checkpoint; after that it is remembered.
fn worker_with_the_job(env: &TestEnv) -> String {
    let kept = env.root().join("worker.txt");
    if let Ok(worker) = std::fs::read_to_string(&kept) {
        return worker;
    }
    until("a checkpoint of the job", 180, || {
        env.run(&["job", "logs", "long"]).stdout.contains("epoch 2: accuracy").then_some(())
    });
    let worker = until("the worker with the job", 60, || {
        let rows = env.run(&["top", "--output", "json"]).exits(0).json();
        let holds = |row: &&serde_json::Value| row["holds"]["long"]["GPU"].as_f64().is_some();
        rows.iter().find(holds).map(|row| row["node"].as_str().unwrap().to_owned())
    });
    std::fs::write(&kept, &worker).unwrap();
    worker
}

#[test]
fn the_blocks_before_the_cluster_run_at_a_site() {
    let site = Site::stand_in();
    bring(&site.env, "");
    run(&site.env, &commands(true));
    site.env.run(&["lease", "delete", "--yes", "mltrain-netID"]).exits(0);
    assert_eq!(site.of_owner(&site.env).counts(), [0, 0, 0, 0]);
}

#[test]
#[ignore = "by hand: just lab on_an_ssh_host"]
fn on_an_ssh_host() {
    let _turn = turn();
    let host = hosts::TestHost::start("lab", &["--gpus", "nvidia:2"]);
    let env = TestEnv::new();
    let more = format!("services: {{jupyter: false, prometheus: false}}\n{}", data_set());
    let spec = hosts::spec("lab", &[&host], &more);
    bring(&env, &spec.replace("per: gpu, cpus: 1", "per: gpu, cpus: 8"));
    hosts::use_images(&env);
    run(&env, &commands(false));
    assert_eq!(host.sh("docker ps -q --filter label=gpucl.tag").trim(), "");
}

/// `just lab on_this_machine`.
#[test]
#[ignore = "by hand: just lab on_this_machine"]
fn on_this_machine() {
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    bring(&env, include_str!("../examples/lab/small/nvidia.yaml"));
    run(&env, &commands(false));
    assert_eq!(tagged_processes(&env), []);
}

/// `just lab at_chameleon`: the real services, and a host that they boot.
#[test]
#[ignore = "by hand: just lab at_chameleon"]
fn at_chameleon() {
    let _turn = turn();
    hosts::openstack_script("up", &["--host-image", "ready"]);
    let site = Site::real();
    let env = site.user(User::Alice);
    hosts::example(&env, "chameleon-nvidia");
    let spec = std::fs::read_to_string(env.work().join("cluster.yaml")).unwrap();
    let spec =
        spec.replace("name: demo", "name: lab").replace("workers: { per: gpu }", "workers: { per: gpu, cpus: 8 }");
    assert!(spec.contains("name: lab") && spec.contains("cpus: 8"), "{spec}");
    bring(&env, &format!("{spec}{}", data_set()));
    hosts::use_images(&env);
    run(&env, &commands(true));
    run(&env, &commands(false));
    env.run(&["lease", "delete", "--yes", "mltrain-netID"]).exits(0);
    assert_eq!(site.of_owner(&env).counts(), [0, 0, 0, 0]);
}
