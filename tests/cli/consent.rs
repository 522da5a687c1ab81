//! What a spec and its folder ask for beyond an ordinary cluster: nothing of it happens before the reader has accepted.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::children::record;
use crate::support::{TestEnv, too_long_a_way};

/// A server on the loopback that counts its connections.
struct Server {
    port: u16,
    connections: Arc<AtomicUsize>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self { port: listener.local_addr().unwrap().port(), connections: Arc::default() };
        let connections = server.connections.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                connections.fetch_add(1, Ordering::SeqCst);
                let _ = stream.set_read_timeout(Some(std::time::Duration::from_secs(2)));
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}");
            }
        });
        server
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// A hostile kubeconfig: it logs in by a program, at this server.
fn kubeconfig(env: &TestEnv, server: &Server, user: &str) -> String {
    let marker = env.root().join("marker");
    let user = user.replace("MARKER", &marker.display().to_string());
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: s, cluster: {{server: 'http://127.0.0.1:{}'}}}}]\n\
         contexts: [{{name: c, context: {{cluster: s, user: u}}}}]\nusers: [{{name: u, user: {user}}}]\n",
        server.port
    )
}

const PLUGIN: &str = "{exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: sh, \
                      args: [-c, 'touch MARKER; echo {}']}}";
const IN_FOLDER: &str = "name: x\nprovider: {name: kubernetes, kubeconfig: kube.yaml}\n";

/// The digest that `plan` shows for `--accept`.
fn digest(env: &TestEnv) -> String {
    let listed = env.run(&["plan", "--output", "json"]).json();
    listed.iter().find(|line| line["type"] == "asks").unwrap()["accept"].as_str().unwrap().to_owned()
}

#[test]
fn a_kubeconfig_of_the_folder_runs_and_contacts_nothing_before_it_is_accepted() {
    let env = TestEnv::new();
    let server = Server::start();
    std::fs::write(env.home().join("token"), "one line of the home\n").unwrap();
    let token = format!("{{tokenFile: {}}}", env.home().join("token").display());
    let marker = env.root().join("marker");
    for user in [PLUGIN, token.as_str(), "{tokenFile: /dev/zero}"] {
        env.write("kube.yaml", &kubeconfig(&env, &server, user));
        for spec in [
            IN_FOLDER.to_owned(),
            IN_FOLDER.replace("kube.yaml", "./deep/../kube.yaml"),
            IN_FOLDER.replace("kube.yaml", &env.work().join("kube.yaml").display().to_string()),
        ] {
            std::fs::create_dir_all(env.work().join("deep")).unwrap();
            env.write("cluster.yaml", &spec);
            let _ = env.run(&["plan"]).exits(0).prints("runs on this machine:\n    what $TEST/work/kube.yaml says");
            let _ = env.run(&["plan", "--output", "json"]).exits(0).prints("\"before_plan\":true");
            for verb in ["up", "render"] {
                let _ = env.run(&[verb, "--yes"]).exits(2).is("").says("kube.yaml says").says("--accept");
            }
            let _ = env.run(&["run", "--yes", "--", "true"]).exits(2).says("kube.yaml says");
            assert_eq!((server.connections(), marker.exists()), (0, false), "{user}\n{spec}");
        }
    }
    // What is accepted is done, and asked again when it has changed.
    env.write("cluster.yaml", IN_FOLDER);
    env.write("kube.yaml", &kubeconfig(&env, &server, PLUGIN));
    let accepted = digest(&env);
    let _ = env.run(&["plan", "--accept", &accepted]);
    assert!(marker.exists(), "the program that was accepted");
    std::fs::remove_file(&marker).unwrap();
    let _ = env.run(&["plan"]).exits(0).prints("to accept it");
    assert!(!marker.exists(), "`plan` remembers nothing");
    env.accept("cluster.yaml");
    let _ = env.run(&["plan"]);
    assert!(marker.exists());
    std::fs::remove_file(&marker).unwrap();
    env.write("kube.yaml", &(kubeconfig(&env, &server, PLUGIN) + "# changed\n"));
    let _ = env.run(&["up", "--yes"]).exits(2).says("kube.yaml says");
    let _ = env.run(&["up", "--accept", &accepted]).exits(2).says("is not the one that `--accept` names");
    assert!(!marker.exists());
}

#[test]
fn a_kubeconfig_that_is_no_file_is_refused_at_once() {
    let env = TestEnv::new();
    assert!(std::process::Command::new("mkfifo").arg(env.work().join("pipe")).status().unwrap().success());
    for file in ["/dev/zero", "pipe"] {
        env.write("cluster.yaml", &IN_FOLDER.replace("kube.yaml", file));
        let begin = std::time::Instant::now();
        let _ = env.run(&["plan"]).exits(2).says("only regular files are read");
        assert!(begin.elapsed().as_secs() < 20, "it was read");
    }
    // `ssh` would wait for it.
    env.write("cluster.yaml", "name: x\nprovider: {name: ssh, identity_file: pipe}\nhosts: [127.0.0.1]\n");
    let _ = env.run(&["plan"]).exits(2).says("only regular files are read");
}

#[test]
fn servers_that_only_the_spec_names_are_not_contacted() {
    let mut env = TestEnv::new();
    env.set("LAMBDA_API_KEY", "secret_of_the_reader");
    let server = Server::start();
    for (spec, says) in [
        (format!("files: [{{git: 'https://127.0.0.1:{}/a.git', to: a}}]\n", server.port), "by git, for"),
        (format!("files: [{{git: 'ssh://127.0.0.1:{}/a.git', to: a}}]\n", server.port), "by git, for"),
        (
            format!(
                "provider: {{name: lambda, endpoint: 'http://127.0.0.1:{}'}}\nruntime: docker\nhosts: [gpu_1x_a10]\n",
                server.port
            ),
            "in place of Lambda's own address",
        ),
    ] {
        env.write("cluster.yaml", &format!("name: x\n{spec}"));
        let _ = env.run(&["plan"]).exits(0).prints("contacts, as you:").prints(says);
        let _ = env.run(&["up", "--yes"]).exits(2).says(says);
        assert_eq!(server.connections(), 0, "{spec}");
    }
    // The key of the environment is for Lambda itself: another address wants a login of its own.
    let _ = env.run(&["up", "--accept", &digest(&env)]).exits(2).says("there is no API key");
    assert_eq!(server.connections(), 0);
}

#[test]
fn files_of_the_home_do_not_leave_it_at_plan() {
    let mut env = TestEnv::new();
    let server = Server::start();
    // The kubeconfig is the reader's own; the files are too.
    std::fs::create_dir(env.home().join(".kube")).unwrap();
    std::fs::write(env.home().join(".kube/config"), kubeconfig(&env, &server, "{token: mine}")).unwrap();
    for name in [".netrc", ".git-credentials"] {
        std::fs::write(env.home().join(name), "hush").unwrap();
    }
    for path in [".", ".netrc", ".git-credentials"] {
        let spec = format!("name: x\nprovider: kubernetes\nfiles: [{{path: '{path}', to: a}}]\n");
        std::fs::write(env.home().join("cluster.yaml"), spec).unwrap();
        let file = env.home().join("cluster.yaml").display().to_string();
        let _ = env.run(&["plan", &file]).exits(0).prints("sends from this machine");
        let _ = env.run(&["up", "--yes", &file]).exits(2).says("sends from this machine");
        assert_eq!(server.connections(), 0, "{path}");
    }
    env.set("GPUCL_ASK_ABOVE", "a lot");
    let _ = env.run(&["up", "--yes"]);
}

#[test]
fn commands_for_this_machine_are_not_run() {
    let env = TestEnv::new();
    let marker = env.root().join("marker");
    let touch = format!("touch {}", marker.display());
    for more in [
        format!("setup: {{commands: ['{touch}']}}\n"),
        format!("data: [{{name: d, from: {{command: '{touch}'}}, check: 'true'}}]\n"),
        format!(
            "data: [{{name: d, from: {{url: 'https://127.0.0.1:1/x', sha256: '{}'}}, check: '{touch}'}}]\n",
            "0".repeat(64)
        ),
    ] {
        env.write("cluster.yaml", &format!("name: x\n{more}"));
        let _ = env
            .run(&["plan"])
            .exits(0)
            .prints("runs on this machine:")
            .prints(&touch.replace(env.root().to_str().unwrap(), "$TEST"));
        for verb in ["up", "run"] {
            let arguments: &[&str] = if verb == "up" { &["up", "--yes"] } else { &["run", "--yes", "--", "true"] };
            let _ = env.run(arguments).exits(2).says("runs on this machine");
        }
        assert!(!marker.exists(), "{more}");
    }
    // On hosts that are reached by SSH they are what a cluster is for.
    env.write("cluster.yaml", "name: x\nprovider: ssh\nhosts: [host.example.org]\nsetup: {commands: ['true']}\n");
    assert!(!env.run(&["render"]).exits(0).stdout.contains("asks for"));
}

#[test]
fn files_in_the_working_folder_replace_parts_of_gpucl_only_once_they_are_accepted() {
    let env = TestEnv::new();
    let marker = env.root().join("marker");
    let playbook = include_str!("../../playbooks/ray-native.yaml");
    env.write("cluster.yaml", "name: x\n");
    let hostile = playbook.replacen("    run: |\n", &format!("    run: |\n      touch {}\n", marker.display()), 2);
    assert_ne!(hostile, playbook);
    env.write(".gpucl/playbooks/ray-native.yaml", &hostile);
    let named = "replaces parts of gpucl: by playbooks/ray-native.yaml (./.gpucl)";
    let _ = env.run(&["plan"]).exits(0).prints("replaces parts of gpucl:\n    by playbooks/ray-native.yaml (./.gpucl)");
    let _ = env.run(&["up", "--yes"]).exits(2).says(named);
    assert!(!marker.exists());
    // Rendered files are only looked at, and a folder that the user names is the user's.
    let _ = env.run(&["render"]).exits(0);
    let _ = env.run(&["plan", "--accept", &digest(&env)]).exits(0).prints("host-0, prepare");
    std::fs::rename(env.work().join(".gpucl"), env.work().join("own")).unwrap();
    assert!(!env.run(&["plan", "--data-dir", "own"]).exits(0).stdout.contains("asks for"));
}

#[test]
fn compose_files_and_platforms_are_named_too() {
    let env = TestEnv::new();
    let head = "services: {head: {privileged: true, volumes: ['/:/host', '/var/run/docker.sock:/d.sock']}}\n";
    env.write("more.yaml", head);
    env.write(
        "cluster.yaml",
        "name: x\nprovider: ssh\nruntime: docker\nhosts: [host.example.org]\ncompose: [more.yaml]\n",
    );
    let refused = env.run(&["up", "--yes"]).exits(2);
    let _ = refused.says("more.yaml, services.head.privileged").says("/:/host").says("docker.sock");
    // Rented machines go with the cluster: what happens inside of them is the cluster's own.
    env.write(
        "cluster.yaml",
        "name: x\nprovider: lambda\nruntime: docker\nhosts: [gpu_1x_a10]\ncompose: [more.yaml]\n",
    );
    assert!(!env.run(&["plan"]).stdout.contains("asks for"));
    let pods = "{secrets: [db], service_account: admin, mounts: [{path: /a, secret: tls}, {path: /b, claim: data}]}";
    env.write(
        "cluster.yaml",
        &format!("name: x\nprovider: {{name: kubernetes, network_policy: false, pods: {pods}}}\n"),
    );
    let refused = env.run(&["up", "--yes"]).exits(2);
    for place in ["pods.secrets", "service_account", "mounts[0].secret", "mounts[1].claim", "network_policy"] {
        assert!(refused.stderr.contains(place), "{place}: {}", refused.stderr);
    }
}

/// Programs are started in no folder of the reader's: what a spec names relatively is in the spec's folder.
#[test]
fn keys_and_logins_are_found_from_the_specs_folder() {
    let env = TestEnv::new();
    for (spec, at) in [
        ("provider: {name: ssh, identity_file: keys/id}\nhosts: [h]\n", "/provider/identity_file"),
        ("provider: ssh\nhosts: [{node: h, identity_file: keys/id}]\n", "/hosts/0/identity_file"),
        ("provider: {name: slurm, host: h, identity_file: keys/id}\n", "/provider/identity_file"),
        ("provider: {name: kubernetes, kubeconfig: keys/id}\n", "/provider/kubeconfig"),
    ] {
        for (named, whole) in [
            ("keys/id", "deep/keys/id"),
            ("/keys/id", "/keys/id"),
            ("~/keys/id", "~/keys/id"),
            ("~//keys/id", "~//keys/id"),
        ] {
            let path = env.write("deep/cluster.yaml", &format!("name: x\n{}", spec.replace("keys/id", named)));
            let mut loaded =
                gpucl::spec::load(&path, gpucl::spec::Allowed::default(), &gpucl::providers::find).unwrap();
            let folder = path.parent().unwrap();
            gpucl::spec::with_whole_paths(&mut loaded, &env.home(), folder, &gpucl::providers::find).unwrap();
            let spec = serde_json::to_value(&loaded.spec).unwrap();
            // `ssh` finds the home by itself.
            let whole = match named {
                "keys/id" => env.work().join(whole).display().to_string(),
                _ if named.starts_with('~') && at.ends_with("kubeconfig") => {
                    env.home().join("keys/id").display().to_string()
                }
                _ => whole.to_owned(),
            };
            assert_eq!(spec.pointer(at).and_then(|path| path.as_str()), Some(whole.as_str()), "{at} {named}");
        }
    }
}

/// What was accepted is the program too, where it lies in the folder: a later pull does not change what runs.
#[test]
fn an_accepted_login_is_asked_again_when_its_program_changes() {
    let env = TestEnv::new();
    let server = Server::start();
    let marker = env.root().join("marker");
    env.write("cluster.yaml", IN_FOLDER);
    let harmless = "#!/bin/sh\necho '{}'\n";
    for (user, program) in [
        (
            "{exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: ./login.sh}}",
            "login.sh",
        ),
        (
            "{exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: sh, args: [FOLDER/login.sh]}}",
            "login.sh",
        ),
    ] {
        let user = &user.replace("FOLDER", &env.work().display().to_string());
        env.write("kube.yaml", &kubeconfig(&env, &server, user));
        let path = env.write(program, harmless);
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let listed = env.run(&["plan"]).exits(0).prints("it runs ").prints("the server http://127.0.0.1:");
        assert!(listed.stdout.contains("to accept it"), "{listed:?}");
        env.accept("cluster.yaml");
        env.write(program, &format!("#!/bin/sh\ntouch {}\necho '{{}}'\n", marker.display()));
        let _ = env.run(&["plan"]).exits(0).prints("to accept it");
        let _ = env.run(&["up", "--yes"]).exits(2).says("to log in");
        assert!(!marker.exists(), "{user}");
    }
    env.write("kube.yaml", &kubeconfig(&env, &server, "{tokenFile: /home/ada/key}"));
    let _ = env.run(&["plan"]).exits(0).prints("it sends /home/ada/key");
}

/// By an `exec` of the folder, however it is written: either it is named, or the file is refused.
#[test]
fn no_spelling_hides_the_program_of_a_login() {
    let env = TestEnv::new();
    let server = Server::start();
    let marker = env.root().join("marker");
    let program = env.write("login.sh", &format!("#!/bin/sh\ntouch {}\necho '{{}}'\n", marker.display()));
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let exec = "apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never";
    env.write("cluster.yaml", IN_FOLDER);
    for user in [
        format!("{{exec: {{!!binary Y29tbWFuZA==: ./login.sh, {exec}}}}}"),
        format!("{{exec: {{command: !!binary Li9sb2dpbi5zaA==, {exec}}}}}"),
        format!("{{n: a\u{2028}#, exec: {{command: ./login.sh, {exec}}}\n , z: 1}}"),
        format!("{{x: !foo {{a: 1}}, exec: {{command: ./login.sh, {exec}}}}}"),
        format!("{{exec: {{command: './l\u{feff}ogin.sh', {exec}}}}}"),
    ] {
        env.write("kube.yaml", &kubeconfig(&env, &server, &user));
        let listed = env.run(&["plan"]);
        assert!(listed.code == Some(2) || listed.stdout.contains("it runs "), "{user:?}: {listed:?}");
        assert!(!marker.exists(), "{user:?}");
    }
    // Its program would be started in the working folder, in the reader's own file as well.
    let old = kubeconfig(&env, &server, "{auth-provider: {name: gcp, config: {cmd-path: sh, cmd-args: ./login.sh}}}");
    env.write("kube.yaml", &old);
    let _ = env.run(&["plan"]).exits(2).says("an `auth-provider` that runs a program");
    std::fs::create_dir_all(env.home().join(".kube")).unwrap();
    std::fs::write(env.home().join(".kube/config"), old).unwrap();
    env.write("cluster.yaml", "name: x\nprovider: kubernetes\n");
    let _ = env.run(&["plan"]).exits(2).says("an `auth-provider` that runs a program");
    assert_eq!((server.connections(), marker.exists()), (0, false));
}

/// The file that is judged is the file that is opened, by this command and by later ones in other folders.
#[test]
fn a_login_is_judged_and_opened_by_one_path() {
    let env = TestEnv::new();
    let server = Server::start();
    let marker = env.root().join("marker");
    // By its bare name, with a program beside it.
    let login = "{exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: ./login.sh}}";
    env.write("kube.yaml", &kubeconfig(&env, &server, login));
    let program = env.write("login.sh", &format!("#!/bin/sh\ntouch {}\necho '{{}}'\n", marker.display()));
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    env.write("cluster.yaml", IN_FOLDER);
    let _ = env.run(&["plan", "cluster.yaml", "--accept", &digest(&env)]);
    assert!(marker.exists(), "the program beside the kubeconfig");
    std::fs::remove_file(&marker).unwrap();
    // With a second slash after the home.
    env.write("cluster.yaml", &IN_FOLDER.replace("kube.yaml", "~//deep/kube.yaml"));
    std::fs::create_dir_all(env.home().join("deep")).unwrap();
    std::fs::write(env.home().join("deep/kube.yaml"), kubeconfig(&env, &server, PLUGIN)).unwrap();
    let _ = env.run(&["plan"]).exits(0).prints("what $TEST/home/deep/kube.yaml says, to log in: it runs sh");
    let _ = std::fs::remove_file(env.home().join("deep/kube.yaml"));
    let _ = env.run(&["plan"]).exits(2).says("there is no such file");
    // A link to the reader's own: paths in it would be relative to the folder with the link.
    std::fs::create_dir_all(env.home().join(".kube")).unwrap();
    std::fs::write(env.home().join(".kube/config"), kubeconfig(&env, &server, login)).unwrap();
    std::fs::remove_file(env.work().join("kube.yaml")).unwrap();
    std::os::unix::fs::symlink(env.home().join(".kube/config"), env.work().join("kube.yaml")).unwrap();
    env.write("cluster.yaml", IN_FOLDER);
    let _ = env.run(&["plan"]).exits(0).prints("it runs $TEST/work/./login.sh");
    assert!(!marker.exists());
    // A state of an older version, which has the path as it was written.
    let place = serde_json::json!({"local": {"folder": env.root().join("host")}});
    let provider = serde_json::json!({"name": "kubernetes", "kubeconfig": "kube.yaml"});
    record(&env, &place, &provider, None);
    for verb in [&["status", "-c", "x"][..], &["down", "--yes", "-c", "x"]] {
        let _ = env.run(verb);
        assert!(!marker.exists(), "{verb:?}");
    }
}

/// The system opens a path by links that nobody can spell out, as it is longer than 4096 bytes.
#[test]
fn a_path_that_cannot_be_followed_is_not_the_one_that_it_seems_to_be() {
    let env = TestEnv::new();
    let server = Server::start();
    let marker = env.root().join("marker");
    std::fs::create_dir_all(env.home().join(".kube")).unwrap();
    let far = too_long_a_way(&env.work(), "kc.yaml", &kubeconfig(&env, &server, PLUGIN));
    assert!(std::fs::read(env.work().join(&far)).is_ok(), "the system opens it");
    for kubeconfig in ["~/.kube/../../work/s1/s2/kc.yaml", "~/.kube/../../../../../../proc/self/cwd/s1/s2/kc.yaml"] {
        env.write("cluster.yaml", &IN_FOLDER.replace("kube.yaml", kubeconfig));
        let _ = env.run(&["plan"]).exits(2).says("kc.yaml");
        assert_eq!((server.connections(), marker.exists()), (0, false), "{kubeconfig}");
    }
    env.write("cluster.yaml", "name: x\nprovider: ssh\nhosts: [h]\nfiles: [{path: s1/s2, to: a}]\n");
    let _ = env.run(&["plan"]).exits(2).says("files[0].path");
    // By a process whose folder is gone: its link leads nowhere in words, and somewhere for the system.
    env.write("kc.yaml", &kubeconfig(&env, &server, PLUGIN));
    let gone = env.root().join("gone");
    std::fs::create_dir(&gone).unwrap();
    let mut sleeper = std::process::Command::new("sleep").arg("300").current_dir(&gone).spawn().unwrap();
    std::fs::remove_dir(&gone).unwrap();
    let up = "../".repeat(24);
    let way = format!("~/.kube/{up}proc/{}/cwd/{up}proc/self/cwd/kc.yaml", sleeper.id());
    env.write("cluster.yaml", &IN_FOLDER.replace("kube.yaml", &way));
    let planned = env.run(&["plan"]);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert!(planned.code == Some(2) || planned.stdout.contains("it runs sh"), "{planned:?}");
    assert_eq!((server.connections(), marker.exists()), (0, false), "{planned:?}");
}

/// A list of any length shows all that is asked, and is not asked about in passing.
#[test]
fn nothing_of_a_long_list_is_left_out() {
    let env = TestEnv::new();
    let services: String =
        (0..150).map(|one| format!("  s{one}: {{image: x, ports: ['{}:80']}}\n", 8000 + one)).collect();
    env.write("more.yaml", &format!("services:\n{services}"));
    env.write("cluster.yaml", "name: x\nprovider: ssh\nruntime: docker\nhosts: [h]\ncompose: [more.yaml]\n");
    std::fs::create_dir_all(env.work().join(".gpucl/playbooks")).unwrap();
    env.write(".gpucl/playbooks/base.yaml", include_str!("../../playbooks/base.yaml"));
    let listed = env.run(&["plan"]).exits(0).prints("./.gpucl").prints("services.s149");
    assert!(!listed.stdout.contains("more, which"), "{listed:?}");
    let long = format!("echo {}; echo hidden; echo {}", "a".repeat(3000), "b".repeat(3000));
    env.write("needs.txt", "torch\n--find-links http://example.org/wheels\n");
    env.write("cluster.yaml", "name: x\nsetup: {requirements: needs.txt}\n");
    let _ = env.run(&["plan"]).exits(0).prints("needs.txt (torch, --find-links http://example.org/wheels)");
    env.write("cluster.yaml", &format!("name: x\nsetup: {{commands: ['{long}']}}\n"));
    let _ = env.run(&["plan"]).exits(0).prints("echo hidden");
    let _ = env.run(&["plan", "--output", "json"]).exits(0).prints("echo hidden");
}

/// A `clouds.yaml` of the working folder would name a stranger's address for the reader's secret.
#[test]
fn a_clouds_yaml_of_the_working_folder_is_not_read() {
    let env = TestEnv::new();
    let server = Server::start();
    let secret = "clouds: {uc: {auth: {application_credential_secret: hush}}}\n";
    let theirs = format!(
        "clouds: {{uc: {{region_name: \"CHI@UC\", auth_type: v3applicationcredential, auth: {{auth_url: \
         \"http://127.0.0.1:{}/v3\", application_credential_id: a, application_credential_secret: own}}}}}}\n",
        server.port
    );
    std::fs::create_dir_all(env.home().join(".config/openstack")).unwrap();
    std::fs::write(env.home().join(".config/openstack/secure.yaml"), secret).unwrap();
    std::os::unix::fs::symlink("../home/.config/openstack/secure.yaml", env.work().join("secure.yaml")).unwrap();
    env.write("cluster.yaml", "name: c\nruntime: docker\nprovider: chameleon\nhosts: [{type: gpu_mi100}]\n");
    for name in ["clouds.yaml", "clouds.yml", "clouds.json"] {
        env.write(name, &theirs);
        for arguments in [&["plan"][..], &["up", "--yes"], &["offers"], &["gc"], &["calendar"], &["lease", "list"]] {
            env.run(arguments);
            assert_eq!(server.connections(), 0, "{name}: {arguments:?}");
        }
        std::fs::remove_file(env.work().join(name)).unwrap();
    }
    // What the user names is read.
    let mut env = env;
    env.write("own.yaml", &theirs);
    env.set("OS_CLIENT_CONFIG_FILE", "own.yaml");
    env.run(&["offers"]);
    assert!(server.connections() > 0);
}
