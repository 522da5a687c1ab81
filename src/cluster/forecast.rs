//! What will happen at the end of a cluster, in plain words: when, what is saved to where, what is lost all the same, and what
//! needs this machine to be on. Pure.

use jiff::Timestamp;

use crate::agent::end::{Cause, End};
use crate::provider::{Capability, ProviderKind};
use crate::spec::{EndSpec, SaveFrom, SaveSpec, SaveTo, Spec, Then};
use crate::util::human;

/// What will happen at the end of a cluster of this spec, a sentence each; `end` is the earliest that is known by now.
pub(super) fn forecast(spec: &Spec, end: Option<End>) -> Vec<String> {
    let mut lines = match &spec.end {
        Some(of_spec) => at_end(spec, of_spec, end),
        None => without(spec, end).into_iter().collect(),
    };
    lines.extend(idle(spec));
    lines
}

fn at_end(spec: &Spec, of_spec: &EndSpec, end: Option<End>) -> Vec<String> {
    let mut lines = vec![when(spec, of_spec, end)];
    let is_platform = is_on_platform(spec);
    lines.extend(of_spec.save.iter().map(|save| saved(save, is_platform)));
    lines.extend(lost(spec, of_spec, is_platform));
    lines.extend(of_this_machine(spec, of_spec, end));
    lines
}

/// When it begins, and what it comes to.
fn when(spec: &Spec, of_spec: &EndSpec, end: Option<End>) -> String {
    let then = match of_spec.then {
        Then::Down => "the cluster is taken down",
        Then::Stop => "its nodes are stopped",
        Then::Extend => "if the lease could not be extended before, the cluster is taken down",
    };
    let what = format!("jobs are asked to save, and what `end.save` names is copied; once all is saved, {then}");
    let warning = human::duration(of_spec.warning());
    match end {
        Some(end) => {
            let (at, begins) = (human::local(end.at), human::local(end.before(of_spec.warning())));
            format!("at {begins}, {warning} before {} at {at}: {what}, at the latest then", end.why)
        }
        None if spec.deadline.is_none() && spec.max_cost.is_none() && !is_reserved(spec) => {
            "`end:` waits for an end that nothing sets: add `deadline: 3h` or `max_cost`, or it does nothing".to_owned()
        }
        None => format!("{warning} before its end: {what}, at the latest then"),
    }
}

/// Whether its provider may say when hosts end.
fn is_reserved(spec: &Spec) -> bool {
    // A provider whose hosts vanish without a price is one that lends them for a time.
    capability(spec)
        .is_some_and(|capability| capability.reserves || (capability.hosts_vanish && !capability.costs_money))
}

fn capability(spec: &Spec) -> Option<Capability> {
    crate::providers::find(spec.provider.name()).map(|factory| factory.capability()).ok()
}

fn is_on_platform(spec: &Spec) -> bool {
    capability(spec).is_some_and(|capability| capability.kind == ProviderKind::Platform)
}

fn saved(save: &SaveSpec, is_platform: bool) -> String {
    let of = match (is_platform, &save.to) {
        (false, _) => "every host",
        (true, SaveTo::Here(_)) => "every pod",
        // Its guard is there alone.
        (true, _) => "the head's pod",
    };
    let from = match &save.from {
        SaveFrom::Data(path) => format!("$GPUCL_DATA/{path} of {of}"),
        SaveFrom::Bucket(bucket) => format!("{bucket} of the cluster's store"),
    };
    let to = match &save.to {
        SaveTo::Bucket(bucket) => format!("{bucket} of the store that outlives it"),
        SaveTo::Host(path) if is_platform => format!("{path} in it, where a claim is to be"),
        SaveTo::Host(path) => format!("{path} on each host"),
        SaveTo::Here(path) => format!("the folder {path} beside the spec, on this machine"),
    };
    format!("saved then, and verified by digest: {from}, to {to}")
}

/// What is lost although the spec says what is saved.
fn lost(spec: &Spec, of_spec: &EndSpec, is_platform: bool) -> Option<String> {
    if of_spec.then == Then::Stop {
        return None;
    }
    let services = spec.services();
    let of_data: Vec<String> = of_spec
        .save
        .iter()
        .filter_map(|save| match &save.from {
            SaveFrom::Data(path) if is_platform && !matches!(save.to, SaveTo::Here(_)) => {
                Some(format!("`{path}` of the head's pod"))
            }
            SaveFrom::Data(path) => Some(format!("`{path}`")),
            SaveFrom::Bucket(_) => None,
        })
        .collect();
    let buckets: Vec<&str> = of_spec
        .save
        .iter()
        .filter_map(|save| match &save.from {
            // Of a part of a bucket the rest is lost.
            SaveFrom::Bucket(bucket) if bucket.prefix.is_empty() => Some(bucket.name.as_str()),
            _ => None,
        })
        .collect();
    let folders =
        if is_platform { "the data folders of its pods that are on no claim" } else { "the data folders of its hosts" };
    let mut lost = vec![match of_data.is_empty() {
        true => folders.to_owned(),
        false => format!("{folders} but {}", of_data.join(", ")),
    }];
    if let Some(store) = spec.own_store() {
        let is_kept = |bucket: &&String| buckets.contains(&bucket.as_str());
        let kept: Vec<String> = store.buckets.iter().filter(is_kept).map(|bucket| format!("`{bucket}`")).collect();
        lost.push(match kept.is_empty() {
            true => "its object store".to_owned(),
            false => format!("its object store but {}", kept.join(", ")),
        });
    }
    if services.jupyter.settings().is_some() {
        lost.push("Jupyter's workspace".to_owned());
    }
    if spec.own_mlflow() {
        lost.push("MLflow's runs (`gpucl mlflow export DIR` keeps them)".to_owned());
    }
    Some(format!("lost all the same: {}", lost.join(", ")))
}

/// What is not done while this machine is off or asleep.
fn of_this_machine(spec: &Spec, of_spec: &EndSpec, end: Option<End>) -> Option<String> {
    let mut needs = Vec::new();
    if of_spec.save.iter().any(|save| matches!(save.to, SaveTo::Here(_))) {
        needs.push("copying to it");
    }
    if of_spec.then == Then::Extend {
        needs.push("extending the lease");
    }
    let why = end.map(|end| end.why);
    if !matches!(why, Some(Cause::WallClock)) {
        needs.push(match (of_spec.then, why) {
            (Then::Stop, _) => "stopping the nodes",
            (_, Some(Cause::Lease)) => "taking it down before the lease ends",
            _ if capability(spec).is_some_and(|capability| capability.costs_money) => {
                "taking it down, which alone ends the bill of its hosts"
            }
            _ => "taking it down",
        });
    }
    needs.push("learning that somebody else has moved the end");
    Some(format!("only while this machine is on and awake: {}; the rest the hosts do alone", needs.join(", ")))
}

fn idle(spec: &Spec) -> Option<String> {
    let idle = spec.idle.as_ref()?;
    let then = if idle.then == Then::Stop { "its nodes are stopped" } else { "it is taken down" };
    // The guard has a container of its own there.
    let what = match is_on_platform(spec) {
        true => "no job that runs or waits; shells and GPUs of its pods are not seen",
        false => "no job that runs or waits, no kernel at work, no shell, no GPU in use",
    };
    let saves = spec.end.as_ref().is_some_and(|end| !end.save.is_empty());
    Some(format!(
        "when nobody uses it for {} ({what}), {then}{}; \
         `gpucl status` warns 5 minutes before; only while this machine is on and awake",
        human::duration(idle.after()),
        if saves { ", after all that `end.save` names is saved" } else { "" }
    ))
}

/// A note on when data on the hosts' disks is lost, unless there is an external store.
fn without(spec: &Spec, end: Option<End>) -> Option<String> {
    let has_store = spec.services.as_ref().is_some_and(|services| services.has_external_store());
    let end = end.filter(|end| !has_store && end.at > Timestamp::now())?;
    Some(format!(
        "what is on the hosts' disks is lost at {}, when {}; `end: {{save: [{{from: results, to: here:results}}]}}` saves it \
         before, and `services.object_store.external` keeps results outside the cluster",
        human::local(end.at),
        end.why
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> Spec {
        let text = format!("name: demo\n{text}");
        crate::spec::parse("cluster.yaml", &text, &crate::providers::find).unwrap().spec
    }

    fn says(text: &str, why: Option<Cause>) -> String {
        let at = Timestamp::now() + jiff::SignedDuration::from_hours(3);
        forecast(&spec(text), why.map(|why| End { at, why })).join("\n")
    }

    const END: &str =
        "end: {warning: 15m, save: [{from: results, to: /project/me}, {from: models, to: here:models}]}\n";

    #[test]
    fn what_happens_when_what_is_lost_and_what_needs_this_machine_is_said() {
        let text = says(END, Some(Cause::Lease));
        for part in [
            "15m before the lease ends at",
            "once all is saved, the cluster is taken down",
            "$GPUCL_DATA/results of every host, to /project/me on each host",
            "to the folder models beside the spec, on this machine",
            "lost all the same: the data folders of its hosts but `results`, `models`",
            "only while this machine is on and awake: copying to it, taking it down before the lease ends, learning that",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(says("end: {}\n", None).contains("nothing sets"), "an end that never comes is said");
        assert!(!says("deadline: 3h\nend: {}\n", None).contains("nothing sets"));
        let pods = says(
            "provider: kubernetes\ndeadline: 3h\nend: {save: [{from: out, to: /results}, {from: logs, to: here:logs}]}\nidle: {}\n",
            Some(Cause::Deadline),
        );
        for part in [
            "$GPUCL_DATA/out of the head's pod, to /results in it, where a claim is to be",
            "$GPUCL_DATA/logs of every pod, to the folder logs",
            "lost all the same: the data folders of its pods that are on no claim but `out` of the head's pod, `logs`",
            "shells and GPUs of its pods are not seen",
        ] {
            assert!(pods.contains(part), "{part}: {pods}");
        }
        let rented = "provider: lambda\nhosts: [{type: gpu_1x_a10}]\ndeadline: 3h\nend: {}\n";
        assert!(says(rented, Some(Cause::Deadline)).contains("ends the bill of its hosts"));
        assert!(!says("deadline: 3h\nend: {}\n", Some(Cause::Deadline)).contains("bill"));
    }

    #[test]
    fn idleness_and_a_cluster_without_an_end_are_said_too() {
        let idle = says("idle: {after: 20m, then: stop}\n", None);
        assert!(idle.contains("for 20m") && idle.contains("its nodes are stopped"), "{idle}");
        let without = says("", Some(Cause::Lease));
        assert!(without.contains("is lost at") && without.contains("`end: {save"), "{without}");
        assert_eq!(says("", None), "");
    }
}
