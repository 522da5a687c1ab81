//! The program by which Python gives a job's secrets to its processes in a pod, with a Python of this machine.

use std::path::Path;
use std::process::Command;

const ID: &str = "abcdefghijklmnopqrstuvwx";
/// Prints what the process has: the job's variable, and whether the `sitecustomize` of its environment was imported.
const SHOW: &str = "import os, sys; print(os.environ.get('TOKEN'), getattr(sys, 'of_the_image', None))";

/// Runs Python as Ray would start a worker's process, or any other; returns what it prints.
fn python(secrets: &Path, image: &Path, data: &Path, script: &str) -> String {
    let program = image.join(script);
    std::fs::write(&program, SHOW).unwrap();
    let context = format!("{{\"env_vars\": {{\"GPUCL_SECRETS\": \"{ID}\"}}}}");
    let output = Command::new("python3")
        .arg(&program)
        .args(["--serialized-runtime-env-context", &context])
        .env("PYTHONPATH", format!("{}:{}", secrets.display(), image.display()))
        .env("GPUCL_DATA", data)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{stderr}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_worker_gets_the_secrets_of_its_job_and_the_image_keeps_its_own_customization() {
    let folder = tempfile::tempdir().unwrap();
    let [secrets, image, data] = ["secrets", "image", "data"].map(|name| folder.path().join(name));
    for each in [&secrets, &image, &data.join(".gpucl-secrets")] {
        std::fs::create_dir_all(each).unwrap();
    }
    let templates = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates");
    for (key, template) in
        [("sitecustomize.py", "raycluster/sitecustomize.py"), ("gpucl_worker.py", "ray-native/worker.py")]
    {
        std::fs::copy(templates.join(template), secrets.join(key)).unwrap();
    }
    let show = |script: &str| python(&secrets, &image, &data, script);
    // From the data folder of a pod that ran already.
    std::fs::write(data.join(".gpucl-secrets").join(ID), "{\"TOKEN\": \"of the pod\"}").unwrap();
    assert_eq!(show("setup_worker.py"), "of the pod None\n");
    // From the cluster's Secret, in one that came later.
    std::fs::write(secrets.join(ID), "{\"TOKEN\": \"of the Secret\"}").unwrap();
    std::fs::write(image.join("sitecustomize.py"), "import sys; sys.of_the_image = True").unwrap();
    assert_eq!(show("setup_worker.py"), "of the Secret True\n");
    // A process that is no worker gets nothing, whatever its arguments are.
    assert_eq!(show("train.py"), "None True\n");
}

/// Where a fake Ray prints what its worker gets.
const SETUP: &str = "import json, os, sys\n\
    context = json.loads(sys.argv[sys.argv.index('--serialized-runtime-env-context') + 1]) if len(sys.argv) > 2 else \
    json.loads(sys.argv[1].split('=', 1)[1])\n\
    names = ['T', 'P', 'UV_PYTHON', 'TOKEN']\n\
    print(json.dumps([context['env_vars'], {name: os.environ.get(name) for name in names}]))";

/// What a worker's process has, started as on hosts or as in a pod: what Ray expands of its variables, and what is set.
fn started(is_in_pod: bool, is_one_word: bool, env: &[(&str, &str)]) -> (serde_json::Value, serde_json::Value) {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let templates = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates");
    std::fs::create_dir_all(at("ray/_private/workers")).unwrap();
    std::fs::create_dir_all(at("secrets")).unwrap();
    std::fs::write(at("ray/__init__.py"), "").unwrap();
    std::fs::write(at("ray/_private/workers/setup_worker.py"), SETUP).unwrap();
    std::fs::copy(templates.join("raycluster/sitecustomize.py"), at("secrets/sitecustomize.py")).unwrap();
    std::fs::copy(templates.join("ray-native/worker.py"), at("secrets/gpucl_worker.py")).unwrap();
    let context = serde_json::json!({"py_executable": "python", "env_vars":
        {"T": "$HOME/${HOME}", "P": "${PATH}:/x", "GPUCL_LITERAL": "T,missing"}})
    .to_string();
    let flag = "--serialized-runtime-env-context";
    let mut command = Command::new("python3");
    match is_in_pod {
        true => command.arg(at("ray/_private/workers/setup_worker.py")).env("PYTHONPATH", at("secrets")),
        false => command.arg(templates.join("ray-native/worker.py")).env("PYTHONPATH", folder.path()),
    };
    match is_one_word {
        true => command.arg(format!("{flag}={context}")),
        false => command.args([flag, &context]),
    };
    let output = command.env_remove("UV_PYTHON").envs(env.iter().copied()).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_worker_has_literal_variables_as_they_are_and_leaves_the_others_to_ray() {
    for (is_in_pod, is_one_word) in [(false, false), (false, true), (true, false), (true, true)] {
        let (rays, set) = started(is_in_pod, is_one_word, &[]);
        assert_eq!(set["T"], "$HOME/${HOME}", "in a pod: {is_in_pod}");
        assert_eq!((&rays["T"], &rays["P"]), (&serde_json::Value::Null, &"${PATH}:/x".into()), "in a pod: {is_in_pod}");
    }
}

/// `uv run` in a job takes the Python of its node, unless the user names another.
#[test]
fn a_worker_names_its_python_for_uv() {
    let own = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().unwrap();
    let own = String::from_utf8(own.stdout).unwrap();
    for is_in_pod in [false, true] {
        assert_eq!(started(is_in_pod, false, &[]).1["UV_PYTHON"], own.trim(), "in a pod: {is_in_pod}");
        assert_eq!(started(is_in_pod, false, &[("UV_PYTHON", "3.12")]).1["UV_PYTHON"], "3.12", "in a pod: {is_in_pod}");
    }
}

/// A job whose processes end at their start would hold up all others.
#[test]
fn a_head_starts_several_processes_at_once_unless_it_is_set() {
    let templates = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates");
    let name = "RAY_worker_maximum_startup_concurrency";
    let show = format!("import os; print(os.environ.get('{name}'))");
    let folder = tempfile::tempdir().unwrap();
    let ray = folder.path().join("ray");
    std::fs::write(&ray, &show).unwrap();
    for (from, to) in
        [("raycluster/sitecustomize.py", "sitecustomize.py"), ("ray-native/lifecycle.py", "gpucl_lifecycle.py")]
    {
        std::fs::copy(templates.join(from), folder.path().join(to)).unwrap();
    }
    let on_hosts = format!(
        "from lifecycle import start_several_at_once; import sys\n\
        start_several_at_once('--head' in sys.argv)\n{show}"
    );
    let run = |is_in_pod: bool, own: Option<&str>, words: &[&str]| {
        let mut command = Command::new("python3");
        match is_in_pod {
            true => command.arg(&ray).env("PYTHONPATH", folder.path()),
            false => command.args(["-B", "-c", &on_hosts]).env("PYTHONPATH", templates.join("ray-native")),
        };
        let output = command.args(words).envs(own.map(|own| (name, own))).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    for is_in_pod in [false, true] {
        assert!(
            run(is_in_pod, None, &["start", "--head", "--block"]).parse::<u32>().unwrap() >= 16,
            "in a pod: {is_in_pod}"
        );
        assert_eq!(run(is_in_pod, Some("2"), &["start", "--head", "--block"]), "2", "in a pod: {is_in_pod}");
        assert_eq!(run(is_in_pod, None, &["start", "--address=head:6379", "--block"]), "None", "in a pod: {is_in_pod}");
    }
}
