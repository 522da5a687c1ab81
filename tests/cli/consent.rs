//! What a spec and its folder ask for beyond an ordinary cluster: nothing of it happens before the reader has accepted.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::TestEnv;

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
        for (named, whole) in [("keys/id", "deep/keys/id"), ("/keys/id", "/keys/id"), ("~/keys/id", "~/keys/id")] {
            let path = env.write("deep/cluster.yaml", &format!("name: x\n{}", spec.replace("keys/id", named)));
            let mut loaded =
                gpucl::spec::load(&path, gpucl::spec::Allowed::default(), &gpucl::providers::find).unwrap();
            gpucl::spec::with_whole_paths(&mut loaded, path.parent().unwrap(), &gpucl::providers::find);
            let spec = serde_json::to_value(&loaded.spec).unwrap();
            let whole =
                if named == "keys/id" { env.work().join(whole).display().to_string() } else { whole.to_owned() };
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
            "{exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: sh, args: [login.sh]}}",
            "login.sh",
        ),
        ("{auth-provider: {name: gcp, config: {cmd-path: ./gcp.sh, expiry-key: x, token-key: y}}}", "gcp.sh"),
    ] {
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
