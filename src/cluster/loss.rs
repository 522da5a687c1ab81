//! What is lost with a cluster that a person takes down: what its spec saves, and was not saved yet.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;

use super::guards::look_at_guards;
use super::settings::Settings;
use crate::agent::end::End;
use crate::agent::seen::{GuardsReport, Saved, SavedHere, all_saved_of};
use crate::agent::watcher::Watcher;
use crate::name::ClusterName;
use crate::spec::{EndSpec, SaveTo};
use crate::state::{ClusterState, Store};

/// How long hosts may take to say what is saved: whoever takes a cluster down does not wait for one that is gone.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// What is lost with a cluster if it is taken down now, a sentence each. Nothing where its spec saves nothing, nor where its
/// agent takes it down, which has looked already. In the last minutes its hosts are asked. A state that cannot be read is no
/// reason to keep what costs money.
pub async fn loss(settings: &Settings, name: &ClusterName) -> Vec<String> {
    let folder = settings.paths.cluster(name);
    let Ok(Some(store)) = Store::open(&settings.paths, name) else { return Vec::new() };
    let known = store.state();
    let Some(of_spec) = known.running_spec().and_then(|spec| spec.end.clone()).filter(|end| !end.save.is_empty())
    else {
        return Vec::new();
    };
    if Watcher::why(&folder).is_some() {
        return Vec::new();
    }
    if !has_begun(&folder, known, &of_spec) {
        return vec![unasked(name, &of_spec)];
    }
    settings.events.note("asking its hosts what is saved");
    let asked = tokio::time::timeout(ANSWERS_WITHIN, look_at_guards(settings, name)).await;
    let is_new = matches!(asked, Ok(Ok(Some(_))));
    let lost = not_saved(&of_spec, GuardsReport::of(&folder).as_ref(), &SavedHere::of(&folder), all_saved_of(&folder));
    let old = (!is_new && lost.is_empty()).then(|| unasked(name, &of_spec));
    let hint = (!lost.is_empty()).then(|| format!("`gpucl save -c {name}` saves it first"));
    lost.into_iter().map(|line| format!("lost with it: {line}")).chain(hint).chain(old).collect()
}

/// Whether the last minutes of a cluster have begun.
fn has_begun(folder: &Path, known: &ClusterState, of_spec: &EndSpec) -> bool {
    End::of(folder, known).is_some_and(|end| end.before(of_spec.warning()) <= Timestamp::now())
}

fn unasked(name: &ClusterName, of_spec: &EndSpec) -> String {
    let names: Vec<String> = of_spec.save.iter().map(|save| String::from(save.from.clone())).collect();
    format!("what was not saved yet is lost: `gpucl save -c {name}` saves {} first", names.join(", "))
}

/// What is not saved, by what hosts and this machine say.
fn not_saved(of_spec: &EndSpec, seen: Option<&GuardsReport>, here: &SavedHere, all: Vec<Saved>) -> Vec<String> {
    let mut lines: Vec<String> = all.iter().filter(|saved| !saved.complete).map(Saved::line).collect();
    let silent = seen.into_iter().flat_map(|seen| &seen.hosts).filter(|host| host.guard.is_none());
    lines.extend(silent.map(|host| {
        format!("what {} has not saved, which it does not say: {}", host.host, host.error.clone().unwrap_or_default())
    }));
    let to_here = of_spec.save.iter().filter(|save| matches!(save.to, SaveTo::Here(_)));
    let to_here = to_here.map(|save| (String::from(save.from.clone()), String::from(save.to.clone())));
    let is_begun = |from: &str, to: &str| here.saved.iter().any(|saved| saved.from == from && saved.to == to);
    lines.extend(
        to_here.filter(|(from, to)| !is_begun(from, to)).map(|(from, to)| format!("{from} to {to}: not begun yet")),
    );
    lines
}

/// What was saved of a cluster that has been taken down, and what is lost with it, a line each. What hosts did at an end that
/// nothing here has seen is known only where they saved to.
pub(super) fn saved_and_lost(folder: &Path, known: &ClusterState) -> (Vec<String>, Vec<String>) {
    let end = End::of(folder, known).map(|end| end.at).filter(|end| *end <= Timestamp::now());
    sorted(&all_saved_of(folder), GuardsReport::of(folder).as_ref(), end)
}

fn sorted(all: &[Saved], seen: Option<&GuardsReport>, passed: Option<Timestamp>) -> (Vec<String>, Vec<String>) {
    let last_seen = seen.zip(passed).filter(|(seen, end)| seen.at < *end).map(|(seen, _)| seen.at);
    // Of a cluster whose last minutes had not begun, nothing was to be saved yet.
    let has_begun = last_seen.is_some() || seen.is_some_and(GuardsReport::has_begun);
    let (mut is_saved, mut lost) = (Vec::new(), Vec::new());
    for saved in all {
        match last_seen {
            _ if saved.complete => is_saved.push(saved.line()),
            Some(at) if saved.failed.is_none() && !saved.to.starts_with("here:") => {
                is_saved.push(saved.unseen_line(at))
            }
            _ if has_begun => lost.push(saved.line()),
            _ => {}
        }
    }
    (is_saved, lost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::seen::{GuardPhase, GuardState, HostGuard};

    #[test]
    fn what_hosts_did_at_an_end_that_nobody_here_saw_is_neither_saved_nor_lost() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let guard = GuardState { phase: GuardPhase::Waiting, ..GuardState::default() };
        let hosts = vec![HostGuard { host: "host-0".to_owned(), guard: Some(guard), error: None }];
        let seen = GuardsReport::new(at(100), hosts, &[]);
        let of = |to: &str, complete| Saved { from: "a".to_owned(), to: to.to_owned(), complete, ..Saved::default() };
        let all = [of("s3://b/x", false), of("here:x", false), of("/y", true)];
        let refused = [Saved { failed: Some("the store refuses".to_owned()), ..of("s3://b/x", false) }];
        let (saved, lost) = sorted(&all, Some(&seen), Some(at(200)));
        assert!(saved[0].contains("to s3://b/x: not seen from here since"), "{saved:?}");
        assert!(saved[0].ends_with("its list is in s3://b/x/.gpucl"), "{saved:?}");
        assert_eq!((saved.len(), lost.len()), (2, 1), "{saved:?} {lost:?}");
        assert!(lost[0].starts_with("a to here:x: not all saved yet"), "{lost:?}");
        let (saved, lost) = sorted(&refused, Some(&seen), Some(at(200)));
        assert!(saved.is_empty() && lost[0].contains("the store refuses"), "{saved:?} {lost:?}");
        // Seen after the end; and long before it.
        assert_eq!(sorted(&all, Some(&seen), Some(at(50))).0.len(), 1);
        assert_eq!(sorted(&all, Some(&seen), None).1, [""; 0]);
    }

    #[test]
    fn what_is_half_saved_silent_or_not_begun_is_lost_and_what_is_saved_is_not() {
        let text = "name: demo\nend: {save: [{from: a, to: /x}, {from: b, to: here:b}, {from: c, to: here:c}]}\n";
        let spec = crate::spec::parse("cluster.yaml", text, &crate::providers::find).unwrap().spec;
        let of_spec = spec.end.unwrap();
        let saved = |from: &str, to: &str, complete| Saved {
            from: from.to_owned(),
            to: to.to_owned(),
            complete,
            ..Saved::default()
        };
        let guard = GuardState { phase: GuardPhase::Saving, ..GuardState::default() };
        let hosts = vec![
            HostGuard { host: "host-0".to_owned(), guard: Some(guard), error: None },
            HostGuard { host: "host-1".to_owned(), guard: None, error: Some("it is gone".to_owned()) },
        ];
        let seen = GuardsReport::new(Timestamp::now(), hosts, &[]);
        let here = SavedHere::now(vec![saved("b", "here:b", true)], None);
        let all = vec![saved("a", "/x", false), saved("b", "here:b", true)];
        let lines = not_saved(&of_spec, Some(&seen), &here, all);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[0].starts_with("a to /x: not all saved yet"), "{lines:?}");
        assert!(lines[1].contains("host-1") && lines[1].contains("it is gone"), "{lines:?}");
        assert_eq!(lines[2], "c to here:c: not begun yet");
    }
}
