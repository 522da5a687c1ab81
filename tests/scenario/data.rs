//! Data sets on this machine: filled before nodes start, checked at each `up`.

use crate::support::{TestEnv, nodes, tagged_processes, turn};

#[test]
fn data_is_there_before_nodes_and_comes_back_when_a_job_removes_it() {
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    let spec = |command: &str| {
        format!(
            "name: sets\nray: {{workers: {{count: 1, cpus: 1}}}}\n\
             data:\n  - {{name: one, from: {{command: {command:?}}}, check: test -s a.txt}}\n\
             files:\n  - {{path: code, to: lab/code}}\n"
        )
    };
    env.write("code/a.py", "print('a')");
    env.write("code/it's b.py", "print('b')");
    env.write("code/.gitignore", "big\n");
    env.write("code/big", "not sent");
    env.write("code/.ssh/id", "never sent");
    env.write("cluster.yaml", &spec("echo no luck; exit 4"));
    env.run(&["up", "--yes"]).exits(2).says("runs on this machine: `echo no luck; exit 4`").says("nothing was made");
    env.accept("cluster.yaml");
    let plan = env.run(&["plan"]).exits(0);
    assert!(
        plan.stdout.contains("fill data: it is new")
            && plan.stdout.contains("filled once on each host, by its command")
    );
    env.run(&["up"]).exits(1).says("no luck").says("the command of one failed (exit code 4)");
    assert_eq!(tagged_processes(&env), [], "no node is started without its data");

    env.write("cluster.yaml", &spec("echo here >a.txt"));
    env.accept("cluster.yaml");
    env.run(&["up"]).exits(0).says("lab/code: 3 of 3 files sent");
    let before = nodes(&env, "sets");
    env.run(&["plan"]).exits(0).prints("all of it was accepted\nnothing to change\n");
    let job = "cd $GPUCL_DATA && cat one/a.txt && ls -A lab/code && rm one/a.txt lab/code/a.py";
    let job = env.run(&["job", "submit", "--", "sh", "-c", job]).exits(0).prints("here").prints("it's b.py");
    assert!(!job.stdout.contains("big") && !job.stdout.contains(".ssh"), "{}", job.stdout);
    env.run(&["up"])
        .exits(0)
        .says("fill data (some of its data is gone or fails its check)")
        .says("lab/code: 1 of 3 files sent");
    env.write("code/a.py", "print('a', 2)");
    env.run(&["plan"]).exits(0).prints("host-0, fill data: its data has changed");
    env.run(&["up"]).exits(0).says("lab/code: 1 of 3 files sent");
    assert_eq!(nodes(&env, "sets"), before, "nodes are not restarted for their data");
    env.run(&["cp", "head:one/a.txt", "back.txt"]).exits(0);
    assert_eq!(std::fs::read_to_string(env.work().join("back.txt")).unwrap(), "here\n");
    env.run(&["down", "--yes"]).exits(0);
}
