//! The boundaries that keep the tree understandable, checked.

mod circles;
mod temporary;
mod tiers;

use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// All files below these folders and files, by their path from the project's root.
fn files(tops: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let mut left: Vec<PathBuf> = tops.iter().map(|top| root().join(top)).collect();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            found.push(path.strip_prefix(root()).unwrap().display().to_string());
        }
    }
    found.sort();
    found
}

/// All of the project but what is built or is git's.
fn project() -> Vec<String> {
    let names = std::fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let tops: Vec<String> = names.filter(|name| !["target", ".git", "Cargo.lock"].contains(&name.as_str())).collect();
    files(&tops.iter().map(String::as_str).collect::<Vec<_>>())
}

pub(crate) fn rust(tops: &[&str]) -> Vec<String> {
    files(tops).into_iter().filter(|path| path.ends_with(".rs")).collect()
}

/// The lines of code: without comments, and without the tests that a file ends with.
fn code(path: &str) -> Vec<(usize, String)> {
    let text = read(path);
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    lines.map(|(number, line)| (number + 1, line.to_owned())).collect()
}

/// Where one of these texts stands in code.
fn places(paths: &[String], texts: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for path in paths {
        for (number, line) in code(path) {
            if texts.iter().any(|text| line.contains(text)) {
                found.push(format!("{path}:{number}: {}", line.trim()));
            }
        }
    }
    found
}

#[track_caller]
fn none(found: &[String], what: &str) {
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

/// What stands in backquotes and looks like a place in the project.
fn named_places(text: &str) -> Vec<String> {
    let quoted = text.split('`').skip(1).step_by(2);
    let tops = ["src/", "providers/", "playbooks/", "templates/", "tests/", "docs/", "examples/", "benches/"];
    let is_place = |name: &&str| {
        !name.contains(['<', '*', ' ']) && (tops.iter().any(|top| name.starts_with(top)) || name.ends_with(".rs"))
    };
    quoted.filter(is_place).map(str::to_owned).collect()
}

#[test]
fn the_map_names_places_that_exist() {
    let named = named_places(&read("ARCHITECTURE.md"));
    assert!(named.len() > 50, "{named:?}");
    let gone: Vec<String> = named.into_iter().filter(|place| !root().join(place).exists()).collect();
    none(&gone, "ARCHITECTURE.md names what is not there");
}

#[test]
fn the_map_names_every_module() {
    let named = named_places(&read("ARCHITECTURE.md"));
    let mut missing = Vec::new();
    for folder in ["src", "src/core"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap().flatten() {
            let file = entry.file_name().to_string_lossy().into_owned();
            let name = if entry.path().is_dir() { format!("{folder}/{file}/") } else { format!("{folder}/{file}") };
            // What is no folder and holds no more than the list of modules is in no need of a place on the map.
            if !["lib.rs", "main.rs", "build.rs", "Cargo.toml"].contains(&file.as_str()) && !named.contains(&name) {
                missing.push(name);
            }
        }
    }
    none(&missing, "ARCHITECTURE.md does not name");
}

#[test]
fn the_core_does_not_know_the_command_line() {
    let core: Vec<String> = rust(&["src", "providers", "sandbox"])
        .into_iter()
        .filter(|path| !path.starts_with("src/cli/") && !["src/main.rs", "src/lib.rs"].contains(&path.as_str()))
        .filter(|path| !path.ends_with("/build.rs"))
        .collect();
    none(&places(&core, &["crate::cli", "super::cli::", "gpucl::cli"]), "the core uses the command line");
    none(&places(&core, &["env::var", "env::vars"]), "the core reads the environment");
    none(&places(&core, &["print!(", "println!(", "process::exit", "io::stdout"]), "the core prints or exits");
    none(&places(&core, &["std::io::stdin", "IsTerminal"]), "the core looks at the terminal");
}

/// What prints escapes what others wrote; a second way to print would forget it.
#[test]
fn one_file_writes_to_the_terminal() {
    let cli: Vec<String> = rust(&["src/cli"])
        .into_iter()
        .filter(|path| path != "src/cli/output/ui.rs" && !path.ends_with("/fuzz.rs"))
        .collect();
    let found = places(&cli, &["io::stdout", "io::stderr", "io::Write", "print!", "println!"]);
    let looks = |line: &String| line.contains("is_terminal") || line.contains("let stdout = std::io::stdout();");
    none(&found.into_iter().filter(|line| !looks(line)).collect::<Vec<_>>(), "more than one file prints");
    // A bar of progress is drawn by a library: each text that it is given goes through what escapes it.
    let drawn = places(&cli, &[".set_message(", ".set_prefix(", ".bars.println("]);
    let escaped = |line: &String| line.contains("shown(") || line.contains("printable(");
    assert!(drawn.len() >= 4, "{drawn:?}");
    none(&drawn.into_iter().filter(|line| !escaped(line)).collect::<Vec<_>>(), "a text is drawn as it is");
}

/// A program takes configuration and code from the folder that it is started in, and that one may be a stranger's.
#[test]
fn one_file_starts_programs() {
    let is_test = |path: &String| path.ends_with("/tests.rs") || path.ends_with("/fuzz.rs");
    let others: Vec<String> = rust(&["src", "providers", "sandbox"])
        .into_iter()
        .filter(|path| path != "src/core/util/child.rs" && !is_test(path))
        .collect();
    let ways = ["Command::new(", "SessionBuilder", "Session::connect", "set_current_dir"];
    none(&places(&others, &ways), "not by util::child, which starts programs away from the working folder");
}

/// A folder of a stranger's is where commands are typed. Of providers, only the reader's own variables lead there.
#[test]
fn no_provider_reads_the_working_folder() {
    let of_variables =
        ["providers/chameleon/auth/clouds.rs", "providers/chameleon/auth/find.rs", "providers/chameleon/auth/login.rs"];
    let others: Vec<String> =
        rust(&["providers"]).into_iter().filter(|path| !of_variables.contains(&path.as_str())).collect();
    none(&places(&others, &["environment.here", "current_dir(", "Path::new(\".\")"]), "reads the working folder");
    none(&places(&rust(&["providers", "src/core"]), &["env::current_dir"]), "asks for the working folder");
}

/// Whoever takes a path that cannot be followed for one that leads nowhere judges another file than the one that is opened.
#[test]
fn where_a_path_leads_is_never_guessed() {
    let found = places(&rust(&["src", "providers", "sandbox"]), &["canonicalize("]);
    let guessed = found.into_iter().filter(|place| {
        !place.starts_with("src/core/util/fs.rs") && !place.contains("fuzz.rs") && !place.contains(".doing(")
    });
    none(
        &guessed.collect::<Vec<_>>(),
        "not by util::fs::resolve, which tells what is missing from what cannot be followed",
    );
}

#[test]
fn the_plan_is_pure() {
    let impure =
        ["std::fs", "fs_err", "tokio", "async fn", "Timestamp::now", "Instant::now", "SystemTime", "std::process"];
    none(&places(&rust(&["src/core/plan"]), &impure), "the plan does more than compare");
}

#[test]
fn the_engine_knows_no_provider_and_no_ray() {
    let engine = rust(&["src/core/engine", "src/core/plan"]);
    none(
        &places(&engine, &["crate::ray", "crate::runtime", "crate::host", "crate::agent"]),
        "the engine knows too much",
    );
    let names = std::fs::read_dir(root().join("providers")).unwrap().flatten();
    let names = names.filter(|entry| entry.path().is_dir()).map(|entry| entry.file_name().into_string().unwrap());
    let quoted: Vec<String> = names.map(|name| format!("\"{name}\"")).collect();
    let quoted: Vec<&str> = quoted.iter().map(String::as_str).collect();
    let asking = rust(&[
        "src/core/engine",
        "src/core/plan",
        "src/cluster",
        "src/core/runtime",
        "src/core/provider",
        "src/core/state",
    ]);
    none(&places(&asking, &quoted), "a provider is asked for by its name and not by its capability");
}

/// The modules in their order: one knows those before it, and no other.
const ORDER: &[&str] = &[
    "error",
    "util",
    "money",
    "name",
    "event",
    "ray",
    "s3",
    "mlflow",
    "render",
    "host",
    "playbook",
    "provider",
    "spec",
    "state",
    "plan",
    "secret",
    "engine",
    "runtime",
    "providers",
    "agent",
    "cluster",
];

#[test]
fn a_module_knows_only_those_before_it() {
    let place = |name: &str| ORDER.iter().position(|module| *module == name);
    let mut found = Vec::new();
    for path in rust(&["src", "providers"]) {
        let name = match path.strip_prefix("src/") {
            Some(rest) => rest.strip_prefix("core/").unwrap_or(rest).split('/').next().unwrap().trim_end_matches(".rs"),
            None => "providers",
        };
        // Unit tests in files of their own may know more.
        let is_test = ["/tests.rs", "/fuzz.rs"].iter().any(|end| path.ends_with(end)) || path.contains("/tests/");
        if ["cli", "main", "lib", "build"].contains(&name) || is_test {
            continue;
        }
        let own = place(name).unwrap_or_else(|| panic!("{name} has no place in the order"));
        for (number, line) in code(&path) {
            for used in line.split("crate::").skip(1) {
                let used = used
                    .split(|it: char| !(it.is_ascii_lowercase() || it.is_ascii_digit() || it == '_'))
                    .next()
                    .unwrap();
                let is_provider = name == "providers" && root().join("providers").join(used).is_dir();
                if !used.is_empty() && !is_provider && place(used).is_none_or(|used| used > own) {
                    found.push(format!("{path}:{number}: {name} uses {used}"));
                }
            }
        }
    }
    none(&found, "a module knows one that comes after it; a part may belong in another module");
}

/// A stand-in that shared code with what it stands in for would share its mistakes.
#[test]
fn stand_ins_share_no_code_with_the_providers() {
    let used = places(&rust(&["sandbox"]), &["gpucl_core", "gpucl_providers"]);
    // Errors, the start of programs, and in tests the client.
    let fine = |line: &String| line.ends_with(": use gpucl_core::error;") || line.ends_with(": use gpucl_core::util;");
    assert_eq!(used.len(), 2, "{used:?}");
    none(&used.into_iter().filter(|line| !fine(line)).collect::<Vec<_>>(), "a stand-in uses what it is to test");
    none(
        &places(&rust(&["src", "providers"]), &["crate::sandbox"])
            .into_iter()
            .filter(|line| !line.starts_with("src/cli/") && !line.contains("/tests"))
            .collect::<Vec<_>>(),
        "the program uses a stand-in",
    );
}

/// `unsafe` is forbidden and lints are not silenced: an exception gives its reason, and is reported once it is not
/// needed.
#[test]
fn lints_are_expected_with_a_reason_and_never_allowed() {
    let paths = rust(&["src", "providers", "sandbox", "tests", "fuzz", "benches"]);
    let allow = concat!("#[", "allow(");
    let allow_all = concat!("#![", "allow(");
    none(&places(&paths, &[allow, allow_all]), "lints are silenced");
    let manifest = read("Cargo.toml");
    for lint in ["unwrap_used", "expect_used", "panic", "todo", "print_stdout", "exit", "allow_attributes"] {
        assert!(manifest.contains(&format!("\n{lint} = \"deny\"")), "{lint} is denied no more");
    }
    assert!(manifest.contains("unsafe_code = \"forbid\""));
    for package in
        ["Cargo.toml", "src/core/Cargo.toml", "providers/Cargo.toml", "sandbox/Cargo.toml", "fuzz/Cargo.toml"]
    {
        assert!(read(package).contains("\n[lints]\nworkspace = true\n"), "{package} has lints of its own");
    }
}

#[test]
fn files_stay_within_800_lines() {
    let lengths: Vec<(usize, String)> = rust(&["src", "providers", "sandbox", "tests", "benches"])
        .into_iter()
        .map(|path| (read(&path).lines().count(), path))
        .collect();
    let longer_than = |limit: usize| -> Vec<String> {
        lengths
            .iter()
            .filter(|(lines, _)| *lines > limit)
            .map(|(lines, path)| format!("{path}: {lines} lines"))
            .collect()
    };
    none(&longer_than(800), "more than 800 lines");
    let long = longer_than(400);
    let small = lengths.len() - long.len();
    assert!(
        small * 100 >= lengths.len() * 85,
        "only {small} of {} files have 400 lines or less: {long:#?}",
        lengths.len()
    );
}

#[test]
fn every_provider_folder_is_complete() {
    let mut missing = Vec::new();
    let mut folders = 0;
    for entry in std::fs::read_dir(root().join("providers")).unwrap().flatten().filter(|entry| entry.path().is_dir()) {
        folders += 1;
        for file in ["provider.yaml", "README.md", "mod.rs", "tests.rs"] {
            if !entry.path().join(file).is_file() {
                missing.push(format!("providers/{}/{file}", entry.file_name().to_string_lossy()));
            }
        }
    }
    assert!(folders >= 2);
    none(&missing, "provider folders lack");
}

/// A clone of the project is self-contained.
#[test]
fn no_file_names_a_place_outside_the_project() {
    // Put together here, so that this file does not name them.
    let outside = [["/wo", "rk/wt"], ["/wo", "rk/main"], ["/wo", "rk/shared"], ["../sha", "red"], ["/ro", "ot/"]];
    let outside: Vec<String> = outside.iter().map(|parts| parts.concat()).collect();
    let mut found = Vec::new();
    for path in project() {
        let text = String::from_utf8_lossy(&std::fs::read(root().join(&path)).unwrap()).into_owned();
        for (number, line) in text.lines().enumerate() {
            // A place begins the path: in `$state/root/etc` it is a part of another one.
            let begins =
                |at: usize| !line[..at].ends_with(|letter: char| letter.is_alphanumeric() || "}~.".contains(letter));
            if outside.iter().any(|place| line.match_indices(place.as_str()).any(|(at, _)| begins(at))) {
                found.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    none(&found, "places outside of the project are named");
}
