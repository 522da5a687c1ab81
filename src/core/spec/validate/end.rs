//! Semantic validation of `end:`, `idle:` and `notify:`.

use std::time::Duration;

use super::services::external_store;
use crate::provider::Runtime;
use crate::spec::model::webhook_fault;
use crate::spec::place::{Problem, item, join};
use crate::spec::{NotifySpec, SaveFrom, SaveTo, Spec, Then, Webhook};
use crate::util::human;

/// The shortest time in which anything can be saved.
const SHORTEST_WARNING: Duration = Duration::from_secs(30);
/// The shortest time after which a cluster may count as idle: a job that is being submitted is not seen yet.
const SHORTEST_IDLE: Duration = Duration::from_secs(60);

pub(super) fn end(spec: &Spec, problems: &mut Vec<Problem>) {
    spec.notify.iter().for_each(|notify| self::notify(notify, problems));
    if let Some(idle) = &spec.idle {
        if idle.after() < SHORTEST_IDLE {
            problems.push(Problem::new("idle.after", "is too short: the minimum is 1m"));
        }
        if idle.then == Then::Extend {
            problems.push(Problem::new("idle.then", "cannot be `extend`: use `down` or `stop`"));
        }
    }
    let Some(end) = &spec.end else { return };
    if end.warning() < SHORTEST_WARNING {
        let least = human::duration(SHORTEST_WARNING);
        problems.push(Problem::new("end.warning", format!("is too short to save anything: the minimum is {least}")));
    }
    if let Some(store) = &end.store {
        external_store("end.store", store, problems);
        if spec.store_at_end().is_none() {
            problems.push(
                Problem::of_key("end.store", "is not used: nothing is saved to it")
                    .note("for example: `save: [{from: results, to: s3://my-bucket/run1}]`"),
            );
        }
    }
    let has_store = spec.services().object_store.settings().is_some();
    for (index, save) in end.save.iter().enumerate() {
        let path = item("end.save", index);
        let from_bucket = matches!(save.from, SaveFrom::Bucket(_));
        if from_bucket && !has_store {
            problems.push(
                Problem::new(join(&path, "from"), "is a bucket, but this cluster has no object store")
                    .note("`services: {object_store: true}` has one"),
            );
        }
        if spec.runtime == Runtime::Docker && matches!(&save.to, SaveTo::Host(folder) if folder.starts_with('~')) {
            problems.push(
                Problem::new(
                    join(&path, "to"),
                    "has no meaning in a container: programs there have another home folder",
                )
                .note("use an absolute path, such as `/mnt/results`, which exists on every host"),
            );
        }
        if !matches!(save.to, SaveTo::Bucket(_)) {
            continue;
        }
        if end.store.is_none() && spec.external_store().is_none() {
            problems.push(
                Problem::new(join(&path, "to"), "is a bucket, but no store that outlives the cluster is named")
                    .note("`end: {store: {endpoint: https://s3.example.org, credentials_file: keys}}` names one"),
            );
        } else if from_bucket && end.store.is_none() {
            problems.push(
                Problem::new(path, "would be saved to the store that it is in, which outlives the cluster")
                    .note("leave it out, or name another store: `end.store`"),
            );
        }
    }
    let mut places: Vec<String> = end.save.iter().map(|save| String::from(save.to.clone())).collect();
    places.sort();
    if let Some(twice) = places.windows(2).find(|pair| pair[0] == pair[1]) {
        problems
            .push(Problem::new("end.save", format!("saves two things to `{}`: one would replace the other", twice[0])));
    }
}

fn notify(notify: &NotifySpec, problems: &mut Vec<Problem>) {
    match (&notify.webhook, notify.command.as_slice()) {
        (Some(_), [_, ..]) => {
            problems.push(Problem::of_key("notify", "has both a `webhook` and a `command`: keep one of them"));
        }
        (None, []) => problems.push(
            Problem::of_key("notify", "has neither a `webhook` nor a `command`")
                .note("for example: `notify: {webhook: {file: webhook.txt}}`, or `notify: {command: [./notify.sh]}`"),
        ),
        (None, words) if words[0].is_empty() || words.iter().any(|word| word.contains('\0')) => {
            problems.push(Problem::new("notify.command", "is no program with its arguments"));
        }
        _ => {}
    }
    if let Some(Webhook::Url(url)) = &notify.webhook
        && let Some(fault) = webhook_fault(url.expose())
    {
        problems.push(Problem::new("notify.webhook", fault));
    }
}
