//! The commits of the repositories in a spec: found once, and kept in the cluster's state until they are to be updated.

use std::process::Stdio;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result, Status};
use crate::spec::{FileSpec, Loaded, Spec};
use crate::util::child;

/// How long a server may take to list its branches and tags.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);

/// Whether commits that are already known are looked up again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pins {
    /// They stay.
    Keep,
    /// They are looked up again.
    Update,
    /// They stay, and what is not known stays unknown: no server is asked.
    Known,
}

/// The spec with a commit for each repository: as in the state, or as its server says now.
pub(super) async fn pinned(loaded: &Loaded, known: Option<&Spec>, pins: Pins) -> Result<Loaded> {
    let mut loaded = loaded.clone();
    for file in &mut loaded.spec.files {
        let Some(url) = file.git.clone() else { continue };
        let is_same = |other: &&FileSpec| other.git == file.git && other.reference == file.reference;
        let before =
            known.into_iter().flat_map(|spec| &spec.files).find(is_same).and_then(|other| other.commit.clone());
        file.commit = match before.filter(|_| pins != Pins::Update) {
            Some(commit) => Some(commit),
            None if is_commit(file.reference()) => Some(file.reference().to_ascii_lowercase()),
            None if pins == Pins::Known => None,
            None => Some(look_up(&url, file.reference()).await?),
        };
    }
    Ok(loaded)
}

fn is_commit(reference: &str) -> bool {
    reference.len() == 40 && reference.chars().all(|letter| letter.is_ascii_hexdigit())
}

/// Asks the server of a repository which commit a branch or tag is, with the user's own git.
async fn look_up(url: &str, reference: &str) -> Result<String> {
    let failed = |why: String| Error::new(ErrorKind::Host, format!("find `{reference}` of {url}")).because(why);
    let mut git = child::async_command("git");
    for (setting, value) in
        [("protocol.allow", "never"), ("protocol.https.allow", "always"), ("protocol.ssh.allow", "always")]
    {
        git.args(["-c", &format!("{setting}={value}")]);
    }
    git.args(["ls-remote", "--", url, reference, &format!("{reference}^{{}}")])
        // No repository is looked for, neither there nor above: its configuration could name programs.
        .env("GIT_DIR", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let output = match tokio::time::timeout(ANSWERS_WITHIN, git.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(failed("git is missing on this machine".to_owned()).hint("sudo apt-get install git"));
        }
        Ok(Err(error)) => return Err(failed(error.to_string())),
        Err(_) => {
            let why = format!("its server did not answer within {} seconds", ANSWERS_WITHIN.as_secs());
            return Err(failed(why).status(Status::Temporary));
        }
    };
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(said.trim().lines().last().unwrap_or("git failed").to_owned())
            .hint(format!("try it: git ls-remote {url}")));
    }
    chosen(&text, reference).ok_or_else(|| {
        failed(format!("the repository has no branch or tag `{reference}`"))
            .hint(format!("`git ls-remote {url}` lists them; an older commit is named by its 40 digits"))
    })
}

/// The commit of a reference in the output of `git ls-remote`: a branch before a tag, and of a tag what it points to.
fn chosen(listed: &str, reference: &str) -> Option<String> {
    let of = |name: String| {
        let lines = listed.lines().filter_map(|line| line.split_once('\t'));
        lines
            .filter(|(commit, _)| is_commit(commit))
            .find(|(_, found)| *found == name)
            .map(|(commit, _)| commit.to_owned())
    };
    [
        format!("refs/heads/{reference}"),
        format!("refs/tags/{reference}^{{}}"),
        format!("refs/tags/{reference}"),
        format!("{reference}^{{}}"),
        reference.to_owned(),
    ]
    .into_iter()
    .find_map(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_a_branch_or_what_a_tag_points_to() {
        let commit = |letter: char| letter.to_string().repeat(40);
        let listed = format!(
            "{}\tHEAD\n{}\trefs/heads/main\n{}\trefs/heads/x/main\n{}\trefs/tags/v1\n{}\trefs/tags/v1^{{}}\nnoise\trefs/heads/bad\n",
            commit('a'),
            commit('b'),
            commit('c'),
            commit('d'),
            commit('e')
        );
        for (reference, wanted) in
            [("HEAD", 'a'), ("main", 'b'), ("x/main", 'c'), ("v1", 'e'), ("refs/heads/main", 'b')]
        {
            assert_eq!(chosen(&listed, reference), Some(commit(wanted)), "{reference}");
        }
        assert_eq!(chosen(&listed, "gone"), None);
        assert_eq!(chosen(&listed, "bad"), None);
    }
}
