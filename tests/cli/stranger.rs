//! A spec and a folder from somebody else.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use serde_json::json;

use super::children::record;
use crate::support::TestEnv;

/// What a line break in a value would begin, for `ssh` to run.
fn proxy_command(env: &TestEnv) -> String {
    format!("x\\nProxyCommand=touch${{IFS}}{}", env.root().join("marker").display())
}

#[test]
fn a_plan_of_a_strangers_spec_runs_nothing() {
    let env = TestEnv::new();
    let attack = proxy_command(&env);
    let specs = [
        ("provider.user", format!("provider: {{name: ssh, user: \"{attack}\"}}\nhosts: [127.0.0.1]\n")),
        (
            "provider.identity_file",
            format!("provider: {{name: ssh, identity_file: \"{attack}\"}}\nhosts: [127.0.0.1]\n"),
        ),
        ("hosts[0].user", format!("provider: ssh\nhosts: [{{node: 127.0.0.1, user: \"{attack}\"}}]\n")),
        ("hosts[0].node", format!("provider: ssh\nhosts: [{{node: \"{attack}\"}}]\n")),
        ("hosts[0].node", "provider: ssh\nhosts: [{node: \"-oProxyCommand=touch marker\"}]\n".to_owned()),
        ("provider.user", format!("provider: {{name: chameleon, user: \"{attack}\"}}\nhosts: [liqid01]\n")),
        ("provider.user", format!("provider: {{name: lambda, user: \"{attack}\"}}\nhosts: [gpu_1x_a10]\n")),
    ];
    for (place, spec) in specs {
        env.write("cluster.yaml", &format!("name: x\nruntime: docker\n{spec}"));
        for verb in ["plan", "render", "up"] {
            let outcome = env.run(&[verb, "--yes"]);
            assert!(!env.root().join("marker").exists(), "`{verb}` ran what {place} holds");
            let _ = outcome.exits(2).is("").says(&format!("{place}: ")).says("cluster.yaml:");
        }
    }
    assert!(!env.work().join("marker").exists(), "a spec was run");
    assert_eq!(std::fs::read_dir(env.home()).unwrap().count(), 0, "a refused spec made something");
}

/// A folder does not decide which of its reader's clusters `down` means.
#[test]
fn the_spec_of_a_folder_chooses_only_the_cluster_that_came_from_it() {
    let env = TestEnv::new();
    let place = json!({"local": {"folder": env.root().join("host")}});
    env.write("mine/cluster.yaml", "name: x\n");
    env.write("theirs/cluster.yaml", "name: x\n");
    let folder = |name: &str| std::fs::canonicalize(env.work().join(name)).unwrap();
    record(&env, &place, &json!("local"), Some(folder("mine").join("cluster.yaml").display().to_string()));
    let run = |name: &str, arguments: &[&str]| {
        let output = env.command(arguments).current_dir(folder(name)).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for verb in [&["down", "--yes"][..], &["stop", "--yes"], &["status"], &["exec", "--", "true"]] {
        let (code, says) = run("theirs", verb);
        assert_eq!(code, Some(2), "{verb:?}: {says}");
        assert!(says.contains("/mine/cluster.yaml") && says.contains("-c x"), "{verb:?}: {says}");
    }
    // By a link to it, too.
    std::fs::remove_file(folder("theirs").join("cluster.yaml")).unwrap();
    std::os::unix::fs::symlink("../mine/cluster.yaml", folder("theirs").join("cluster.yaml")).unwrap();
    assert_eq!(run("theirs", &["down", "--yes"]).0, Some(2));
    assert!(env.paths().cluster(&"x".parse().unwrap()).exists());
    assert_eq!(run("mine", &["down", "--yes"]).0, Some(0));
    assert!(!env.paths().cluster(&"x".parse().unwrap()).exists());
}

/// The same under the other usual name; of both, cluster.yaml is read.
#[test]
fn a_spec_may_be_called_cluster_yml() {
    let env = TestEnv::new();
    let place = json!({"local": {"folder": env.root().join("host")}});
    for (folder, name) in [("mine", "cluster.yml"), ("theirs", "cluster.yml")] {
        env.write(&format!("{folder}/{name}"), "name: x\nruntime: dokcer\n");
    }
    let folder = |name: &str| std::fs::canonicalize(env.work().join(name)).unwrap();
    let run = |name: &str, arguments: &[&str]| {
        let output = env.command(arguments).current_dir(folder(name)).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, says) = run("mine", &["plan"]);
    assert!(code == Some(2) && says.contains("cluster.yml:2:10: runtime: `dokcer`"), "{says}");
    for (folder, name) in [("mine", "cluster.yml"), ("theirs", "cluster.yml")] {
        env.write(&format!("{folder}/{name}"), "name: x\n");
    }
    record(&env, &place, &json!("local"), Some(folder("mine").join("cluster.yml").display().to_string()));
    let (code, says) = run("theirs", &["down", "--yes"]);
    assert_eq!(code, Some(2), "{says}");
    assert!(says.contains("the cluster.yml here names `x`") && says.contains("/mine/cluster.yml"), "{says}");
    let (code, says) = run("mine", &["status"]);
    assert_eq!(code, Some(0), "{says}");
    // Another file of the folder is of the same origin.
    env.write("mine/cluster.yaml", "name: y\nruntime: dokcer\n");
    let (code, says) = run("mine", &["plan"]);
    assert!(code == Some(2) && says.contains("cluster.yaml:2:10: runtime: `dokcer`"), "{says}");
    assert!(says.contains("cluster.yaml is read, and cluster.yml beside it is not"), "{says}");
    let (_, says) = run(".", &["plan", "theirs"]);
    assert!(says.contains("name the file in it: theirs/cluster.yml"), "{says}");
    let (_, says) = run(".", &["plan", "theirs/cluster.yaml"]);
    assert!(says.contains("did you mean theirs/cluster.yml?"), "{says}");
}

const SENDS: &str = "name: x\nprovider: ssh\nruntime: docker\nhosts: [gpu1]\ncompose: [FILE]\n";

#[test]
fn a_strangers_spec_sends_none_of_your_files() {
    let env = TestEnv::new();
    let secret = "version: 1\naccounts: {lambda: {secret: hush}}\n";
    let other = "services: {mine: {image: \"x:1\", environment: {PASSWORD: hush}}}\n";
    std::fs::create_dir_all(env.home().join(".config/gpucl")).unwrap();
    std::fs::write(env.home().join(".config/gpucl/credentials.yaml"), secret).unwrap();
    std::fs::write(env.home().join("compose.yaml"), other).unwrap();
    env.write("kept.yaml", secret);
    std::os::unix::fs::symlink(env.home().join("compose.yaml"), env.work().join("link.yaml")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", env.work().join("zero.yaml")).unwrap();
    let outside = "outside the spec's folder";
    for (file, why) in [
        ("../home/.config/gpucl/credentials.yaml", outside),
        ("../home/compose.yaml", outside),
        ("link.yaml", outside),
        ("zero.yaml", outside),
        ("kept.yaml", "compose has no key `accounts`"),
    ] {
        env.write("cluster.yaml", &SENDS.replace("FILE", file));
        for verb in ["plan", "render", "up"] {
            let outcome = env.run(&[verb, "--yes"]).exits(2).is("").says("compose[0]").says(why);
            assert!(!outcome.stderr.contains("hush"), "{outcome:?}");
        }
        assert!(!env.work().join("rendered").exists(), "{file} was rendered");
    }
    // These are never sent, not even with permission.
    for (file, allowed, why) in [
        ("../home/.config/gpucl/credentials.yaml", "../home", "compose has no key `accounts`"),
        ("zero.yaml", "/dev", "only regular files are read"),
    ] {
        env.write("cluster.yaml", &SENDS.replace("FILE", file));
        let _ = env.run(&["render", "--allow-path", allowed]).exits(2).says(why);
    }
}

#[test]
fn a_person_may_let_a_spec_send_from_another_folder() {
    let env = TestEnv::new();
    std::fs::create_dir(env.home().join("lab")).unwrap();
    std::fs::write(env.home().join("lab/more.yaml"), "services: {more: {image: \"x:1\"}}\n").unwrap();
    env.write("cluster.yaml", &SENDS.replace("FILE", "../home/lab/more.yaml"));
    let _ = env.run(&["render"]).exits(2).says("--allow-path $TEST/home/lab");
    let _ = env.run(&["render", "--allow-path", "nowhere"]).exits(2).says("--allow-path takes an existing folder");
    let _ = env
        .run(&["render", "--allow-path", "../home/lab", "--allow-path", "."])
        .exits(0)
        .prints("rendered/x/host-0/compose/user-0.yaml");
    let sent = std::fs::read_to_string(env.work().join("rendered/x/host-0/compose/user-0.yaml")).unwrap();
    assert!(sent.contains("more:"), "{sent}");
    // The cluster's name is found without sending what its spec names.
    let _ = env.run(&["status"]).exits(6).says("there is no cluster");
}

/// A Keystone that knows nobody; answers until the test ends.
fn keystone() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/v3", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}");
        }
    });
    address
}

#[test]
fn every_command_that_verifies_no_certificate_says_so() {
    let mut env = TestEnv::new();
    for (name, value) in [
        ("OS_AUTH_URL", keystone().as_str()),
        ("OS_APPLICATION_CREDENTIAL_ID", "id"),
        ("OS_APPLICATION_CREDENTIAL_SECRET", "secret"),
        ("OS_REGION_NAME", "Here"),
        ("OS_INSECURE", "true"),
    ] {
        env.set(name, value);
    }
    env.write("cluster.yaml", "name: x\nprovider: chameleon\nruntime: docker\nhosts: [liqid01]\n");
    for arguments in [&["plan"][..], &["up", "--yes"], &["calendar"], &["lease", "list"], &["gc"], &["plan", "--quiet"]]
    {
        let _ = env.run(arguments).says("warning: the certificate of 127.0.0.1 is not verified");
    }
    env.set("OS_INSECURE", "false");
    assert!(!env.run(&["plan"]).stderr.contains("certificate"));
}
