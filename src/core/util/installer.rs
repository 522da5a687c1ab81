//! Why pip or uv failed, from what they printed. Their forms are those of pip 23 to 26 and uv 0.4 to 0.13.

use super::text::shortened;

/// Why an installer failed, as one sentence; `None` if the output is of neither, or of one that did not fail.
///
/// What the build of a package said comes first, and not that the build failed.
pub fn failure(output: &str) -> Option<String> {
    let lines: Vec<&str> = output.lines().map(str::trim).collect();
    let pip = |why: String| format!("pip failed: {}", shortened(&why));
    let uv = |why: String| format!("uv failed: {}", shortened(&why));
    let of_build = pip_build(&lines).map(pip);
    of_build.or_else(|| uv_failure(&lines).map(uv)).or_else(|| pip_error(&lines).map(pip))
}

/// What the last of these lines says of a failure: that of a program's output. A compiler's own error is before the line
/// that says that the compiler failed.
fn last_words<'a>(lines: &[&'a str]) -> Option<&'a str> {
    let says = |line: &&&str| {
        !line.is_empty() && !["note:", "hint:", "exit code:"].iter().any(|begin| line.starts_with(begin))
    };
    let last = lines.iter().rfind(says)?;
    let of_compiler = |line: &&&str| line.contains(" error: ") || line.contains(": fatal: ");
    let words = match last.starts_with("error: command ") {
        true => lines.iter().find(of_compiler).unwrap_or(last),
        false => last,
    };
    Some(words.strip_prefix("ERROR: ").unwrap_or(words))
}

/// The build of a package, whose output pip quotes: `╰─> [4 lines of output]` to `[end of output]`.
fn pip_build(lines: &[&str]) -> Option<String> {
    let begin = lines.iter().rposition(|line| line.starts_with("╰─> [") && line.ends_with("of output]"))?;
    let rest = &lines[begin + 1..];
    let end = rest.iter().position(|line| *line == "[end of output]").unwrap_or(rest.len());
    let why = last_words(&rest[..end])?;
    let file = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let of_line = |line: &&str| {
        let word = |begin: &str| Some(line.strip_prefix(begin)?.split([' ', '\'', '"', ',']).next()?.to_owned());
        let built = word("Building wheel for ").or_else(|| word("Collecting "));
        built
            .or_else(|| word("Processing ").map(|path| file(&path)))
            .or_else(|| word("Downloading ").map(|path| file(&path)))
    };
    // `Failed to build 'badpkg' when getting requirements to build wheel`, since pip 25
    let quoted = |line: &&str| Some(line.strip_prefix("ERROR: Failed to build '")?.split_once('\'')?.0.to_owned());
    let package = rest.iter().find_map(quoted).or_else(|| lines[..begin].iter().rev().find_map(of_line));
    Some(format!("{} cannot be built: {why}", package.as_deref().unwrap_or("a package")))
}

/// A chain of uv: `error: WHAT` and `cause: WHY`, earlier `× WHAT`, `├─▶ WHY` and `╰─▶ WHY`, or `Caused by: WHY`.
fn uv_failure(lines: &[&str]) -> Option<String> {
    let cause = |line: &&str| {
        let begins = ["cause: ", "Caused by: ", "├─▶ ", "╰─▶ "];
        begins.iter().find_map(|begin| line.strip_prefix(begin)).map(str::to_owned)
    };
    let first = lines.iter().position(|line| cause(line).is_some())?;
    let what = lines[..first].iter().rev().find_map(|line| line.strip_prefix("error: ").or(line.strip_prefix("× ")));
    // The build of a package.
    if let Some(begin) = lines.iter().rposition(|line| matches!(*line, "[stderr]" | "[stdout]")) {
        let rest = &lines[begin + 1..];
        let end = rest.iter().position(|line| line.starts_with("hint:")).unwrap_or(rest.len());
        let why = last_words(&rest[..end])?;
        return Some(what.map_or(why.to_owned(), |what| format!("{what}: {why}")));
    }
    let causes: Vec<usize> = (first..lines.len()).filter(|at| cause(&lines[*at]).is_some()).collect();
    let mut why = cause(lines.get(*causes.last()?)?)?;
    for more in lines[causes.last()? + 1..].iter().take_while(|line| !line.is_empty() && !line.starts_with("hint:")) {
        why = format!("{why} {more}");
    }
    if causes.len() > 2 {
        why = format!("{}: {why}", cause(&lines[first])?);
    }
    // The solver's chain says all; of the others, the first says what, and the last why.
    match what {
        Some(what) if !what.starts_with("No solution found") => Some(format!("{what}: {why}")),
        _ => Some(why),
    }
}

/// `ERROR: WHY`, or a block `error: KIND` with `× WHAT` and `╰─> WHY`.
fn pip_error(lines: &[&str]) -> Option<String> {
    // What only warns, and what a traceback follows.
    let is_why = |why: &&str| !why.starts_with("pip's dependency resolver does not") && *why != "Exception:";
    if let Some(why) = lines.iter().filter_map(|line| line.strip_prefix("ERROR: ")).find(is_why) {
        return Some(few_versions(why));
    }
    let block = lines
        .iter()
        .position(|line| line.strip_prefix("error: ").is_some_and(|kind| kind.contains('-') && !kind.contains(' ')))?;
    let part = |begin: &str| lines[block..].iter().find_map(|line| line.strip_prefix(begin));
    let why = part("╰─> ").filter(|why| !why.starts_with("See above"));
    Some(match (part("× "), why) {
        (Some(what), Some(why)) => format!("{what}: {why}"),
        (Some(what), None) => what.to_owned(),
        (None, _) => lines[block].strip_prefix("error: ")?.to_owned(),
    })
}

/// The line with only the last of many versions: `(from versions: …, 2.7.0, 2.8.0)`.
fn few_versions(line: &str) -> String {
    const KEPT: usize = 3;
    let Some((before, rest)) = line.split_once("(from versions: ") else { return line.to_owned() };
    let Some((versions, after)) = rest.split_once(')') else { return line.to_owned() };
    let versions: Vec<&str> = versions.split(", ").collect();
    match versions.len().checked_sub(KEPT) {
        Some(more) if more > KEPT => format!("{before}(from versions: …, {}){after}", versions[more..].join(", ")),
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As pip 23.2 printed it for a package that asks for a compiler.
    const PIP_BUILD: &str = "Looking in links: /opt/wheels\nProcessing /home/a/badpkg-1.0.tar.gz\n  \
        Getting requirements to build wheel: finished with status 'error'\n  error: subprocess-exited-with-error\n  \n  \
        × Getting requirements to build wheel did not run successfully.\n  │ exit code: 1\n  ╰─> [1 lines of output]\n      \
        nvcc not found: install CUDA toolkit first\n      [end of output]\n  \n  note: This error originates from a \
        subprocess, and is likely not a problem with pip.\nerror: subprocess-exited-with-error\n\n\
        × Getting requirements to build wheel did not run successfully.\n│ exit code: 1\n╰─> See above for output.\n\n\
        note: This error originates from a subprocess, and is likely not a problem with pip.";
    /// As uv 0.13 printed it for the same package.
    const UV_BUILD: &str = "Using Python 3.11.7 environment at: /x/virtualenv\nerror: Failed to build `badpkg @ \
        file:///home/a/badpkg-1.0.tar.gz`\n  cause: The build backend returned an error\n  cause: Call to \
        `setuptools.build_meta:__legacy__.get_requires_for_build_wheel` failed (exit status: 1)\n\n         [stderr]\n         \
        nvcc not found: install CUDA toolkit first\n\nhint: Build failures usually indicate a problem with the package or \
        the build environment";
    const UV_SOLVER: &str = "error: No solution found when resolving dependencies\n  cause: Because a==2 depends on b<3 \
        and you require a==2, we can conclude that you require b<3.\n         And because you require b==5, we can conclude \
        that your requirements are unsatisfiable.";

    #[test]
    fn the_cause_is_found_in_what_installers_print() {
        let traceback = PIP_BUILD.replace(
            "nvcc not found: install CUDA toolkit first",
            "Traceback (most recent call last):\n        File \"setup.py\", line 9\n      ModuleNotFoundError: No module named \
             'distutils.msvccompiler'",
        );
        let compiler = PIP_BUILD.replace(
            "nvcc not found: install CUDA toolkit first",
            "x.cpp:1:10: fatal error: cuda.h: No such file or directory\n      compilation terminated.\n      error: command \
             '/usr/bin/g++' failed with exit code 1",
        );
        let newer = format!("{PIP_BUILD}\nERROR: Failed to build 'badpkg' when getting requirements to build wheel");
        let versions = (0..20).map(|number| format!("1.{number}")).collect::<Vec<_>>().join(", ");
        let many =
            format!("ERROR: Could not find a version that satisfies the requirement a==9 (from versions: {versions})");
        let rows: Vec<(String, &str)> = vec![
            (PIP_BUILD.into(), "pip failed: badpkg-1.0.tar.gz cannot be built: nvcc not found: install CUDA toolkit first"),
            (newer, "pip failed: badpkg cannot be built: nvcc not found: install CUDA toolkit first"),
            (
                traceback,
                "pip failed: badpkg-1.0.tar.gz cannot be built: ModuleNotFoundError: No module named 'distutils.msvccompiler'",
            ),
            (
                compiler,
                "pip failed: badpkg-1.0.tar.gz cannot be built: x.cpp:1:10: fatal error: cuda.h: No such file or directory",
            ),
            (
                UV_BUILD.into(),
                "uv failed: Failed to build `badpkg @ file:///home/a/badpkg-1.0.tar.gz`: nvcc not found: install CUDA toolkit \
                 first",
            ),
            (
                "  × Failed to build `a==1`\n  ├─▶ The build backend returned an error\n  ╰─▶ Call to `b.build_wheel` failed \
                 (exit status: 1)\n\n      [stderr]\n      ValueError: no\n\n      hint: This usually indicates a problem"
                    .into(),
                "uv failed: Failed to build `a==1`: ValueError: no",
            ),
            (
                UV_SOLVER.into(),
                "uv failed: Because a==2 depends on b<3 and you require a==2, we can conclude that you require b<3. And \
                 because you require b==5, we can conclude that your requirements are unsatisfiable",
            ),
            (
                "error: Request failed after 3 retries in 8.9s\n  cause: Failed to fetch: http://index/simple/a/\n  cause: \
                 tcp connect error\n  cause: Connection refused (os error 111)"
                    .into(),
                "uv failed: Request failed after 3 retries in 8.9s: Failed to fetch: http://index/simple/a/: Connection refused (os \
                 error 111)",
            ),
            (
                "ERROR: pip's dependency resolver does not currently take into account all the packages\nERROR: Cannot install \
                 a==1 and b==2 because these package versions have conflicting dependencies."
                    .into(),
                "pip failed: Cannot install a==1 and b==2 because these package versions have conflicting dependencies",
            ),
            (
                many,
                "pip failed: Could not find a version that satisfies the requirement a==9 (from versions: …, 1.17, 1.18, 1.19)",
            ),
            (
                "error: externally-managed-environment\n\n× This environment is externally managed\n╰─> To install Python \
                 packages system-wide, try apt install"
                    .into(),
                "pip failed: This environment is externally managed: To install Python packages system-wide, try apt install",
            ),
        ];
        for (output, expected) in rows {
            assert_eq!(failure(&output).as_deref(), Some(expected), "{output}");
            // Ray indents what it quotes.
            let indented: String = output.lines().map(|line| format!("    {line}\n")).collect();
            assert_eq!(failure(&indented).as_deref(), Some(expected), "{indented}");
        }
        for output in ["", "ValueError: bad `conda`", "Successfully installed a-1", "error: unrelated words\nmore"] {
            assert_eq!(failure(output), None, "{output}");
        }
    }
}
