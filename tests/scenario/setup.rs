//! `setup` on this machine: packages and commands once for each content, shared, and gone when nobody uses them.

use std::path::PathBuf;

use crate::support::{Outcome, TestEnv, nodes, tagged_processes, turn};

fn spec(name: &str, setup: &str) -> String {
    format!(
        "name: {name}\nprovider: local\nruntime: native\ngpu: declared\n\
         ray:\n  head: {{object_store_memory: 80MiB}}\n  \
         workers: {{count: 1, cpus: 1, gpus: 0, memory: 300MiB, object_store_memory: 80MiB}}\n\
         timeouts: {{start: 4m, ready: 4m}}\nsetup: {setup}\n"
    )
}

fn up(env: &TestEnv, name: &str, setup: &str) -> Outcome {
    let file = format!("{name}.yaml");
    env.write(&file, &spec(name, setup));
    env.accept(&file);
    env.run(&["up", &file])
}

/// The environments of a setup, by their folders.
fn environments() -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_TARGET_TMPDIR"), "/cache/gpucl/environments");
    let paths = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_setup = |path: &PathBuf| path.is_dir() && path.to_string_lossy().contains("-setup-");
    paths.filter(is_setup).collect()
}

#[test]
#[ignore = "by hand: just more-local"]
fn packages_are_installed_once_for_all_clusters_that_want_them() {
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    // The command makes it this run's own.
    let mark = format!("{:?}", std::time::SystemTime::now());
    let setup = format!(
        "{{requirements: needs.txt, commands: ['echo {mark:?} >$VIRTUAL_ENV/mark', 'python -c \"import einops\"']}}"
    );
    let before = environments();
    env.write("needs.txt", "# for the job\n-r more/base.txt\n");
    env.write("more/base.txt", "einops\n");
    up(&env, "one", &setup).exits(0);
    let made: Vec<PathBuf> = environments().into_iter().filter(|path| !before.contains(path)).collect();
    let [made] = made.as_slice() else { panic!("one environment is made: {made:?}") };

    // Jobs, workers and programs are those of that environment.
    env.write(
        "where.py",
        "import einops, ray, shutil, sys\nray.init(log_to_driver=False)\n\
         there = ray.get(ray.remote(num_cpus=1)(lambda: (sys.executable, __import__('einops').__file__)).remote())\n\
         print(sys.executable, *there, shutil.which('ray'))\n",
    );
    let job = env.run(&["job", "submit", "-c", "one", "--working-dir", ".", "--", "python", "where.py"]).exits(0);
    assert_eq!(job.stdout.matches(made.to_str().unwrap()).count(), 4, "{}", job.stdout);
    assert!(std::fs::read_to_string(made.join("bin/ray")).unwrap().starts_with(&format!("#!{}/", made.display())));

    // A second cluster takes it as it is.
    up(&env, "two", &setup).exits(0);
    up(&env, "one", &setup).exits(0).prints("nothing was changed");
    assert_eq!(environments().len(), before.len() + 1);

    // What fails says where, and changes nothing that runs.
    let running = (nodes(&env, "one"), nodes(&env, "two"));
    up(&env, "one", "{pip: [einops, gpucl-has-no-such-package]}").exits(1).says("gpucl-has-no-such-package");
    up(&env, "one", "{commands: ['true', 'echo about to fail; exit 3']}")
        .exits(1)
        .says("setup: command 2 of 2 failed with exit status 3: echo about to fail; exit 3; it last printed: about to fail")
        .says("Each command is run by `sh`: one that needs bash");
    up(&env, "one", "{pip: ['ray==2.54.0']}").exits(1).says("ray==2.54.0");
    assert_eq!((nodes(&env, "one"), nodes(&env, "two")), running);
    assert_eq!(environments().len(), before.len() + 1, "what failed leaves nothing");

    // Another content is another environment, and its nodes are started again.
    let other = setup.replace("{requirements", "{pip: [toolz], requirements");
    env.write("one.yaml", &spec("one", &other));
    env.run(&["plan", "one.yaml"]).exits(0).prints("prepare").prints("its setup has changed");
    up(&env, "one", &other).exits(0);
    let second = environments().into_iter().find(|path| path != made && !before.contains(path)).unwrap();
    assert!(nodes(&env, "one").iter().all(|(key, process)| running.0.get(key) != Some(process)));
    assert_eq!(nodes(&env, "two"), running.1);

    // `down --purge` removes what nobody uses any more.
    env.run(&["down", "--yes", "--purge", "-c", "one"]).exits(0).prints("is left");
    assert!(made.is_dir(), "the other cluster uses it");
    assert!(!second.exists());
    env.run(&["down", "--yes", "--purge", "-c", "two"]).exits(0).prints("is left");
    assert!(!made.exists());
    assert_eq!(tagged_processes(&env), []);
}
