//! MLflow on this machine: a plain job finds the server, and nobody without its login does.

use crate::support::{TestEnv, nodes, tagged_processes, turn};

const SPEC: &str = "name: track\nprovider: local\nservices: {object_store: true, mlflow: true}\nray:\n  \
                    workers: {count: 1, cpus: 1}\noversubscribe: true\ntimeouts: {start: 5m, ready: 5m}\n";

const TRAIN: &str = "\
import os, mlflow, ray
mlflow.set_experiment('food')
with mlflow.start_run() as run:
    mlflow.log_param('rate', 0.1)
    for step in range(20):
        mlflow.log_metric('loss', 1 / (step + 1), step=step)
    mlflow.log_text('as it was', 'notes.txt')
print('run', run.info.run_id)
ray.init(log_to_driver=False)

@ray.remote(num_cpus=1)
def found():
    run = mlflow.search_runs(experiment_names=['food'], output_format='list')[0]
    return run.data.metrics['loss'], mlflow.artifacts.load_text(f'{run.info.artifact_uri}/notes.txt')

print('found', *ray.get(found.remote()))
print('of the user', os.environ.get('MLFLOW_TRACKING_TOKEN'), os.environ.get('MLFLOW_EXPERIMENT_NAME'))
";

#[test]
#[ignore = "testbed"]
fn runs_and_artifacts_of_plain_jobs_are_recorded_behind_a_login() {
    let _turn = turn();
    let mut env = TestEnv::with_shared_ray();
    // A user's own settings, which belong to another server.
    env.set("MLFLOW_TRACKING_URI", "http://127.0.0.1:9");
    env.set("MLFLOW_TRACKING_TOKEN", "of-another-server");
    env.set("MLFLOW_EXPERIMENT_NAME", "mine");
    env.write("cluster.yaml", SPEC);
    env.run(&["up"])
        .exits(0)
        .says("passed    mlflow           login")
        .says("without a login: 401, wrong password: 401");
    env.write("train.py", TRAIN);
    let job = env.run(&["job", "submit", "--working-dir", ".", "--", "python", "train.py"]).exits(0);
    let job = job.prints("found 0.05 as it was").prints("of the user None None");
    assert!(job.stdout.contains("run "), "{}", job.stdout);

    // Its artifacts are objects of the cluster's store.
    env.run(&["store", "ls", "s3://ray/mlflow/"]).exits(0).prints("mlflow/");
    let password = std::fs::read_to_string(env.paths().state.join("clusters/track/secrets/mlflow_password")).unwrap();
    for line in env.run(&["job", "list", "--output", "json"]).exits(0).json() {
        assert!(!line.to_string().contains(password.trim()), "Ray has the login: {line}");
    }
    let arguments = std::process::Command::new("ps").args(["-eo", "args"]).output().unwrap().stdout;
    assert!(!String::from_utf8_lossy(&arguments).contains(password.trim()), "it is on a command line");

    // A second `up` changes nothing; after a stop all is still there.
    let before = nodes(&env, "track");
    env.run(&["up"]).exits(0).prints("nothing was changed");
    assert_eq!(nodes(&env, "track"), before);
    env.run(&["stop"]).exits(0);
    env.run(&["up"]).exits(0);
    env.write(
        "again.py",
        "import mlflow\nprint('runs', len(mlflow.search_runs(experiment_names=['food'], output_format='list')))\n",
    );
    env.run(&["job", "submit", "--working-dir", ".", "--", "python", "again.py"]).exits(0).prints("runs 1");
    each_trial_of_the_example_is_a_run(&env);
    env.run(&["down", "--yes"]).exits(0);
    assert_eq!(tagged_processes(&env), []);
}

/// Without MLflow the same program runs in the test of the examples.
fn each_trial_of_the_example_is_a_run(env: &TestEnv) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/tune");
    let short = ["--samples", "2", "--epochs", "2", "--seconds", "0"];
    let submit = ["job", "submit", "--working-dir", folder, "--", "python", "tune.py"];
    env.run(&[&submit[..], &short].concat()).exits(0).prints("2 settings tried");
    env.write(
        "trials.py",
        "import mlflow\nfor run in mlflow.search_runs(experiment_names=['tune'], output_format='list'):\n    \
         print('trial', sorted(run.data.params)[:3], run.info.status, 0 < run.data.metrics['accuracy'] <= 1)\n",
    );
    let trials = env.run(&["job", "submit", "--working-dir", ".", "--", "python", "trials.py"]).exits(0);
    let line = "trial ['batch', 'dropout', 'epochs'] FINISHED True";
    assert_eq!(trials.stdout.matches(line).count(), 2, "{}", trials.stdout);
}
