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
