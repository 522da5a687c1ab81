//! What `job submit` takes: the flags of `ray job submit`, requirement files and modules.

#![expect(clippy::unwrap_used, reason = "what a test stands on may fail it")]

use std::path::Path;
use std::process::Command;

use gpucl::error::ErrorKind;
use gpucl::ray::{Module, ModuleSource, Package, RuntimeEnv};
use serde_json::json;

use super::{fence, folder, unpacked, write};
use crate::support::TestEnv;

/// The long flags of `gpucl job submit`, aliases and hidden ones included.
fn our_flags() -> Vec<String> {
    let command = gpucl::cli::command();
    let submit = command.find_subcommand("job").unwrap().find_subcommand("submit").unwrap();
    let names = |argument: &clap::Arg| -> Vec<String> {
        let aliases = argument.get_all_aliases().unwrap_or_default();
        argument.get_long().into_iter().chain(aliases).map(|name| format!("--{name}")).collect()
    };
    submit.get_arguments().flat_map(names).collect()
}

/// The flags of Ray 2.60, for a machine without it.
const FLAGS: &[&str] = &[
    "--address",
    "--entrypoint-label-selector",
    "--entrypoint-memory",
    "--entrypoint-num-cpus",
    "--entrypoint-num-gpus",
    "--entrypoint-resources",
    "--headers",
    "--job-id",
    "--log-color",
    "--log-style",
    "--metadata-json",
    "--no-wait",
    "--runtime-env",
    "--runtime-env-json",
    "--submission-id",
    "--verbose",
    "--verify",
    "--working-dir",
];

#[test]
fn every_flag_of_ray_job_submit_is_known_and_documented() {
    let ours = our_flags();
    let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/guides/jobs.md")).unwrap();
    for flag in FLAGS {
        assert!(ours.iter().any(|known| known == flag), "{flag} is unknown");
        assert!(guide.contains(&format!("`{flag}")), "{flag} is not in docs/guides/jobs.md");
    }
    for earlier in ["--id", "--entrypoint-cpus", "--entrypoint-gpus", "--env", "--metadata"] {
        assert!(ours.iter().any(|known| known == earlier), "{earlier} is unknown");
    }
}

/// The list above is that of the real program, if the tests' environment holds it.
#[test]
#[ignore = "testbed"]
fn the_flags_are_those_of_the_real_ray_job_submit() {
    let environments = concat!(env!("CARGO_TARGET_TMPDIR"), "/cache/gpucl/environments");
    let found = std::fs::read_dir(environments).unwrap().map(|entry| entry.unwrap().path().join("bin/ray"));
    let ray = found.into_iter().find(|path| path.is_file()).unwrap();
    let output = Command::new(ray).args(["job", "submit", "--help"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let help = String::from_utf8(output.stdout).unwrap();
    let mut theirs: Vec<&str> = help
        .lines()
        .filter(|line| line.trim_start().starts_with('-'))
        .flat_map(|line| line.split([' ', ',']).filter(|word| word.starts_with("--") && word.len() > 2))
        .filter(|flag| *flag != "--help")
        .collect();
    theirs.sort_unstable();
    theirs.dedup();
    assert_eq!(theirs, FLAGS, "{help}");
}

#[test]
fn flags_without_a_meaning_say_what_to_use() {
    let env = TestEnv::new();
    for (flag, value, hint) in [
        ("--address", "http://127.0.0.1:8265", "-c NAME"),
        ("--verify", "false", "SSH"),
        ("--headers", "{}", "gpucl env"),
        ("--log-style", "record", "--output json"),
        ("--log-color", "false", "--raw"),
    ] {
        let refused = env.run(&["job", "submit", flag, value, "--", "true"]).exits(2);
        let _ = refused.says(&format!("{flag} is a flag of `ray job submit`")).says(hint);
    }
    let _ = env.run(&["job", "submit", "--verbose", "--", "true"]).exits(2).says("--quiet");
    let _ = env
        .run(&["job", "submit", "--runtime-env-json", "{}", "--runtime-env", "x", "--", "true"])
        .exits(2)
        .says("cannot be used with");
    let _ = env
        .run(&["job", "submit", "--entrypoint-resources", r#"{"GPU": 1}"#, "--", "true"])
        .exits(2)
        .says("for `GPU` use --entrypoint-num-gpus");
    // All right as far as there is no cluster.
    let all = [
        "job",
        "submit",
        "--job-id",
        "a",
        "--runtime-env-json",
        "{\"env_vars\": {\"A\": \"1\"}}",
        "--metadata-json",
        "{\"a\": \"b\"}",
        "--working-dir",
        "s3://bucket/code.zip",
        "--entrypoint-num-cpus",
        "1",
        "--entrypoint-num-gpus",
        "0.5",
        "--entrypoint-memory",
        "1073741824",
        "--entrypoint-resources",
        "{\"disk\": 1}",
        "--entrypoint-label-selector",
        "{\"gpu\": \"A100\"}",
        "--no-wait",
        "--",
        "true",
    ];
    let _ = env.run(&all).exits(6).says("there are no clusters");
}

#[test]
fn requirement_files_are_expanded_and_a_url_stays() {
    let place = folder();
    let root = place.path();
    write(root, "req/all.txt", "torch==2.9  # newest\n-r base.txt\n");
    write(root, "req/base.txt", "numpy\ntorch==2.9\n");
    let env = RuntimeEnv::read(r#"{"pip": "req/all.txt"}"#, &fence(root)).unwrap();
    assert_eq!(env.into_fields()["pip"], json!(["torch==2.9", "numpy"]));
    let env = RuntimeEnv::parse(r#"{"uv": {"packages": "req/all.txt", "uv_check": true}}"#, root).unwrap();
    assert_eq!(env.into_fields()["uv"], json!({"packages": ["torch==2.9", "numpy"], "uv_check": true}));
    let missing = RuntimeEnv::read(r#"{"pip": "nowhere.txt"}"#, &fence(root)).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Usage);

    for line in ["-e .", "./x.whl", "dist/x-1.0.tar.gz", "x @ file:///srv/x", "--editable=./x"] {
        write(root, "req/own.txt", &format!("numpy\n{line}\n"));
        let error = RuntimeEnv::read(r#"{"pip": {"packages": "req/own.txt"}}"#, &fence(root)).unwrap_err();
        assert!(error.causes()[0].contains(line) && error.hints()[0].contains("py_modules"), "{line}: {error:?}");
    }
    let odd = RuntimeEnv::parse(r#"{"pipp": ["a"], "env_vars": {}, "plugin": 1}"#, root).unwrap();
    assert_eq!(odd.unknown_keys(), [("pipp".to_owned(), Some("pip")), ("plugin".to_owned(), None)]);

    let mut remote = RuntimeEnv::default();
    assert_eq!(remote.take_working_dir(Some(Path::new("s3://b/x.zip")), root).unwrap(), None);
    assert_eq!(remote.into_fields()["working_dir"], "s3://b/x.zip");
}

/// `--env` is taken as it is; the variables of a runtime environment are Ray's to expand.
#[test]
fn what_the_command_line_sets_is_marked_as_literal() {
    let text = r#"{"env_vars": {"P": "${PATH}:/x", "T": "$A"}}"#;
    let mut env = RuntimeEnv::parse(text, Path::new("/")).unwrap();
    for (name, value) in [("T", "$HOME"), ("PLAIN", "a"), ("S", "cost: 5$"), ("T", "$HOME/b")] {
        env.set_variable(name, value).unwrap();
    }
    let variables = json!({"P": "${PATH}:/x", "T": "$HOME/b", "PLAIN": "a", "S": "cost: 5$", "GPUCL_LITERAL": "S,T"});
    assert_eq!(env.into_fields()["env_vars"], variables);
    let mut plain = RuntimeEnv::default();
    plain.set_variable("A", "b").unwrap();
    assert_eq!(plain.into_fields()["env_vars"], json!({"A": "b"}));
}

/// The file may be a stranger's, even if its reader types its name.
#[test]
fn the_file_of_a_runtime_environment_names_only_what_is_in_the_working_folder() {
    let env = TestEnv::new();
    let home = |name: &str, text: &str| write(&env.home(), name, text);
    home(".ssh/config", "Host *\n");
    home(".git-credentials", "https://me:hush@example.org\n");
    home("lib/shared/__init__.py", "");
    home("envs/hosts.yml", "env_vars: {token: hush}\n");
    let work = env.work();
    write(&work, "src/mine/__init__.py", "");
    write(&work, "needs.txt", "-r ../home/.git-credentials\n");
    std::os::unix::fs::symlink(env.home(), work.join("inside")).unwrap();
    std::os::unix::fs::symlink(env.home().join("envs/hosts.yml"), work.join("link.yaml")).unwrap();
    let submit = |file: &str, more: &[&str]| {
        let arguments = [&["job", "submit", "--runtime-env", file, "--no-wait"], more, &["--", "true"]].concat();
        env.run(&arguments)
    };
    let outside = "outside the working folder";
    for (text, why) in [
        ("py_modules: [~/.ssh]", "cannot be read"),
        ("py_modules: [../home/.ssh]", outside),
        ("py_modules: [inside/.ssh]", outside),
        ("py_modules: [../home/lib/shared]", outside),
        ("working_dir: ../home", outside),
        ("working_dir: /", outside),
        ("working_dir: inside", outside),
        ("pip: ../home/.git-credentials", outside),
        ("uv: {packages: needs.txt}", outside),
        ("conda: ../home/envs/hosts.yml", outside),
    ] {
        write(&work, "env.yaml", text);
        let outcome = submit("env.yaml", &[]).exits(2).is("").says(why);
        assert!(!outcome.stderr.contains("hush"), "{outcome:?}");
    }
    let _ = submit("link.yaml", &[]).exits(2).says("is outside the working folder, and named by a link in it");
    write(&work, "env.yaml", "py_modules: [../home/lib/shared]\nworking_dir: src\n");
    let lib = env.home().join("lib").display().to_string();
    let _ = submit("env.yaml", &["--allow-path", &lib]).exits(6).says("there are no clusters");
    let _ = submit("../home/envs/hosts.yml", &[]).exits(6).says("there are no clusters");
    // What the user typed may name what is the user's.
    let typed = r#"{"py_modules": ["../home/lib/shared"]}"#;
    let _ = submit(typed, &[]).exits(6).says("there are no clusters");
}

#[test]
fn a_home_folder_is_not_packed_because_a_file_says_so() {
    let place = folder();
    let root = place.path();
    write(root, "env.yaml", "working_dir: .\n");
    let of = |home: &Path| {
        RuntimeEnv::read("env.yaml", &fence(root).sparing(home)).unwrap().take_working_dir(None, root).map(|_| ())
    };
    let error = of(root).unwrap_err();
    assert!(error.causes()[0].contains("things of many origins"), "{error:?}");
    let other = folder();
    of(other.path()).unwrap();
}

#[test]
fn local_modules_are_packed_as_ray_imports_them() {
    let place = folder();
    let root = place.path();
    for name in ["src/mine/__init__.py", "src/mine/deep/a.py", "src/mine/data.bin", "src/mine/__pycache__/a.pyc"] {
        write(root, name, "x = 1\n");
    }
    write(root, "one.py", "y = 2\n");
    write(root, "dist/tool-1.0-py3-none-any.whl", "not read here");
    let text = r#"{"py_modules": ["src/mine", "s3://b/far.zip", "one.py", "dist/tool-1.0-py3-none-any.whl"],
        "excludes": ["*.bin"]}"#;
    let mut env = RuntimeEnv::read(text, &fence(root)).unwrap();
    let modules = env.local_modules(root).unwrap();
    assert_eq!(modules.iter().map(|module| module.at).collect::<Vec<_>>(), [0, 2, 3]);
    assert_eq!(
        modules[0],
        Module { at: 0, source: ModuleSource::Folder(root.join("src/mine"), vec!["*.bin".to_owned()]) }
    );
    let packages: Vec<Package> = modules.iter().map(|module| Package::of_module(&module.source).unwrap()).collect();
    let names = |package: &Package| -> Vec<String> {
        unpacked(package).iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&packages[0]), ["mine/__init__.py", "mine/deep/", "mine/deep/a.py"]);
    assert_eq!(names(&packages[1]), ["one.py"]);
    assert_eq!(packages[2].uri(), "gcs://tool-1.0-py3-none-any.whl");
    assert_eq!(packages[2].bytes(), b"not read here");
    assert_ne!(packages[0].name(), Package::of_folder(&root.join("src/mine"), &["*.bin".to_owned()]).unwrap().name());

    for (module, package) in modules.iter().zip(&packages) {
        env.set_module(module.at, package.uri());
    }
    let fields = env.into_fields();
    assert_eq!(
        fields["py_modules"],
        json!([packages[0].uri(), "s3://b/far.zip", packages[1].uri(), "gcs://tool-1.0-py3-none-any.whl"])
    );
    assert!(!fields.contains_key("excludes"));

    for wrong in [r#"{"py_modules": "src/mine"}"#, r#"{"py_modules": [1]}"#, r#"{"py_modules": ["src/mine/data.bin"]}"#]
    {
        let error = RuntimeEnv::read(wrong, &fence(root)).unwrap().local_modules(root).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
    }
    write(root, "bad name.whl", "x");
    assert!(Package::of_module(&ModuleSource::Wheel(root.join("bad name.whl"))).is_err());
}
