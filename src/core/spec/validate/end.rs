//! Semantic validation of `end:` and `idle:`.

use std::time::Duration;

use super::services::external_store;
use crate::provider::Runtime;
use crate::spec::place::{Problem, item, join};
use crate::spec::{SaveFrom, SaveTo, Spec, Then};
use crate::util::human;

/// The shortest time in which anything can be saved.
const SHORTEST_WARNING: Duration = Duration::from_secs(30);
/// The shortest time after which a cluster may count as idle: a job that is being submitted is not seen yet.
const SHORTEST_IDLE: Duration = Duration::from_secs(60);

pub(super) fn end(spec: &Spec, problems: &mut Vec<Problem>) {
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
