//! The job and its nodes as resources: found by their tags, submitted or claimed, and released.

use std::time::Duration;

use jiff::Timestamp;

use super::Slurm;
use super::login::Effect;
use super::names::{HOST, JOB, job_key, job_tag, number_of, scope_name, scope_of};
use super::queue::{Folder, Job, Seen, host_id};
use super::{found, job, refusal};
use crate::error::{Error, ErrorKind, LeftBehind, Result, Status};
use crate::name::{Owner, Scope, Tag};
use crate::provider::{Acquired, HostRequest, ObservedResource, Recorder, ResourceRequest, ResourceState};
use crate::secret::ensure_key_pair;
use crate::util::human;

/// The names of the cluster's key pairs: the one that logs in to nodes, and the nodes' own.
pub(super) const LOGIN_KEY: &str = "login";
pub(super) const NODE_KEY: &str = "node";

/// How long one question may take.
pub(super) const ANSWER: Duration = Duration::from_secs(120);
/// How long a cancelled job may take to end: `KillWait` (30 s by default) and the site's epilogs.
const END: Duration = Duration::from_secs(180);

/// The resources of a scope, from what was seen.
pub(super) fn of_scope(seen: &Seen, scope: &Scope) -> Vec<ObservedResource> {
    let empty = Folder::default();
    let folder = seen.of(scope);
    let tag = job_tag(scope);
    let mut found = Vec::new();
    let job = seen.job(&tag);
    let nodes = job.and_then(|job| folder.unwrap_or(&empty).nodes_of(job));
    match (job, folder) {
        (Some(job), _) => found.push(ObservedResource {
            state: match nodes {
                Some(_) => ResourceState::Usable,
                None if job.state == "COMPLETING" => ResourceState::Unusable,
                None => ResourceState::Coming,
            },
            until: until(seen, job),
            detail: match nodes {
                None if job.runs() => "it runs, and its nodes have not reported yet".to_owned(),
                None => job.describe(),
                Some(_) => String::new(),
            },
            ..ObservedResource::existing(job_key(), JOB, job.id.clone())
        }),
        // It is gone, and its folder is left.
        (None, Some(folder)) => {
            let id = folder.job.clone().unwrap_or_else(|| "none".to_owned());
            let detail = match seen.ended(&tag, &id) {
                Some(job) => job.describe(),
                None if folder.job.is_some() => "it has ended".to_owned(),
                None => "it was never submitted; its folder is left".to_owned(),
            };
            let state = ResourceState::Unusable;
            found.push(ObservedResource { state, detail, ..ObservedResource::existing(job_key(), JOB, id) });
        }
        (None, None) => {}
    }
    for (key, id) in folder.iter().flat_map(|folder| &folder.claims) {
        let number = number_of(key).unwrap_or(usize::MAX);
        let is_there =
            |job: &&Job| nodes.as_ref().is_some_and(|nodes| number < nodes.len()) && *id == host_id(job, number);
        let running_on = job.filter(is_there);
        found.push(ObservedResource {
            state: if running_on.is_some() { ResourceState::Usable } else { ResourceState::Unusable },
            until: running_on.and_then(|job| until(seen, job)),
            detail: match (running_on, &nodes) {
                (Some(_), Some(nodes)) => nodes.get(number).map(|node| node.node.clone()).unwrap_or_default(),
                _ => why_not(seen, &tag, id),
            },
            ..ObservedResource::existing(key.clone(), HOST, id.clone())
        });
    }
    found
}

/// Why a claimed node cannot be used.
fn why_not(seen: &Seen, tag: &Tag, id: &str) -> String {
    let job = id.split('.').next().unwrap_or_default();
    match seen.ended(tag, job) {
        Some(job) if job.is_live() && !job.runs() => format!("its job does not run: {}", job.describe()),
        Some(job) if job.is_live() => "its job was started again, with other nodes".to_owned(),
        Some(job) => format!("its job is gone: {}", job.describe()),
        None => "its job has ended".to_owned(),
    }
}

/// When the job reaches its time limit.
fn until(seen: &Seen, job: &Job) -> Option<Timestamp> {
    job.runs().then_some(job.left)?.and_then(|left| seen.now.checked_add(left).ok())
}

impl Slurm {
    /// Asks the login machine for all jobs and folders of ours.
    pub(super) async fn see(&self) -> Result<Seen> {
        let doing = format!("ask {} for the jobs", self.login.name());
        let lines = self.login.ask(&doing, "main() { observe; }", &[], Effect::None, ANSWER).await?;
        Seen::read(&lines).ok_or_else(|| {
            Error::new(ErrorKind::Provider, doing).because("its answer was cut off").status(Status::Temporary)
        })
    }

    /// The resources of all scopes for which this holds, each with its tag.
    pub(super) async fn found(&self, is_ours: impl Fn(&Owner) -> bool) -> Result<Vec<(Tag, ObservedResource)>> {
        let seen = self.see().await?;
        let of_jobs = seen.jobs.iter().filter(|job| job.is_live()).map(|job| job.name.clone());
        let of_folders = seen.folders.keys().map(|name| format!("{name}-{JOB}"));
        let mut scopes: Vec<Scope> = of_jobs
            .chain(of_folders)
            .filter_map(|name| name.parse::<Tag>().ok())
            .filter(|tag| tag.key == job_key() && is_ours(&tag.owner))
            .map(|tag| scope_of(&tag))
            .collect();
        scopes.sort_by_key(scope_name);
        scopes.dedup();
        Ok(scopes
            .iter()
            .flat_map(|scope| of_scope(&seen, scope).into_iter().map(|found| (scope.tag(&found.key), found)))
            .collect())
    }

    /// The job, and the host that needs it.
    pub(super) fn chain(&self, request: &HostRequest) -> Result<Vec<ResourceRequest>> {
        let nodes = found::nodes_of(request)?;
        // Whatever is in the batch script: another value means another job.
        let settings = serde_json::json!({ "nodes": nodes, "job": self.digest });
        let mut job = ResourceRequest::new(job_key(), JOB, settings);
        job.found = request.found.clone();
        let host = serde_json::json!({ "number": number_of(&request.key) });
        let mut host = ResourceRequest::new(request.key.clone(), HOST, host);
        (host.needs, host.is_host) = (vec![job_key()], true);
        Ok(vec![job, host])
    }

    /// Submits the job of this tag, or finds it.
    pub(super) async fn submit(
        &self,
        tag: &Tag,
        request: &ResourceRequest,
        recorder: &dyn Recorder,
    ) -> Result<Acquired> {
        let doing = format!("submit the job {tag}");
        let scope = scope_of(tag);
        let nodes = request.settings["nodes"].as_u64().unwrap_or(1);
        let script = self.script(&scope, usize::try_from(nodes).unwrap_or(1))?;
        let clusters = &self.context.clusters_dir.join(tag.cluster.as_str());
        let (login, node) = (ensure_key_pair(clusters, LOGIN_KEY)?, ensure_key_pair(clusters, NODE_KEY)?);
        let node_key = crate::util::fs::read_text_within(&node.file, crate::util::fs::RECORD_LIMIT)
            .map_err(|error| Error::new(ErrorKind::State, doing.clone()).caused_by(&error))?;
        let (name, tag_text) = (scope_name(&scope), tag.to_string());
        let program = job::node_program(&self.library)?;
        let allocation = found::allocation_of(request)?.map(|number| number.to_string()).unwrap_or_default();
        let count = nodes.to_string();
        let variables = [
            ("scope", name.as_str()),
            ("tag", &tag_text),
            ("job_sh", &script),
            ("node_py", &program),
            ("reach_sh", REACH),
            ("authorized", &login.public),
            ("host_key", &node_key),
            ("allocation", &allocation),
            ("nodes", &count),
        ];
        let lines = self.login.ask(&doing, DELIVER, &variables, Effect::Possible, ANSWER).await?;
        let (id, was_there) = match answer(&lines) {
            Some(("new", id)) => (id.to_owned(), false),
            Some(("was", id)) => (id.to_owned(), true),
            Some(("refused", words)) => return Err(refusal::error(&doing, words)),
            _ => return Err(cut_off(&doing).left(LeftBehind::Unknown)),
        };
        if !was_there {
            self.context.events.note(match allocation.is_empty() {
                true => format!("job {id} is in the queue of {}", self.login.name()),
                false => format!("it starts in your allocation {id}"),
            });
        }
        Acquired { id, was_there }.recorded(recorder, tag, &format!("the job {tag}")).await
    }

    /// The batch script, with `@home@` for the user's home folder.
    pub(super) fn script(&self, scope: &Scope, nodes: usize) -> Result<String> {
        let folder = format!("@home@/.gpucl/slurm/{}", scope_name(scope));
        job::script(&self.library, &self.settings, scope, nodes, &folder)
    }

    /// Claims a node of the job as the host of this tag.
    pub(super) async fn claim(&self, tag: &Tag, recorder: &dyn Recorder) -> Result<Acquired> {
        let doing = format!("claim a node for {tag}");
        let failure = |why: String| Error::new(ErrorKind::Provider, doing.clone()).because(why);
        let number = number_of(&tag.key).ok_or_else(|| failure(format!("`{}` is not a host", tag.key)))?;
        let scope = scope_of(tag);
        let seen = self.see().await?;
        let job = seen.job(&job_tag(&scope)).ok_or_else(|| failure("its job is not there".to_owned()))?;
        let nodes = seen.of(&scope).and_then(|folder| folder.nodes_of(job));
        let nodes = nodes.ok_or_else(|| failure(job.describe()).status(Status::Temporary))?;
        if number >= nodes.len() {
            return Err(failure(format!("the job {} has {}", job.id, human::count(nodes.len(), "node"))));
        }
        let id = host_id(job, number);
        let (name, key) = (scope_name(&scope), tag.key.to_string());
        let variables = [("scope", name.as_str()), ("key", &key), ("id", &job.id), ("content", &id)];
        let lines = self.login.ask(&doing, "main() { claim; }", &variables, Effect::Possible, ANSWER).await?;
        let was_there = match answer(&lines) {
            Some((kind @ ("new" | "was"), _)) => kind == "was",
            Some(("gone", _)) => return Err(failure("its job is gone".to_owned()).status(Status::Temporary)),
            _ => return Err(cut_off(&doing).left(LeftBehind::Unknown)),
        };
        Acquired { id, was_there }.recorded(recorder, tag, &format!("the claim of {tag}")).await
    }

    /// Cancels the job and waits for its end, or removes a claim.
    pub(super) async fn give_back(&self, scope: &Scope, resource: &ObservedResource) -> Result<()> {
        let tag = scope.tag(&resource.key).to_string();
        let name = scope_name(scope);
        let (key, id) = (resource.key.to_string(), resource.id.as_str());
        if resource.kind.0 == HOST {
            let doing = format!("give back {tag}");
            let variables = [("scope", name.as_str()), ("key", &key), ("content", id)];
            let lines = self.login.ask(&doing, "main() { unclaim; }", &variables, Effect::None, ANSWER).await;
            return match answer(&lines.map_err(|error| error.left(remaining(id)))?) {
                Some(("gone", _)) => Ok(()),
                _ => Err(cut_off(&doing).left(remaining(id))),
            };
        }
        let doing = format!("cancel the job {id}");
        let rounds = (END.as_secs() * 2).to_string();
        let variables = [("scope", name.as_str()), ("tag", &tag), ("id", id), ("rounds", &rounds)];
        let asked = self.login.ask(&doing, "main() { release; }", &variables, Effect::None, END + ANSWER).await;
        let lines = asked.map_err(|error| error.left(remaining(id)))?;
        match answer(&lines) {
            Some(("gone", _)) => {
                self.report_ends(&name, id, &lines);
                Ok(())
            }
            Some(("refused", words)) => Err(refusal::error(&doing, words).left(remaining(id))),
            Some(("still", state)) => Err(Error::new(ErrorKind::Timeout, doing)
                .because(format!("it is still {state} {} after it was cancelled", human::duration(END)))
                .hint("the site's administrators see why a node does not let go of it: scontrol show job")
                .status(Status::Temporary)
                .left(remaining(id))),
            _ => Err(cut_off(&doing).left(remaining(id))),
        }
    }

    /// Says what the nodes counted at the job's end, and names those that did not.
    fn report_ends(&self, scope: &str, id: &str, lines: &[String]) {
        let with_end: Vec<String> = lines.iter().cloned().chain(["::seen".to_owned()]).collect();
        let folder = Seen::read(&with_end).and_then(|mut seen| seen.folders.remove(scope)).unwrap_or_default();
        let events = &self.context.events;
        for ended in folder.ended.iter().filter(|ended| ended.processes > 0 || ended.files > 0) {
            events.warn(format!(
                "on {}, the job {id} left {} and {} in {}; processes end with the job, files with the site's epilog",
                ended.node,
                human::count(ended.processes as usize, "process"),
                human::count(ended.files as usize, "file"),
                ended.folder
            ));
        }
        for node in folder.nodes.iter().filter(|node| node.job == id) {
            if folder.ended.iter().all(|ended| ended.node != node.node) {
                events.warn(format!(
                    "{} ended without a word, and cannot be looked at without a job there: {} may be left until the \
                     site cleans it",
                    node.node, node.own
                ));
            }
        }
    }
}

pub(super) fn remaining(id: &str) -> LeftBehind {
    LeftBehind::Remaining(vec![id.to_owned()])
}

fn cut_off(doing: &str) -> Error {
    Error::new(ErrorKind::Provider, doing).because("the login machine's answer was cut off").status(Status::Temporary)
}

/// The last line that answers: `::new 17`.
fn answer(lines: &[String]) -> Option<(&str, &str)> {
    let answers = ["new", "was", "refused", "gone", "still"];
    lines.iter().rev().find_map(|line| {
        let (kind, rest) = line.strip_prefix("::")?.split_once(' ').unwrap_or((line.strip_prefix("::")?, ""));
        answers.contains(&kind).then_some((kind, rest))
    })
}

/// The program that connects to a node of the job, on the login machine: its arguments are the node and the socket.
const REACH: &str = include_str!("shell/reach.sh");

/// The end of the program that submits: the files of the job.
const DELIVER: &str = include_str!("shell/deliver.sh");
