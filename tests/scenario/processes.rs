//! What the processes of a job have, and those that end at their start: parts of a story on one cluster.

use crate::support::{TestEnv, until};

/// The head starts one process at a time for each of its CPUs, unless it is set otherwise.
pub(super) fn a_job_whose_processes_end_at_their_start_says_why_and_holds_up_nobody(env: &TestEnv) {
    env.write("hides/random.py", "x = 1\n");
    for id in ["hides-1", "hides-2", "hides-3"] {
        env.run(&["job", "submit", "--id", id, "--no-wait", "--working-dir", "hides", "--", "true"])
            .exits(0)
            .says("note: random.py in the working folder hides a module");
    }
    let why = "its processes end at their start, and Ray tries again: ImportError: cannot import name";
    until("the reason is that of the process", 60, || {
        let shown = env.run(&["job", "status", "hides-1"]).exits(0).stdout;
        (shown.contains(why) && shown.contains("(random.py)")).then_some(())
    });
    env.run(&["job", "submit", "--id", "plain", "--", "true"]).exits(0);
    for id in ["hides-1", "hides-2", "hides-3"] {
        // The plain one did not have to wait for their end.
        env.run(&["job", "status", id]).exits(0).prints("PENDING");
        env.run(&["job", "stop", id]).exits(0);
    }
    let listed = env.run(&["job", "list"]).exits(0).stdout;
    assert!(!listed.contains("cancel-"), "what stopped them is left:\n{listed}");
}

pub(super) fn values_are_literal_and_uv_has_the_python_of_the_node(env: &TestEnv) {
    let program = "import os, sys; path = os.environ['P']; \
        print(os.environ['T'], path.endswith(':/x') and '$' not in path, os.environ['UV_PYTHON'] == sys.executable)";
    let environment = r#"{"env_vars": {"P": "${PATH}:/x"}}"#;
    let submit = ["job", "submit", "--env", "T=$HOME/${HOME}", "--runtime-env", environment];
    env.run(&[&submit[..], &["--", "python", "-c", program]].concat()).exits(0).prints("$HOME/${HOME} True True");
    let own = ["job", "submit", "--env", "UV_PYTHON=3.12", "--", "sh", "-c", "echo $UV_PYTHON"];
    env.run(&own).exits(0).prints("3.12");
}
