//! The job and its nodes as resources: found by their tags, submitted or claimed, waited for, and released.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tokio::time::Instant;

use super::Slurm;
use super::login::Effect;
use super::names::{HOST, JOB, job_key, job_tag, number_of, scope_name, scope_of};
use super::queue::{Folder, Job, Node, Seen, host_id, is_final, words_for};
use super::{found, job, refusal};
use crate::error::{Error, ErrorKind, LeftBehind, Result, Status};
use crate::event::EventKind;
use crate::host::{Relay, SshTarget};
use crate::name::{Owner, Scope, Tag};
use crate::provider::{Acquired, HostPlace, HostRequest, ObservedResource, Outage, Recorder, ResourceRequest, Site};
use crate::secret::{ensure_key_pair, key_pair};
use crate::util::{human, when};

/// The names of the cluster's key pairs: the one that logs in to nodes, and the nodes' own.
const LOGIN_KEY: &str = "login";
const NODE_KEY: &str = "node";

/// How long one question may take.
const ANSWER: Duration = Duration::from_secs(120);
/// How long a cancelled job may take to end: `KillWait` (30 s by default) and the site's epilogs.
const END: Duration = Duration::from_secs(180);
/// How often the queue is looked at: at first, and after a while.
const POLLS: [Duration; 2] = [Duration::from_millis(700), Duration::from_secs(10)];
/// How long the first pause lasts.
const EARLY: Duration = Duration::from_secs(20);
/// How long the nodes of a running job may take to report.
const REPORTS_WITHIN: Duration = Duration::from_secs(180);
/// How long one reason that looks final must last: without accounting, the first job after the controller's start shows
/// one for some seconds.
const FINAL_FOR: Duration = Duration::from_secs(6);

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
            usable: nodes.is_some(),
            coming: nodes.is_none() && job.state != "COMPLETING",
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
            found.push(ObservedResource { usable: false, detail, ..ObservedResource::existing(job_key(), JOB, id) });
        }
        (None, None) => {}
    }
    for (key, id) in folder.iter().flat_map(|folder| &folder.claims) {
        let number = number_of(key).unwrap_or(usize::MAX);
        let is_there =
            |job: &&Job| nodes.as_ref().is_some_and(|nodes| number < nodes.len()) && *id == host_id(job, number);
        let usable = job.filter(is_there);
        found.push(ObservedResource {
            usable: usable.is_some(),
            until: usable.and_then(|job| until(seen, job)),
            detail: match (usable, &nodes) {
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
        let save = serde_json::to_string(&self.settings.save).unwrap_or_default();
        let node_key = crate::util::fs::read_text_within(&node.file, crate::util::fs::RECORD_LIMIT)
            .map_err(|error| Error::new(ErrorKind::State, doing.clone()).caused_by(&error))?;
        let (name, tag_text) = (scope_name(&scope), tag.to_string());
        let program = job::node_program(&self.library)?;
        let variables = [
            ("scope", name.as_str()),
            ("tag", &tag_text),
            ("job_sh", &script),
            ("node_py", &program),
            ("reach_sh", REACH),
            ("save_json", &save),
            ("authorized", &login.public),
            ("host_key", &node_key),
        ];
        let lines = self.login.ask(&doing, DELIVER, &variables, Effect::Possible, ANSWER).await?;
        let (id, was_there) = match answer(&lines) {
            Some(("new", id)) => (id.to_owned(), false),
            Some(("was", id)) => (id.to_owned(), true),
            Some(("refused", words)) => return Err(refusal::error(&doing, words)),
            _ => return Err(cut_off(&doing).left(LeftBehind::Unknown)),
        };
        if !was_there {
            self.context.events.note(format!("job {id} is in the queue of {}", self.login.name()));
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
        for saved in &folder.saved {
            saved.results.iter().for_each(|result| events.note(format!("saved before the end: {result}")));
        }
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

    /// Waits until the job runs and its nodes have reported.
    pub(super) async fn wait_for_job(&self, tag: &Tag, id: &str) -> Result<()> {
        let doing = format!("wait for the job {id}");
        let limit = self.settings.queue.map_or(Duration::from_secs(24 * 3600), |limit| limit.0);
        let (begun, mut outage) = (Instant::now(), Outage::new(&self.context.events));
        let (mut reported, mut running_since, mut final_since) = (String::new(), None, None);
        let stays = |error: Error| {
            error
                .left(remaining(id))
                .hint(format!("the same `gpucl up` goes on waiting; `gpucl down -c {}` cancels it", tag.cluster))
        };
        loop {
            let is_over = || begun.elapsed() >= limit;
            if let Some(seen) = outage.outlast(self.see().await, is_over)? {
                let scope = scope_of(tag);
                let Some(job) = seen.job(tag).filter(|job| job.id == id) else {
                    let why = seen.ended(tag, id).map_or_else(|| "it is gone".to_owned(), Job::describe);
                    return Err(self.ended(&doing, &scope, why).await);
                };
                if seen.of(&scope).is_some_and(|folder| folder.nodes_of(job).is_some()) {
                    return Ok(());
                }
                let now = Instant::now();
                let runs_for =
                    running_since.filter(|_| job.runs()).map_or(Duration::ZERO, |since: Instant| now - since);
                running_since = job.runs().then(|| running_since.unwrap_or(now));
                if runs_for > REPORTS_WITHIN {
                    return Err(self.ended(&doing, &scope, "it runs, but its nodes did not report".to_owned()).await);
                }
                final_since = (job.state == "PENDING" && is_final(&job.reason)).then(|| final_since.unwrap_or(now));
                if final_since.is_some_and(|since| now - since >= FINAL_FOR) {
                    let why = format!("it would wait for ever: {}", words_for(&job.reason));
                    let error = Error::new(ErrorKind::Provider, doing).because(why);
                    return Err(error
                        .left(remaining(id))
                        .hint(format!("gpucl down -c {}, and ask for what there is: gpucl offers", tag.cluster)));
                }
                let waiting = describe_wait(job);
                if waiting != reported {
                    let limit_milliseconds = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
                    self.context.events.note(format!("waiting for job {id}: {waiting}"));
                    self.context.events.send(EventKind::Waiting { what: format!("job {id}"), limit_milliseconds });
                    reported = waiting;
                }
            }
            if is_over() {
                return Err(stays(
                    Error::new(ErrorKind::Timeout, doing)
                        .because(format!("it did not start within {} (`provider.queue`)", human::duration(limit))),
                ));
            }
            let pause = if begun.elapsed() < EARLY { POLLS[0] } else { POLLS[1] };
            tokio::time::sleep(pause).await;
        }
    }

    /// The error for a job that ended before its nodes reported, with the end of its log.
    async fn ended(&self, doing: &str, scope: &Scope, why: String) -> Error {
        let name = scope_name(scope);
        let show = "main() { tail -n 8 \"$base/$scope/job.log\" 2>/dev/null | sed 's/^/::log /'; }";
        let variables = [("scope", name.as_str())];
        let asked = self.login.ask("read its log", show, &variables, Effect::None, ANSWER).await;
        let log: Vec<String> = asked
            .unwrap_or_default()
            .iter()
            .filter_map(|line| line.strip_prefix("::log "))
            .map(str::to_owned)
            .collect();
        let error = Error::new(ErrorKind::Provider, doing).because(why);
        match log.is_empty() {
            true => error,
            false => error.because(format!("its log ends with: {}", log.join(" | "))),
        }
    }

    /// How to reach a claimed node.
    pub(super) async fn node_place(&self, tag: &Tag, id: &str) -> Result<HostPlace> {
        let doing = format!("find the node of {tag}");
        let failure = |why: String| {
            Error::new(ErrorKind::Provider, doing.clone()).because(why).hint(format!("gpucl status -c {}", tag.cluster))
        };
        let scope = scope_of(tag);
        let seen = self.see().await?;
        let folder = seen.of(&scope).ok_or_else(|| failure("its job is gone".to_owned()))?;
        if folder.claims.get(&tag.key).is_none_or(|claimed| claimed != id) {
            return Err(failure(format!("no claim has this tag and the id {id}")));
        }
        let job = seen.job(&job_tag(&scope)).ok_or_else(|| failure("its job has ended".to_owned()))?;
        let number = number_of(&tag.key).unwrap_or(usize::MAX);
        let node = folder.nodes_of(job).and_then(|nodes| nodes.get(number).copied().cloned());
        let node = node.filter(|_| *id == host_id(job, number)).ok_or_else(|| failure(job.describe()))?;
        let clusters = self.context.clusters_dir.join(tag.cluster.as_str());
        let words = ["sh", &format!("~/.gpucl/slurm/{}/reach", scope_name(&scope)), &node.node, &node.socket];
        let relay =
            Relay { login: self.login.target().await?.map(Box::new), command: words.map(str::to_owned).to_vec() };
        let is_here = relay.login.is_none();
        Ok(HostPlace::Ssh {
            target: SshTarget {
                node: node.node.clone(),
                user: Some(node.user.clone()).filter(|user| !user.is_empty()),
                port: None,
                identity_file: key_pair(&clusters, LOGIN_KEY).map(|pair| pair.file),
                host_key: key_pair(&clusters, NODE_KEY).map(|pair| pair.public),
                jump: None,
                relay: Some(Box::new(if is_here {
                    at_home(relay, &self.context.user_environment.home)
                } else {
                    relay
                })),
                private_address: node.addresses.first().cloned(),
            },
            site: Box::new(self.site_of(&node, tag)),
        })
    }

    /// What is particular about a node.
    fn site_of(&self, node: &Node, tag: &Tag) -> Site {
        let any = self.site_settings();
        let environments = match any.environments.strip_prefix("~/") {
            Some(below) => format!("{}/{below}", node.home),
            None if any.environments.is_empty() => format!("{}/environments", node.own),
            None => any.environments,
        };
        Site { folder: format!("{}/{tag}", node.own), environments, ..any }
    }

    /// What is particular about all nodes.
    pub(super) fn site_settings(&self) -> Site {
        Site {
            folder: String::new(),
            environments: match self.settings.environment.as_deref() {
                None | Some("node") => String::new(),
                Some("home") => "~/.gpucl/environments".to_owned(),
                Some(folder) => folder.to_owned(),
            },
            modules: self.settings.modules.clone(),
            packages: self.settings.packages(),
            open_network: true,
        }
    }
}

/// Where the job stands: the reason, its place in the queue, and when Slurm expects to start it.
fn describe_wait(job: &Job) -> String {
    if job.state != "PENDING" {
        return if job.runs() { "its nodes report".to_owned() } else { job.describe() };
    }
    let mut text = words_for(&job.reason);
    if let Some((place, all)) = job.place {
        text.push_str(&format!("; {place} of {all} in its partition"));
    }
    if let Some(start) = job.start {
        text.push_str(&format!("; Slurm expects to start it at {}", when::local(start, &TimeZone::system())));
    }
    text
}

/// On this machine no shell expands the leading `~`.
fn at_home(mut relay: Relay, home: &std::path::Path) -> Relay {
    for word in &mut relay.command {
        if let Some(below) = word.strip_prefix("~/") {
            *word = home.join(below).display().to_string();
        }
    }
    relay
}

fn remaining(id: &str) -> LeftBehind {
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
