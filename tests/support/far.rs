//! A path that the system opens and nobody can spell out.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a file more than 4096 bytes deep into a folder; returns its short path from there, which leads by two links.
pub(crate) fn too_long_a_way(root: &Path, name: &str, content: &str) -> String {
    let [first, second] = ["a", "b"].map(|letter| vec![letter.repeat(200); 11].join("/"));
    // In two steps: no path may be so long at once.
    std::fs::create_dir_all(root.join(&first)).unwrap();
    std::os::unix::fs::symlink(&first, root.join("s1")).unwrap();
    let words = format!("cd s1 && mkdir -p {second} && ln -s {second} s2 && cat >s2/{name}");
    let mut shell = Command::new("sh").args(["-c", &words]).current_dir(root).stdin(Stdio::piped()).spawn().unwrap();
    shell.stdin.take().unwrap().write_all(content.as_bytes()).unwrap();
    assert!(shell.wait().unwrap().success());
    format!("s1/s2/{name}")
}
