use super::*;

/// The places of what is beyond the ordinary.
fn places(text: &str) -> Vec<String> {
    beyond(text).unwrap_or_else(|why| panic!("{why}: {text}")).into_iter().map(|found| found.place).collect()
}

/// Rows of one service's settings and the keys of it that are beyond the ordinary.
#[track_caller]
fn check(service: &str, rows: &[(&str, &[&str])]) {
    for (settings, expected) in rows {
        let expected: Vec<String> = expected.iter().map(|key| format!("services.{service}.{key}")).collect();
        assert_eq!(places(&format!("services:\n  {service}: {{{settings}}}\n")), expected, "{settings}");
    }
}

#[test]
fn the_reported_file_is_beyond_in_every_line() {
    let text = "services:\n  head:\n    privileged: true\n    \
                volumes: [\"/:/host\", \"/var/run/docker.sock:/var/run/docker.sock\"]\n  \
                mine:\n    image: x\n    privileged: true\n    pid: host\n";
    let found: Vec<(String, String)> = beyond(text).unwrap().into_iter().map(|one| (one.place, one.what)).collect();
    let expected = [
        ("services.head.privileged", "head: runs privileged, as root of its host"),
        ("services.head.volumes[0]", "head: has a folder or file of its host: `/:/host`"),
        (
            "services.head.volumes[1]",
            "head: has a folder or file of its host: `/var/run/docker.sock:/var/run/docker.sock`",
        ),
        ("services.mine.privileged", "mine: runs privileged, as root of its host"),
        ("services.mine.pid", "mine: sees other processes of its host"),
    ];
    assert_eq!(found, expected.map(|(place, what)| (place.to_owned(), what.to_owned())));
}

#[test]
fn an_ordinary_service_asks_for_nothing() {
    let whole = "
version: '3.8'
name: anything
x-common: &common {restart: unless-stopped, logging: {driver: json-file, options: {max-size: 5m}}}
services:
  mlflow:
    <<: *common
    image: ${IMAGE:-mlflow:2.1}
    command: [mlflow, server, --host, 0.0.0.0]
    entrypoint: sh
    environment: {AWS_ENDPOINT_URL: 'http://objectstore:9000', RAY_ADDRESS: x}
    depends_on: {db: {condition: service_healthy}}
    healthcheck: {test: [CMD, 'true'], interval: 5s}
    labels: {who: me}
    ports: ['127.0.0.1:5000:5000', '[::1]:5000:5000/tcp', '127.0.0.1::80', {target: 80, published: '81', host_ip: 127.0.0.1}]
    volumes: ['runs:/runs', 'runs:/again:ro', /cache, {type: volume, source: runs, target: /r, read_only: true}, {type: tmpfs, target: /t}]
    expose: ['5000']
    user: root
    working_dir: /x
    read_only: true
    tmpfs: [/tmp]
    init: true
    stop_grace_period: 5s
    stop_signal: SIGINT
    ulimits: {nofile: 1024}
    shm_size: 1g
    profiles: [extra]
    platform: linux/amd64
    pull_policy: missing
    hostname: tracking
    container_name: mlflow
    cap_drop: [ALL]
    security_opt: ['no-new-privileges:true']
    privileged: false
    networks: [default]
    configs: [{source: app, target: /app.conf}]
    secrets: [key]
    x-anything: [1]
    deploy: {resources: {limits: {cpus: '2', memory: 4g}, reservations: {devices: [{driver: nvidia, count: 1, capabilities: [gpu]}]}}}
  db: {image: 'postgres:17', environment: [A=b, 'C=${D}'], gpus: all, networks: {default: {aliases: [base]}, quiet: }, network_mode: }
  worker: {image: x, cap_add: [], devices: [], pid: , network_mode: none, gpus: [{count: all}]}
  head: {environment: [MLFLOW_TRACKING_URI=http://mlflow:5000], labels: [a=b], mem_limit: 8g, cpus: 4, shm_size: 4g, depends_on: [mlflow]}
  grafana: {deploy: {resources: {limits: {memory: 1g}}}, environment: {TZ: UTC}, expose: [1], logging: {driver: local}}
  jupyter:
volumes: {runs: , data: {driver: local, labels: {a: b}}}
networks: {default: {labels: {a: b}}, quiet: {internal: true, driver: bridge}}
configs: {app: {content: hello}}
secrets: {key: }
";
    assert_eq!(beyond(whole).unwrap(), []);
}

#[test]
fn a_service_of_its_own_is_asked_about_for_what_leaves_its_container() {
    check(
        "web",
        &[
            ("privileged: true", &["privileged"]),
            ("privileged: 'true'", &["privileged"]),
            ("privileged: 'false'", &["privileged"]),
            ("privileged: yes", &["privileged"]),
            ("privileged: 1", &["privileged"]),
            ("privileged: '${P}'", &["privileged"]),
            ("Privileged: true", &["Privileged"]),
            ("\"priv\\u0069leged\": true", &["privileged"]),
            ("prıvileged: true", &["\"prıvileged\""]),
            ("cap_add: [SYS_ADMIN]", &["cap_add"]),
            ("cap_add: {SYS_ADMIN: }", &["cap_add"]),
            ("cap_add: ALL", &["cap_add"]),
            ("security_opt: ['seccomp:unconfined']", &["security_opt"]),
            ("security_opt: ['no-new-privileges:true', 'apparmor=unconfined']", &["security_opt"]),
            ("security_opt: ['no-new-privileges:false']", &["security_opt"]),
            ("devices: ['/dev/mem']", &["devices"]),
            ("device_cgroup_rules: ['a *:* rwm']", &["device_cgroup_rules"]),
            ("pid: host, ipc: host, uts: host", &["pid", "ipc", "uts"]),
            ("pid: 'service:head'", &["pid"]),
            ("userns_mode: host, cgroup: host, cgroup_parent: x", &["userns_mode", "cgroup", "cgroup_parent"]),
            ("network_mode: host", &["network_mode"]),
            ("network_mode: 'container:x'", &["network_mode"]),
            ("network_mode: 'service:head'", &["network_mode"]),
            ("volumes_from: [head]", &["volumes_from"]),
            ("env_file: .env", &["env_file"]),
            ("extends: {file: x.yaml, service: y}", &["extends"]),
            ("build: .", &["build"]),
            ("sysctls: {kernel.x: 1}", &["sysctls"]),
            ("group_add: [docker]", &["group_add"]),
            ("runtime: other", &["runtime"]),
            ("credential_spec: {file: x}", &["credential_spec"]),
            ("external_links: [x], links: ['a:head']", &["external_links", "links"]),
            ("extra_hosts: ['head:10.0.0.1'], dns: 10.0.0.1", &["extra_hosts", "dns"]),
            ("post_start: [{command: x, privileged: true}]", &["post_start"]),
            ("provider: {type: sh}, use_api_socket: true", &["provider", "use_api_socket"]),
            ("develop: {watch: [{path: .}]}", &["develop"]),
            ("storage_opt: {size: 1}", &["storage_opt"]),
            ("oom_kill_disable: true", &["oom_kill_disable"]),
            ("unheard_of: 1", &["unheard_of"]),
            // Ports.
            ("ports: ['8080:80']", &["ports[0]"]),
            ("ports: [80]", &["ports[0]"]),
            ("ports: ['127.0.0.1:80:80', '0.0.0.0:80:80', '[::]:80:80']", &["ports[1]", "ports[2]"]),
            ("ports: ['${IP}:80:80', '127.0.0.1${X}:80:80']", &["ports[0]", "ports[1]"]),
            ("ports: ['localhost:80:80', '127.1:80:80', '127.0.0.1:80']", &["ports[0]", "ports[1]", "ports[2]"]),
            ("ports: [{target: 80, published: 80}]", &["ports[0]"]),
            ("ports: [{target: 80, host_ip: '${X:-127.0.0.1}'}]", &["ports[0]"]),
            ("ports: [{target: 80, host_ip: 127.0.0.1, odd: 1}]", &["ports[0].odd"]),
            ("ports: '80:80'", &["ports"]),
            // Volumes.
            ("volumes: ['/:/host']", &["volumes[0]"]),
            (
                "volumes: ['./x:/x', '../x:/x', '~/x:/x', '~:/x', '.:/x']",
                &["volumes[0]", "volumes[1]", "volumes[2]", "volumes[3]", "volumes[4]"],
            ),
            ("volumes: ['${HOME}:/x', '$HOME:/x', 'a${X}b:/x']", &["volumes[0]", "volumes[1]", "volumes[2]"]),
            ("volumes: ['c:/x:/y', 'sub/folder:/x', '\\\\.\\pipe\\x:/y']", &["volumes[0]", "volumes[1]", "volumes[2]"]),
            ("volumes: ['ｒuns:/x', ' runs:/x', 'runs']", &["volumes[0]", "volumes[1]", "volumes[2]"]),
            ("volumes: [{type: bind, source: /, target: /host}]", &["volumes[0]"]),
            ("volumes: [{type: BIND, source: data, target: /x}]", &["volumes[0]"]),
            ("volumes: [{type: volume, source: /etc, target: /x}]", &["volumes[0]"]),
            ("volumes: [{type: volume, source: '${X}', target: /x}]", &["volumes[0]"]),
            ("volumes: [{source: data, target: /x}]", &["volumes[0]"]),
            ("volumes: [{type: volume, source: data, target: /x, bind: {propagation: shared}}]", &["volumes[0].bind"]),
            ("volumes: {a: b}", &["volumes.a", "volumes"]),
            // Names by which gpucl finds what is its own.
            ("hostname: head", &["hostname"]),
            ("container_name: gpucl-abcd1234-demo-head", &["container_name"]),
            ("container_name: 'gp${X}l-y'", &["container_name"]),
            ("networks: {default: {aliases: [HEAD, web2]}}", &["networks.default.aliases[0]"]),
            ("networks: {default: {ipv4_address: 10.0.0.2}}", &["networks.default.ipv4_address"]),
            ("labels: {gpucl.tag: x}", &["labels"]),
            ("labels: [com.docker.compose.project=x]", &["labels"]),
            ("labels: ['gpucl${X}.tag=x']", &["labels"]),
            ("labels: 1", &["labels"]),
            // Logs and devices.
            ("logging: {driver: syslog, options: {syslog-address: 'tcp://10.0.0.1:1'}}", &["logging.driver"]),
            ("logging: {driver: '${D}'}", &["logging.driver"]),
            ("gpus: [{driver: cdi, device_ids: [vendor.com/x=all]}]", &["gpus[0]"]),
            (
                "deploy: {resources: {reservations: {devices: [{driver: nvidia, capabilities: [tpm]}]}}}",
                &["deploy.resources.reservations.devices[0]"],
            ),
            (
                "deploy: {resources: {reservations: {generic_resources: [1]}}}",
                &["deploy.resources.reservations.generic_resources"],
            ),
            // A tag does not hide what it is at.
            ("privileged: !override true, ports: !override ['80:80'], devices: !reset []", &["privileged", "ports[0]"]),
        ],
    );
}

#[test]
fn a_service_of_gpucls_is_given_resources_and_variables_only() {
    let long = "user: root, read_only: false, restart: 'no', init: false, profiles: [x]";
    check(
        "head",
        &[
            ("privileged: false", &["privileged"]),
            ("cap_drop: !reset []", &["cap_drop"]),
            ("cap_drop: !override [KILL]", &["cap_drop"]),
            ("security_opt: !reset null", &["security_opt"]),
            ("security_opt: ['no-new-privileges:true']", &["security_opt"]),
            (long, &["user", "read_only", "restart", "init", "profiles"]),
            ("ports: ['127.0.0.1:80:80']", &["ports"]),
            ("ports: ['80:80']", &["ports[0]"]),
            ("ports: []", &["ports"]),
            ("networks: [other]", &["networks"]),
            ("volumes: ['data:/data']", &["volumes"]),
            ("command: [sh]", &["command"]),
            ("entrypoint: []", &["entrypoint"]),
            ("image: x", &["image"]),
            ("healthcheck: {disable: true}", &["healthcheck"]),
            ("hostname: other", &["hostname"]),
            ("environment: {RAY_AUTH_MODE: none, A: b}", &["environment"]),
            ("environment: [PATH=/x, 'A=$B']", &["environment"]),
            ("environment: ['RAY_${X}=1']", &["environment"]),
            ("environment: [ray_auth_mode=1]", &["environment"]),
            ("environment: !override {A: b}", &["environment"]),
            ("environment: {A: !reset null}", &["environment"]),
            ("labels: {gpucl.key: x}", &["labels"]),
            ("labels: !override {a: b}", &["labels"]),
            ("deploy: {replicas: 0}", &["deploy"]),
            ("deploy: {resources: {reservations: {devices: [{driver: nvidia, capabilities: [gpu]}]}}}", &["deploy"]),
            ("gpus: all", &["gpus"]),
            ("mem_limit: !override 1g", &["mem_limit"]),
        ],
    );
    check("grafana", &[("environment: {GF_AUTH_ANONYMOUS_ENABLED: 'true'}", &["environment"])]);
    check("objectstore", &[("environment: [MINIO_ROOT_USER=x]", &["environment"])]);
    for service in ["Head", "worker0", "worker-12", "nodeexporter1", "prometheus", "jupyter"] {
        assert_eq!(
            places(&format!("services: {{{service}: {{command: x}}}}")),
            [format!("services.{service}.command")]
        );
        assert_eq!(places(&format!("services: {{{service}: !override {{cpus: 1}}}}")), [format!("services.{service}")]);
    }
    for service in ["worker", "worker0a", "header", "nodeexporter", "grafana2"] {
        assert_eq!(places(&format!("services: {{{service}: !override {{command: x}}}}")), [""; 0], "{service}");
    }
}

#[test]
fn whatever_a_file_shares_is_judged_where_it_is_used_and_at_the_top() {
    for (text, expected) in [
        ("x-a: &a {privileged: true}\nservices: {web: *a}", &["services.web.privileged"][..]),
        ("x-a: &a {privileged: true}\nservices: {web: {<<: *a}}", &["services.web.privileged"]),
        ("x-a: &a {privileged: true}\nservices: {web: {<<: *a, privileged: false}}", &["services.web.privileged"]),
        ("x-a: &a {pid: host}\nx-b: &b {<<: *a}\nservices: {web: {<<: [*b, *b]}}", &["services.web.pid"]),
        ("x-a: &a [/:/host]\nservices: {web: {volumes: *a}}", &["services.web.volumes[0]"]),
        ("x-a: &a {web: {pid: host}}\nservices: {<<: *a}", &["services.web.pid"]),
        ("x-a: &a {services: {web: {pid: host}}}\n<<: *a\nservices: {}", &["services.web.pid"]),
        ("services: &s {web: {pid: host}}\nx-b: *s", &["services.web.pid"]),
        ("services: !override {web: {image: x}}", &["services"]),
        ("services: !reset {}", &["services"]),
        ("services: {web: [x]}", &["services.web"]),
        ("services: {}\ninclude: [x.yaml]", &["include"]),
        ("services: {}\nmodels: {a: {model: x}}", &["models"]),
        ("services: {}\nvolumes: {x: {driver_opts: {type: none, o: bind, device: /}}}", &["volumes.x.driver_opts"]),
        ("services: {}\nvolumes: {x: {driver: nfs}}", &["volumes.x.driver"]),
        ("services: {}\nvolumes: {x: {driver: '${D}'}}", &["volumes.x.driver"]),
        ("services: {}\nvolumes: {x: {external: true}, y: {name: other}}", &["volumes.x.external", "volumes.y.name"]),
        ("services: {}\nvolumes: {x: {external: 'false'}}", &["volumes.x.external"]),
        ("services: {}\nvolumes: {x: {labels: {gpucl.tag: x}}}", &["volumes.x.labels"]),
        ("services: {}\nvolumes: !override {}", &["volumes"]),
        ("services: {}\nvolumes: [x]", &["volumes"]),
        ("services: {}\nnetworks: {x: }", &["networks.x"]),
        ("services: {}\nnetworks: {x: {driver: host, internal: true}}", &["networks.x.driver"]),
        ("services: {}\nnetworks: {x: {driver: macvlan, internal: true}}", &["networks.x.driver"]),
        ("services: {}\nnetworks: {x: {external: true, internal: true}}", &["networks.x.external"]),
        ("services: {}\nnetworks: {x: {internal: 'true'}}", &["networks.x"]),
        ("services: {}\nnetworks: {default: {driver_opts: {a: b}}}", &["networks.default.driver_opts"]),
        ("services: {}\nnetworks: {default: {internal: true}}", &["networks.default"]),
        ("services: {}\nnetworks: {default: !reset null}", &["networks"]),
        ("services: {}\nconfigs: {x: {file: /etc/shadow}}", &["configs.x.file"]),
        ("services: {}\nsecrets: {x: {environment: HOME}}", &["secrets.x.environment"]),
        ("services: {}\nsecrets: {x: {external: true}}", &["secrets.x.external"]),
    ] {
        assert_eq!(places(text), expected, "{text}");
    }
}

#[test]
fn what_is_said_of_a_service_is_one_plain_line() {
    for (text, what) in [
        ("services: {web: {ports: ['80:80']}}", "web: is open to the network: `80:80`"),
        ("services: {web: {volumes: [{type: bind, source: /x}]}}", "web: has a folder or file of its host: `/x`"),
        ("services: {web: {\"a\\nb\\e[1m\": x}}", "web: has `a\\nb\\x1b[1m`, which is not known to be ordinary"),
        ("services: {head: {command: x}}", "head: has another `command` than gpucl gives it"),
        ("services: {}\nvolumes: {x: {external: true}}", "volume x: belongs to something else on its host"),
    ] {
        assert_eq!(beyond(text).unwrap()[0].what, what, "{text}");
    }
    for name in ["hеad", "a b", "''", "\"a\\nb\""] {
        assert!(
            beyond(&format!("services: {{{name}: {{}}}}")).unwrap_err().contains("not the name of a service"),
            "{name}"
        );
    }
}

#[test]
fn a_service_mlflow_is_the_users_own_where_gpucl_has_none() {
    let text = "services: {mlflow: {image: 'x:1', environment: {A: b}}}";
    assert_eq!(beyond(text).unwrap(), []);
    let found = beyond_with_mlflow(text).unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].what, "mlflow: has another `image` than gpucl gives it");
}
