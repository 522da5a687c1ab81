//! MLflow on this machine: a plain job finds the server, and nobody without its login does.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

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
    mlflow.log_dict({'weights': [1, 2]}, 'model/model.json')
client = mlflow.MlflowClient()
client.create_registered_model('food', tags={'of': 'track'})
client.create_model_version('food', f'{run.info.artifact_uri}/model', run.info.run_id)
client.set_registered_model_alias('food', 'best', 1)
print('run', run.info.run_id)
ray.init(log_to_driver=False)

@ray.remote(num_cpus=1)
def found():
    run = mlflow.search_runs(experiment_names=['food'], output_format='list')[0]
    return run.data.metrics['loss'], mlflow.artifacts.load_text(f'{run.info.artifact_uri}/notes.txt')

print('found', *ray.get(found.remote()))
print('of the user', os.environ.get('MLFLOW_TRACKING_TOKEN'), os.environ.get('MLFLOW_EXPERIMENT_NAME'))
";

/// Prints what a cluster's MLflow has, without ids.
const LOOK: &str = "\
import mlflow
client = mlflow.MlflowClient()
for run in mlflow.search_runs(experiment_names=['food'], output_format='list'):
    history = [(it.value, it.step, it.timestamp) for it in client.get_metric_history(run.info.run_id, 'loss')]
    print('has', run.info.status, run.info.start_time, run.info.end_time, run.data.params, history)
    print('has', mlflow.artifacts.load_text(f'{run.info.artifact_uri}/notes.txt'))
model = client.get_registered_model('food')
for version in client.search_model_versions(\"name='food'\"):
    ours = client.get_run(version.run_id).info.run_name == run.info.run_name
    print('has', model.aliases, model.tags, version.version, ours)
print('has', *[mlflow.artifacts.load_dict(f'models:/food{which}/model.json') for which in ('/1', '@best')])
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

    // A second `up` changes nothing.
    let before = nodes(&env, "track");
    env.run(&["up"]).exits(0).prints("nothing was changed");
    assert_eq!(nodes(&env, "track"), before);
    let had = look(&env);
    assert!(had.len() == 4 && had[2].contains("'best': '1'"), "{had:?}");

    // It outlives the cluster, and comes into one of another name.
    let exported = env.run(&["mlflow", "export", "saved", "--output", "json"]).exits(0).json().remove(0);
    assert_eq!(
        (&exported["type"], &exported["runs"], &exported["versions"]),
        (&"mlflow_exported".into(), &1.into(), &1.into())
    );
    assert_eq!(std::fs::metadata(env.work().join("saved")).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(!contains(&env.work().join("saved"), password.trim()), "the export has the login");
    env.run(&["mlflow", "export", "saved"]).exits(2).says("not empty");
    env.run(&["down", "--yes"]).exits(0).says("1 run in MLflow").says("gpucl mlflow export DIR");
    assert_eq!(tagged_processes(&env), []);
    env.write("cluster.yaml", &SPEC.replace("name: track", "name: next"));
    env.run(&["up"]).exits(0);
    env.run(&["mlflow", "import", "saved"]).exits(0).prints("imported: 1 experiment, 1 run");
    env.run(&["mlflow", "import", "saved"])
        .exits(0)
        .prints("imported: 0 experiments, 0 runs")
        .prints("there already: 2");
    assert_eq!(look(&env), had);
    let artifact = std::fs::read_dir(env.work().join("saved/runs")).unwrap().next().unwrap().unwrap().path();
    let artifact = artifact.join("artifacts/notes.txt");
    std::fs::remove_file(&artifact).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &artifact).unwrap();
    env.run(&["mlflow", "import", "saved"]).exits(2).says("is a link").says("nothing was changed");
    env.run(&["down", "--yes"]).exits(0);
    assert_eq!(tagged_processes(&env), []);
}

#[test]
#[ignore = "by hand: just serve-troubles"]
fn runs_outlive_a_down_that_keeps_data() {
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    env.write("cluster.yaml", SPEC);
    env.run(&["up"]).exits(0);
    env.write("train.py", TRAIN);
    env.run(&["job", "submit", "--working-dir", ".", "--", "python", "train.py"]).exits(0);
    each_trial_of_the_example_is_a_run(&env);
    let had = look(&env);
    env.run(&["stop"]).exits(0);
    env.run(&["down", "--keep-data", "--yes"])
        .exits(0)
        .prints("only the data of track is left")
        .prints("/mlflow on host-0");
    let kept = env.run(&["gc", "--output", "json"]).json();
    assert!(kept.iter().any(|line| line["cluster"] == "track" && line["standing"] == "needs_down"), "{kept:?}");
    env.run(&["up"]).exits(0);
    assert_eq!(look(&env), had);
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

/// What a job sees in its cluster's MLflow.
fn look(env: &TestEnv) -> Vec<String> {
    env.write("look.py", LOOK);
    let job = env.run(&["job", "submit", "--working-dir", ".", "--", "python", "look.py"]).exits(0);
    job.stdout.lines().filter(|line| line.starts_with("has ")).map(str::to_owned).collect()
}

/// Whether a file below a folder has this text.
fn contains(folder: &Path, text: &str) -> bool {
    std::fs::read_dir(folder).unwrap().flatten().any(|entry| match entry.path() {
        path if path.is_dir() => contains(&path, text),
        path => String::from_utf8_lossy(&std::fs::read(path).unwrap()).contains(text),
    })
}
