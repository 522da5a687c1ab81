//! The story of `docs/guides/serve.md` in containers over SSH; its models then go to a cluster on this machine, which serves
//! the first version again.

use std::time::Instant;

use super::spec::spec;
use super::testbed::{TestHost, testbed};
use crate::scenario::story::{bring_example, run_story};
use crate::support::blocks::{Shown, answers};
use crate::support::{TestEnv, tagged_processes, turn};

#[test]
#[ignore = "by hand: just serve-story"]
fn the_story_is_true_in_containers_and_its_models_serve_in_another_cluster() {
    let _turn = turn();
    let host = TestHost::start("story", &["--image", "ready"]);
    let env = TestEnv::with_shared_ray();
    // With the testbed's images.
    let program = format!(
        "#!/bin/sh\nexec '{}' --data-dir '{}' \"$@\"\n",
        env!("CARGO_BIN_EXE_gpucl"),
        testbed()["data_dir"].as_str().unwrap()
    );
    let path = env.root().join("bin/gpucl");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, program).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    bring_example(&env);
    let on_this_machine = std::fs::read_to_string(env.work().join("cluster.yaml")).unwrap();
    let services = "services: {mlflow: true, prometheus: false}\n";
    let text = spec("food", &[&host], services).replace("per: gpu", "count: 2").replace("head: {", "head: {cpus: 0, ");
    env.write("cluster.yaml", &text);
    let run = |command: &str| {
        let started = Instant::now();
        let printed = answers(&env, &Shown { command: command.to_owned(), lines: Vec::new() });
        println!("{:5.1} s  {command}", started.elapsed().as_secs_f64());
        printed
    };
    let [first, second, _] = run_story(&env, |_| assert!(run("gpucl mlflow export models").contains("2 versions")));
    assert_ne!(first["predictions"], second["predictions"]);
    assert_eq!(host.sh("docker ps -aq").trim(), "");

    env.write("cluster.yaml", &on_this_machine.replace("name: food", "name: next"));
    run("gpucl up");
    assert!(run("gpucl mlflow import models").contains("2 versions"));
    for (version, expected) in [(1, first), (2, second)] {
        run(&format!("gpucl serve deploy serve_app:food --env MODEL=models:/food/{version}"));
        let printed = run("python3 ask.py");
        let line = printed.lines().find(|line| line.starts_with("{\"model\":")).unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(line).unwrap(), expected);
    }

    // A cluster of another name logs to it as to a server that exists.
    let print_uri = "import os; print(os.environ[\"MLFLOW_TRACKING_URI\"])";
    let printed = run(&format!("gpucl job submit -- python -c '{print_uri}'"));
    let uri = printed.lines().find(|line| line.starts_with("http://127.0.0.1:")).unwrap();
    let password = env.paths().state.join("clusters/next/secrets/mlflow_password");
    let password = std::fs::read_to_string(password).unwrap();
    env.write(
        "login",
        &format!("[mlflow]\nmlflow_tracking_username = gpucl\nmlflow_tracking_password = {}\n", password.trim()),
    );
    let external = format!("services: {{mlflow: {{external: {{uri: '{uri}', credentials_file: login}}}}}}");
    let spec = on_this_machine.replace("name: food", "name: third").replace("services: {mlflow: true}", &external);
    env.write("third.yaml", &spec);
    env.write(".rayignore", "login\nmodels\n");
    let accepted = "$(gpucl plan third.yaml 2>&1 | sed -n 's/.*--accept \\([0-9a-f]*\\).*/\\1/p')";
    assert!(run(&format!("gpucl up third.yaml --accept {accepted}")).contains("answers the login of jobs"));
    assert!(run("gpucl job submit -c third --working-dir . -- python train.py").contains("registered food version 3"));
    run("gpucl down -c third --yes");
    assert!(run("gpucl mlflow export all -c next").contains("3 versions"));
    run("gpucl down -c next --yes");
    assert_eq!(tagged_processes(&env), []);
}
