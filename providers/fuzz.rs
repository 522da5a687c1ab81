//! Fuzzing of specs from untrusted sources, with the settings of all providers: each is either read or refused with a
//! position.

use std::path::Path;

use gpucl_core::spec::{Ask, Class, Home, Loaded, asks, digest_of, parse};
use gpucl_fuzz::{Target, demand};

/// Every example of the project, and seeds for the remaining keys.
fn seeds() -> Vec<String> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let paths = fs_err::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = paths.filter(|path| path.extension().is_some_and(|ending| ending == "yaml")).collect();
    paths.sort();
    let mut seeds: Vec<String> = paths.iter().map(|path| fs_err::read_to_string(path).unwrap()).collect();
    seeds.push(
        "name: demo\nprovider: {name: ssh, user: ada}\nruntime: docker\nhosts:\n  - {node: gpu1, port: 22}\n"
            .to_owned(),
    );
    seeds.push(
        "name: demo\nlimits: {}\ndeadline: 3h\nmax_cost: 5 USD\ntimeouts: {boot: 2s}\nservices: {grafana: true}\n"
            .to_owned(),
    );
    seeds
}

#[test]
fn fuzz_spec_text() {
    let words = [
        "name: ",
        "provider: ",
        "hosts:",
        "ray:",
        "services:",
        "workers:",
        "environment:",
        "compose:",
        "<<: ",
        "? ",
        "gpus: ",
        "2h",
    ];
    Target::of_text("spec", &seeds()).with_words(&words).with_inputs(250, 60).run(|input| {
        let text = String::from_utf8_lossy(input);
        match parse("cluster.yaml", &text, &crate::find) {
            Ok(loaded) => {
                demand(!loaded.spec.name.as_str().is_empty(), || "a spec without a name was read".to_owned())?;
                // Reading the same text twice gives the same spec.
                let again = parse("cluster.yaml", &text, &crate::find)
                    .map_err(|error| format!("read once, and then: {error}"))?;
                demand(format!("{:?}", loaded.spec) == format!("{:?}", again.spec), || "read in two ways".to_owned())
            }
            // However much is wrong, the error stays short enough to read.
            Err(error) => {
                let text = error.causes().concat() + error.shown_snippet().unwrap_or_default();
                demand(!text.is_empty(), || "refused without a message".to_owned())?;
                demand(text.len() < 400_000, || format!("the refusal has {} bytes", text.len()))
            }
        }
    });
}

/// What a spec asks of a reader whose home is nowhere.
fn asked(loaded: &Loaded) -> Result<Vec<Ask>, String> {
    let home = Home { home: Path::new("/nowhere/home"), folder: Path::new("/nowhere/home/spec"), allowed: &[] };
    asks(loaded, home, &crate::find).map_err(|error| format!("the list cannot be made: {error}"))
}

/// Whatever else a spec says, a hostile key of it is listed, in one line that a terminal only shows.
#[test]
fn fuzz_what_specs_ask() {
    let mut all = seeds();
    all.extend([
        "name: a\nprovider: {name: kubernetes, kubeconfig: k, network_policy: false, pods: {secrets: [s], mounts: [{path: /a, claim: c}]}}\n".to_owned(),
        "name: b\nprovider: {name: lambda, endpoint: 'https://h', file_systems: [{name: f, keep: true}]}\nruntime: docker\nhosts: [gpu_1x_a10]\n".to_owned(),
        "name: c\nprovider: {name: slurm, host: h, save: [{from: a, to: ~/.ssh}], packages: /p}\n".to_owned(),
        "name: d\nsetup: &s {pip: [a], commands: [b]}\ndata: [{name: d, from: {command: c}, check: e}]\nenvironment: {LD_PRELOAD: x}\n".to_owned(),
    ]);
    let words =
        ["provider: ", "kubeconfig: ", "&a ", "*a", "<<: ", "setup: ", "{command: x}", "!!str ", "null", "[]", "~"];
    Target::of_text("asks", &all).with_words(&words).with_inputs(250, 60).run(|input| {
        let text = String::from_utf8_lossy(input);
        let hostile = format!("{text}\nfiles: [{{git: 'https://evil.example.org/x.git', to: of-fuzz}}]\n");
        for text in [text.as_ref(), hostile.as_str()] {
            let Ok(loaded) = parse("cluster.yaml", text, &crate::find) else { continue };
            // A login that is no regular file is refused.
            let Ok(list) = asked(&loaded) else { continue };
            demand(Ok(digest_of(&list)) == asked(&loaded).map(|again| digest_of(&again)), || {
                "one spec has two digests".to_owned()
            })?;
            for ask in &list {
                let is_line = !ask.what.is_empty()
                    && !ask.what.chars().any(|letter| letter.is_control())
                    && ask.what.len() < 2_000;
                demand(is_line, || format!("not one line: {:?}", ask.what))?;
            }
            let has = |class: Class| list.iter().any(|ask| ask.class == class);
            let (spec, is_local) = (&loaded.spec, loaded.spec.provider.name() == "local");
            let runs_here =
                is_local && (spec.setup().is_some() || spec.data.iter().any(|data| data.from.command.is_some()));
            demand(!runs_here || has(Class::Runs), || "a command for this machine is not listed".to_owned())?;
            let asks_git = spec.files.iter().any(|file| file.git.is_some());
            demand(!asks_git || has(Class::Server), || "a server is not listed".to_owned())?;
            let settings = spec.provider.settings();
            let names_login = settings["kubeconfig"].as_str().is_some_and(|file| !file.is_empty());
            demand(!names_login || has(Class::Runs), || "a kubeconfig is not listed".to_owned())?;
            let secrets = settings["pods"]["secrets"].as_array().is_some_and(|all| !all.is_empty());
            demand(!secrets || has(Class::Privilege), || "Secrets of pods are not listed".to_owned())?;
        }
        Ok(())
    });
}
