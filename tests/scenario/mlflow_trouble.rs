//! What goes wrong with MLflow: many metrics, a database that is locked or of a newer version, a full artifact store.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{After, TestEnv, tagged_processes, turn};

const SPEC: &str = "name: rec\nprovider: local\nservices: {mlflow: true}\nray:\n  workers: {count: 1, cpus: 1}\n\
                    oversubscribe: true\ntimeouts: {start: 5m, ready: 5m}\n";

/// As many metrics as a second of a busy job has, three times, as fast as the server takes them.
const MANY: &str = "\
import time, mlflow
from mlflow.entities import Metric
client = mlflow.MlflowClient()
mlflow.set_experiment('many')
begin = time.time()
with mlflow.start_run() as run:
    for first in range(0, 30000, 1000):
        client.log_batch(run.info.run_id, [Metric('loss', first + at, 0, first + at) for at in range(1000)])
print(f'{30000 / (time.time() - begin):.0f} metrics a second')
steps = [metric.step for metric in client.get_metric_history(run.info.run_id, 'loss')]
print('all are there:', steps == list(range(30000)))
";

const LARGE: &str = "\
import os, mlflow
with mlflow.start_run():
    mlflow.log_text('x' * (4 << 20), 'large.txt')
print('logged')
";

const ONE: &str = "\
import mlflow
with mlflow.start_run():
    mlflow.log_metric('loss', 1.0)
print('runs', len(mlflow.search_runs(search_all_experiments=True, output_format='list')))
";

/// The folder of the server.
fn folder(env: &TestEnv) -> PathBuf {
    let hosts = env.home().join(".local/share/gpucl/hosts");
    std::fs::read_dir(hosts).unwrap().flatten().next().unwrap().path().join("mlflow")
}

/// Runs SQL on the server's database.
fn sql(env: &TestEnv, statement: &str) {
    let code = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]); c.commit()";
    let path = folder(env).join("mlflow.db");
    assert!(Command::new("python3").args(["-c", code]).arg(path).arg(statement).status().unwrap().success());
}

/// Locks the server's database, until its input is closed or so many seconds are over.
fn lock(env: &TestEnv, seconds: u32) -> Child {
    let code = "import select, sqlite3, sys\nc = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)\n\
                c.execute('BEGIN EXCLUSIVE'); print('locked', flush=True)\nselect.select([sys.stdin], [], [], float(sys.argv[2]))\n";
    let mut child = Command::new("python3")
        .args(["-c", code])
        .arg(folder(env).join("mlflow.db"))
        .arg(seconds.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "locked\n");
    child
}

fn job(env: &TestEnv, code: &str, more: &[&str]) -> crate::support::Outcome {
    env.write("job/job.py", code);
    env.run(&[&["job", "submit", "--working-dir", "job"], more, &["--", "python", "job.py"]].concat())
}

#[test]
#[ignore = "by hand: just serve-troubles"]
fn trouble_with_mlflow_is_said_and_nothing_logged_is_lost() {
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    env.write("cluster.yaml", SPEC);
    env.run(&["up"]).exits(0);
    let many = job(&env, MANY, &[]).exits(0).prints("all are there: True");
    println!("{}", many.stdout.lines().find(|line| line.ends_with("metrics a second")).unwrap());

    // A database that another program holds for a while: the job waits for it.
    let mut holder = lock(&env, 8);
    job(&env, ONE, &[]).exits(0).prints("runs 2");
    holder.wait().unwrap();

    // A store without room. The client tries for minutes, unless it is asked not to.
    let store = folder(&env).join("artifacts");
    let mount = |words: &[&str]| assert!(Command::new("mount").args(words).arg(&store).status().unwrap().success());
    mount(&["-t", "tmpfs", "-o", "size=1m,mode=700", "none"]);
    let unmount = After(|| {
        let _ = Command::new("umount").arg(&store).status();
    });
    let once = ["--env", "MLFLOW_HTTP_REQUEST_MAX_RETRIES=1"];
    job(&env, LARGE, &once).exits(1).prints("MlflowException").prints("large.txt");
    env.run(&["logs", "mlflow"]).exits(0).prints("No space left on device");
    drop(unmount);
    job(&env, LARGE, &once).exits(0).prints("logged");

    // A database that another program does not give back: `up` names the program.
    env.run(&["stop"]).exits(0);
    let mut holder = lock(&env, 300);
    let begun = Instant::now();
    let up = env.run(&["up"]);
    println!("failed after {:.1} s: {}", begun.elapsed().as_secs_f64(), up.stderr);
    assert!(up.code != Some(0) && begun.elapsed() < Duration::from_secs(120), "{up:?}");
    let up = up.says(&format!("mlflow.db has been locked for 20 s by process {} (python3)", holder.id()));
    assert!(!up.says("then run `gpucl up` again").stderr.contains("Traceback"));
    drop(holder.stdin.take());
    holder.wait().unwrap();

    // One that a newer MLflow has changed: `up` says what the server says, and the file is as it was.
    sql(&env, "ALTER TABLE alembic_version ADD COLUMN was TEXT");
    sql(&env, "UPDATE alembic_version SET was = version_num, version_num = 'ffffffffffff'");
    let up = env.run(&["up"]);
    println!("{}", up.stderr);
    assert_ne!(up.code, Some(0));
    assert!(up.stderr.contains("ffffffffffff"), "{}", up.stderr);
    sql(&env, "UPDATE alembic_version SET version_num = was");
    sql(&env, "ALTER TABLE alembic_version DROP COLUMN was");
    // One that is locked for a while only.
    let mut holder = lock(&env, 8);
    env.run(&["up"]).exits(0);
    holder.wait().unwrap();
    job(&env, ONE, &[]).exits(0).prints("runs 5");
    // A `run` that takes the cluster down says what goes with it.
    let run = env.run(&["run", "--keep", "nothing", "--", "true"]).exits(0).says("nothing of rec is left");
    run.says("removed with the cluster: 5 runs in MLflow, and its models (to keep them: --keep all)");
    assert_eq!(tagged_processes(&env), []);
}
