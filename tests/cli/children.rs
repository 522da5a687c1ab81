//! What the programs that gpucl starts here take from the working folder: nothing.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use gpucl::name::{ClusterName, Scope};
use gpucl::provider::HostPlace;
use gpucl::state::{HostNotes, ItemKind, Notes, Record, Store};
use serde_json::json;

use crate::support::TestEnv;

/// The commits of this repository are asked for at a port where nothing listens.
const ASKS: &str = "name: x\nprovider: local\nfiles: [{git: \"ssh://127.0.0.1:1/x\", to: a}]\n";

// They need git, which the README's machine has not.
#[test]
#[ignore = "testbed"]
fn a_plan_obeys_no_repository_in_the_working_folder() {
    // The repository itself as plain files, as the folder `.git`, and as a file that leads to one.
    for place in [".", ".git", "below"] {
        let env = TestEnv::new();
        let marker = env.root().join("marker");
        let touch = format!("touch {}", marker.display());
        let config = format!(
            "[core]\nrepositoryformatversion = 0\nsshCommand = \"{touch}; false\"\nfsmonitor = \"{touch}\"\n\
             gitProxy = \"{touch}\"\naskPass = \"{touch}\"\n[credential]\nhelper = \"!{touch}\"\n\
             [protocol \"ext\"]\nallow = always\n[url \"ext::{touch} \"]\ninsteadOf = ssh://127.0.0.1\n"
        );
        let ssh = format!("[core]\nrepositoryformatversion = 0\nsshCommand = \"{touch}; false\"\n");
        for config in [config, ssh] {
            env.write(&format!("{place}/config"), &config);
            env.write(&format!("{place}/HEAD"), "ref: refs/heads/main\n");
            env.write(&format!("{place}/objects/none"), "");
            env.write(&format!("{place}/refs/none"), "");
            if place == "below" {
                env.write(".git", "gitdir: below\n");
            }
            env.write("cluster.yaml", ASKS);
            // Its server is asked only once that was accepted.
            env.accept("cluster.yaml");
            let outcome = env.run(&["plan"]).says("of ssh://127.0.0.1:1/x");
            assert!(!marker.exists(), "git obeyed {place}/config: {outcome:?}");
        }
    }
}

#[test]
#[ignore = "testbed"]
fn the_users_own_settings_of_git_go_on_to_work() {
    let mut env = TestEnv::new();
    let marker = env.root().join("marker");
    std::fs::write(
        env.home().join(".gitconfig"),
        format!("[core]\nsshCommand = \"touch {}; false\"\n", marker.display()),
    )
    .unwrap();
    env.write("cluster.yaml", ASKS);
    env.accept("cluster.yaml");
    let _ = env.run(&["plan"]).says("of ssh://127.0.0.1:1/x");
    assert!(marker.exists(), "the configuration in the home was not read");
    std::fs::remove_file(&marker).unwrap();
    env.set("GIT_SSH_COMMAND", &format!("touch {} ; false", marker.display()));
    std::fs::remove_file(env.home().join(".gitconfig")).unwrap();
    let _ = env.run(&["plan"]).says("of ssh://127.0.0.1:1/x");
    assert!(marker.exists(), "the variable was not obeyed");
}

/// Programs of these names that note the folder that they are started in, and then are what they seem.
fn noting(env: &mut TestEnv, names: &[&str]) -> PathBuf {
    let (bin, notes) = (env.root().join("bin"), env.root().join("notes"));
    let path = std::env::var("PATH").unwrap();
    std::fs::create_dir(&bin).unwrap();
    for name in names {
        let text = format!(
            "#!/bin/sh\necho \"{name} $(pwd -P)\" >>'{}'\nPATH='{path}'\n\
             case \"{name} $*\" in \"ssh -E \"*) echo 'Permission denied (publickey).' >\"$2\"; exit 255 ;; esac\n\
             command -v {name} >/dev/null || exit 1\nexec {name} \"$@\"\n",
            notes.display()
        );
        std::fs::write(bin.join(name), text).unwrap();
        std::fs::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    env.set("PATH", &format!("{}:{path}", bin.display()));
    notes
}

#[test]
fn no_program_starts_in_the_working_folder() {
    let mut env = TestEnv::new();
    let programs = ["git", "ssh", "ssh-keygen", "python3", "uv", "nvidia-smi", "docker", "awk", "squeue", "sinfo"];
    let notes = noting(&mut env, &programs);
    let remote = "name: y\nprovider: ssh\nruntime: docker\nhosts: [{node: 127.0.0.1, port: 1}]\n";
    for spec in [ASKS, "name: x\nprovider: local\n", remote, "name: x\nprovider: slurm\nhosts: [any]\n"] {
        env.write("cluster.yaml", spec);
        env.accept("cluster.yaml");
        for verb in ["plan", "up"] {
            // What is to be installed is not needed here.
            if verb == "up" && spec == "name: x\nprovider: local\n" {
                continue;
            }
            env.run(&[verb, "--yes"]);
        }
    }
    env.run(&["doctor"]);
    let noted = std::fs::read_to_string(&notes).unwrap();
    for name in ["git", "ssh", "python3", "uv", "awk"] {
        assert!(noted.lines().any(|line| line.starts_with(&format!("{name} "))), "{name} was not run: {noted}");
    }
    let here = std::fs::canonicalize(env.work()).unwrap().display().to_string();
    let wrong: Vec<&str> = noted.lines().filter(|line| line.contains(&here)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn python_imports_nothing_of_the_working_folder() {
    let env = TestEnv::new();
    let marker = env.root().join("marker");
    let text = format!("open({:?}, 'w').write(__file__)\n", marker.display().to_string());
    for module in ["random", "venv", "ensurepip", "sitecustomize", "usercustomize", "json", "os", "pip/__main__"] {
        env.write(&format!("{module}.py"), &text);
    }
    env.write("pip/__init__.py", &text);
    env.write("uv.toml", "not toml");
    env.write("pyproject.toml", "not toml");
    env.write(".python-version", "9.9");
    env.write("cluster.yaml", "name: x\nprovider: local\n");
    for verb in ["doctor", "plan", "status"] {
        env.run(&[verb]);
        assert!(!marker.exists(), "{verb}: {}", std::fs::read_to_string(&marker).unwrap());
    }
}

#[test]
fn the_users_own_command_sees_the_folder_in_which_it_was_typed() {
    let env = TestEnv::new();
    let folder = env.root().join("host");
    std::fs::create_dir(&folder).unwrap();
    record(&env, &json!({"local": {"folder": folder}}), &json!("local"), None);
    let _ = env.run(&["exec", "--", "pwd", "-P"]).exits(0).is("$TEST/work\n");
}

/// Records a cluster with one host at this place, brought up from this file.
pub(super) fn record(env: &TestEnv, place: &serde_json::Value, provider: &serde_json::Value, path: Option<String>) {
    let place: HostPlace = serde_json::from_value(place.clone()).unwrap();
    let spec = json!({"name": "x", "provider": provider});
    let (cluster, key): (ClusterName, gpucl::name::Key) = ("x".parse().unwrap(), gpucl::name::Key::host(0));
    let scope = Scope { owner: "abcd1234".parse().unwrap(), cluster };
    let mut store = Store::create(&env.paths(), &scope, jiff::Timestamp::now()).unwrap();
    for record in [
        Record::SpecTaken { spec: serde_json::from_value(spec).unwrap(), path },
        Record::Requested { key: key.clone(), kind: ItemKind::Resource("host".to_owned()), digest: "1".to_owned() },
        Record::Exists { key: key.clone(), id: "1".to_owned() },
        Record::Noted { key, notes: Notes::Host(Box::new(HostNotes { place: Some(place), ..HostNotes::default() })) },
    ] {
        store.write(record).unwrap();
    }
    store.compact().unwrap();
}

/// `ssh` does not look at whose the socket of a shared connection is: a command and its descriptors go to whoever listens.
#[test]
fn a_shell_on_a_host_uses_no_socket_in_a_folder_of_somebody_else() {
    let relay = json!({"login": {"node": "127.0.0.1", "port": 1}, "command": ["true"]});
    let place = json!({"ssh": {"target": {"node": "n1", "relay": relay, "host_key": "ssh-ed25519 AAAA"}}});
    let runtime = |env: &TestEnv| env.root().join("run/gpucl");
    let run = |env: &TestEnv, says: &str| {
        record(env, &place, &json!("slurm"), None);
        let _ = env.run(&["ssh", "--", "true"]).exits(1).says(says).says("set XDG_RUNTIME_DIR to a short folder");
    };
    // Others may write to it.
    let env = TestEnv::new();
    std::fs::create_dir_all(runtime(&env)).unwrap();
    std::fs::set_permissions(runtime(&env), std::fs::Permissions::from_mode(0o777)).unwrap();
    run(&env, "other users can access it (mode 0777)");
    // Somebody's link, though it leads to a folder of this user.
    let env = TestEnv::new();
    std::fs::create_dir_all(env.root().join("run")).unwrap();
    std::os::unix::fs::symlink(env.home(), runtime(&env)).unwrap();
    run(&env, "it is a symlink or not a folder");
    // Another user's; only root can make one.
    let env = TestEnv::new();
    std::fs::create_dir_all(runtime(&env)).unwrap();
    std::fs::set_permissions(runtime(&env), std::fs::Permissions::from_mode(0o700)).unwrap();
    if std::os::unix::fs::chown(runtime(&env), Some(65534), Some(65534)).is_ok() {
        run(&env, "it belongs to user 65534, not to you");
    }
}
