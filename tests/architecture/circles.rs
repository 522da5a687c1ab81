//! No files and no folders depend on each other in a circle. A file with a folder of the same name counts as part of
//! that folder.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

use super::{code, none, rust};

/// Whether a file is only part of tests.
fn is_of_tests(file: &str) -> bool {
    file.ends_with("tests.rs") || file.ends_with("fuzz.rs") || file.contains("/tests/")
}

/// A path of modules: `["cluster", "hosts"]`.
type Place = Vec<String>;

/// The files, by their places, and what each takes from where.
struct House {
    files: BTreeMap<Place, String>,
    exports: BTreeMap<String, Vec<Place>>,
    uses: BTreeMap<String, Vec<Place>>,
}

/// Where a file stands in the tree of modules, as if all were one crate; `None` for what nobody can use.
fn place_of(file: &str) -> Option<Place> {
    let path = file.strip_prefix("src/").unwrap_or(file);
    let path = path.strip_prefix("core/").unwrap_or(path).trim_end_matches(".rs");
    match path {
        _ if file == "src/core/lib.rs" || path == "main" || path.ends_with("build") => None,
        "lib" => Some(Vec::new()),
        path => {
            let path = path.trim_end_matches("/mod").trim_end_matches("/lib");
            Some(path.split('/').map(str::to_owned).collect())
        }
    }
}

/// `a::{b, c::{d, self}}` -> `a::b`, `a::c::d`, `a::c`.
fn paths_of(tree: &str) -> Vec<String> {
    let Some((before, inner)) = tree.split_once('{') else {
        return vec![tree.split(" as ").next().unwrap().trim().to_owned()];
    };
    let (inner, before) = (inner.trim_end().trim_end_matches('}'), before.trim());
    let (mut depth, mut part, mut parts) = (0, String::new(), Vec::new());
    for letter in inner.chars() {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        if letter == ',' && depth == 0 { parts.push(std::mem::take(&mut part)) } else { part.push(letter) }
    }
    parts.push(part);
    let all = parts.iter().filter(|part| !part.trim().is_empty()).flat_map(|part| paths_of(part.trim()));
    all.map(|path| if path == "self" { before.trim_end_matches(':').to_owned() } else { format!("{before}{path}") })
        .collect()
}

impl House {
    fn read() -> Self {
        let files: BTreeMap<Place, String> = rust(&["src", "providers", "sandbox"])
            .into_iter()
            .filter_map(|file| Some((place_of(&file)?, file)))
            .collect();
        let (mut exports, mut uses) = (BTreeMap::new(), BTreeMap::new());
        let text = Regex::new(r#""(\\.|[^"\\])*""#).unwrap();
        let within = Regex::new(r"pub\(in [^)]*\)").unwrap();
        let import = Regex::new(r"(pub(?:\([a-z]*\))? )?(?-u:\b)use ([^;]+);").unwrap();
        let path = Regex::new(r"(?-u:\b)(?:crate|super|self)(?:::[A-Za-z0-9_]+)+").unwrap();
        for (place, file) in files.iter().filter(|(_, file)| !is_of_tests(file)) {
            let lines: Vec<String> = code(file).into_iter().map(|(_, line)| line).collect();
            let code = within.replace_all(&text.replace_all(&lines.join("\n"), "''"), "pub").into_owned();
            let (mut out, mut used) = (Vec::new(), Vec::new());
            for import in import.captures_iter(&code) {
                let list = if import.get(1).is_some() { &mut out } else { &mut used };
                list.extend(paths_of(&import[2]).iter().filter_map(|path| absolute(&files, place, path)));
            }
            let rest = import.replace_all(&code, "");
            used.extend(path.find_iter(&rest).filter_map(|path| absolute(&files, place, path.as_str())));
            let parts = files.keys().filter(|part| part.len() == place.len() + 1 && part.starts_with(place));
            used.extend(parts.filter(|part| rest.contains(&format!(" {}::", part.last().unwrap()))).cloned());
            exports.insert(file.clone(), out);
            uses.insert(file.clone(), used);
        }
        Self { files, exports, uses }
    }

    /// The file that holds what this path names, through what others hand on.
    fn file_of(&self, path: &[String], depth: usize) -> Option<&String> {
        let held = (0..=path.len()).rev().find(|length| self.files.contains_key(&path[..*length]))?;
        let file = &self.files[&path[..held]];
        let Some(name) = path.get(held).filter(|_| depth < 8) else { return Some(file) };
        let handed_on = self.exports.get(file).into_iter().flatten().find(|export| export.last() == Some(name));
        handed_on.and_then(|export| self.file_of(export, depth + 1)).or(Some(file))
    }

    /// Which files each file knows.
    fn known(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let known = |(file, paths): (&'_ String, &'_ Vec<Place>)| -> BTreeSet<&str> {
            let found = paths.iter().filter_map(|path| self.file_of(path, 0)).map(String::as_str);
            found.filter(|known| known != file && *known != "src/lib.rs").collect()
        };
        self.uses.iter().map(|(file, paths)| (file.as_str(), known((file, paths)))).collect()
    }
}

/// A path from the root of the crate; `None` for another crate's.
fn absolute(files: &BTreeMap<Place, String>, from: &Place, path: &str) -> Option<Place> {
    let mut parts: Vec<&str> = path.split("::").collect();
    let mut place = from.clone();
    match parts[0] {
        // Providers and stand-ins name modules of their own, and those of the core that they import at their root.
        "crate" => {
            place.truncate(1);
            place.extend(parts.get(1).map(|part| (*part).to_owned()));
            let is_own = ["providers", "sandbox"].contains(&place[0].as_str()) && files.contains_key(&place);
            place.truncate(usize::from(is_own));
        }
        "self" => {}
        "super" => {
            while parts.get(1) == Some(&"super") {
                parts.remove(0);
                place.pop();
            }
            place.pop();
        }
        part => {
            place.push(part.to_owned());
            files.get(&place)?;
        }
    }
    place.extend(parts[1..].iter().map(|part| (*part).to_owned()));
    Some(place)
}

/// Everything reachable from here.
fn reach<'a, T: Ord + ?Sized>(known: &'a BTreeMap<&'a T, BTreeSet<&'a T>>, from: &'a T) -> BTreeSet<&'a T> {
    let (mut met, mut left) = (BTreeSet::new(), vec![from]);
    while let Some(one) = left.pop() {
        left.extend(known.get(one).into_iter().flatten().filter(|next| met.insert(**next)));
    }
    met
}

/// The circles among modules that stand side by side, at every level: files as well as folders. A step from a file to
/// another one counts where their paths part; one to a module of its own, or to the module that it is part of, is no
/// step beside. Given are the places of files, and which others each knows.
fn circles(steps: &[(&[String], &[String])]) -> Vec<String> {
    let mut known: BTreeMap<&[String], BTreeSet<&[String]>> = BTreeMap::new();
    let mut reason: BTreeMap<(&[String], &[String]), String> = BTreeMap::new();
    for (from, to) in steps {
        let shared = from.iter().zip(*to).take_while(|(one, other)| one == other).count();
        if let (Some(from_beside), Some(to_beside)) = (from.get(..=shared), to.get(..=shared)) {
            known.entry(from_beside).or_default().insert(to_beside);
            let step = format!("{} -> {}", from.join("/"), to.join("/"));
            reason.entry((from_beside, to_beside)).or_insert(step);
        }
    }
    let is_in_circle = |(from, to): &(&[String], &[String])| reach(&known, to).contains(from);
    reason.iter().filter(|(step, _)| is_in_circle(step)).map(|(_, why)| why.clone()).collect()
}

#[test]
fn no_files_and_no_folders_depend_on_each_other_in_a_circle() {
    let house = House::read();
    let known = house.known();
    let steps: usize = known.values().map(BTreeSet::len).sum();
    assert!(known.len() > 300 && steps > 1000, "{} files, {steps} steps between them", known.len());
    // The steps are seen: this pair knows each other, as a module and its part.
    assert!(known["src/core/plan/reconcile.rs"].contains("src/core/plan/reconcile/hosts.rs"));
    assert!(known["src/core/plan/reconcile/hosts.rs"].contains("src/core/plan/reconcile.rs"));
    let places: BTreeMap<&str, &Place> = house.files.iter().map(|(place, file)| (file.as_str(), place)).collect();
    let steps: Vec<(&[String], &[String])> = known
        .iter()
        .flat_map(|(file, next)| next.iter().map(|other| (places[file].as_slice(), places[other].as_slice())))
        .collect();
    none(&circles(&steps), "these steps are parts of circles");
}

/// What an invented house with these steps has of circles.
fn circles_of(steps: &[(&str, &str)]) -> Vec<String> {
    let place = |file: &str| file.split('/').map(str::to_owned).collect::<Place>();
    let steps: Vec<(Place, Place)> = steps.iter().map(|(from, to)| (place(from), place(to))).collect();
    circles(&steps.iter().map(|(from, to)| (from.as_slice(), to.as_slice())).collect::<Vec<_>>())
}

#[test]
fn a_circle_of_files_in_one_folder_is_refused() {
    assert_eq!(circles_of(&[("a/x", "a/y"), ("a/y", "a/z"), ("b/x", "a/x")]), [""; 0]);
    assert_eq!(circles_of(&[("a/x", "a/y"), ("a/y", "a/z"), ("a/z", "a/x")]).len(), 3);
}

#[test]
fn a_circle_of_folders_is_refused_though_its_files_have_none() {
    assert_eq!(circles_of(&[("top/a/x", "top/b/x"), ("top/b/y", "top/c"), ("top/c", "top/d/x")]), [""; 0]);
    let found = circles_of(&[("top/a/x", "top/b/x"), ("top/b/y", "top/c"), ("top/c", "top/a/y")]);
    assert_eq!(found, ["top/a/x -> top/b/x", "top/b/y -> top/c", "top/c -> top/a/y"]);
    // A module and its parts are one.
    assert_eq!(circles_of(&[("a/x", "a"), ("a", "a/x")]), [""; 0]);
}
