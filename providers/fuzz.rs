//! Fuzzing of specs from untrusted sources, with the settings of all providers: each is either read or refused with a
//! position.

use gpucl_core::spec::parse;
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
