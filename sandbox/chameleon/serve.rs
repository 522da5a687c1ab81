//! Requests to the site: injected faults, dispatch to the services, and the control.

use serde_json::json;

use super::super::answer::{Answer, Ask};
use super::super::clock::Clock;
use super::super::faults::{self, Fault, Faults, LogEntry, Rule};
use super::super::shared::StandIn;
use super::blazar;
use super::config::User;
use super::snapshot::Snapshot;
use super::state::{Shared, State};

/// The logged headers: they affect a service's answer.
const HEADERS: [&str; 5] =
    ["accept", "content-type", "openstack-api-version", "x-openstack-nova-api-version", "user-agent"];

/// Places of secrets in a body.
const SECRETS: [&str; 3] =
    ["/auth/identity/application_credential/secret", "/auth/identity/token/id", "/auth/identity/password/user"];

impl StandIn for State {
    fn clock(&mut self) -> &mut Clock {
        &mut self.clock
    }

    fn faults(&mut self) -> &mut Faults {
        &mut self.faults
    }

    fn advance(&mut self) {
        self.advance_all();
    }

    fn control(&mut self, ask: &Ask) -> Answer {
        let (method, path) = ask.route();
        match (method, &path[..]) {
            ("GET", ["snapshot"]) => Answer::json(200, json!(Snapshot::of(self))),
            ("POST", ["fail-server"]) => {
                let text = ask.json().and_then(|body| body["fault"].as_str().map(str::to_owned));
                self.failures.push_back(text.unwrap_or_else(|| "Build of instance failed".to_owned()));
                Answer::empty(204)
            }
            ("POST", ["confirm-code"]) => {
                let code = ask.json().and_then(|body| body["code"].as_str().map(str::to_owned));
                match code.is_some_and(|code| self.confirm_code(&code, Some(User::Alice))) {
                    true => Answer::empty(204),
                    false => Answer::text(404, "text/plain", "expected a code that waits to be confirmed\n"),
                }
            }
            ("POST", ["foreign-lease"]) => {
                let body = ask.json().unwrap_or_default();
                let time = |key: &str| body[key].as_str().and_then(|text| text.parse().ok());
                let made = match (body["node"].as_str(), time("start"), time("end")) {
                    (Some(node), Some(start), Some(end)) => self.foreign_lease(node, start, end),
                    _ => None,
                };
                match made {
                    Some(id) => Answer::json(200, json!({"id": id})),
                    None => {
                        Answer::text(400, "text/plain", "expected a known node, start and end (2026-11-22T14:00Z)\n")
                    }
                }
            }
            _ => Answer::text(
                404,
                "text/plain",
                "rules, log, snapshot, advance, fail-server, confirm-code, foreign-lease\n",
            ),
        }
    }

    async fn answer(shared: &Shared, service: &str, ask: &Ask, path: &str) -> Option<Answer> {
        let met = shared.state().faults.take(&ask.method, path);
        if let Some((_, Fault::Delay(delay))) = &met {
            tokio::time::sleep(*delay).await;
        }
        shared.state().meet(service, ask, path, met)
    }
}

impl State {
    /// Answers with the fault that is due, and logs the request.
    fn meet(&mut self, service: &str, ask: &Ask, path: &str, met: Option<(Rule, Fault)>) -> Option<Answer> {
        if let Some((_, Fault::TokenExpire)) = &met
            && let (Some(id), now) = (ask.header("x-auth-token"), self.now())
            && let Some(token) = self.tokens.get_mut(id)
        {
            token.expires = now;
        }
        let answer = faults::meet(
            met.as_ref(),
            || self.dispatch(service, ask),
            |status| error(service, status),
            |_| "{\"lease\": {\"id\": \"1c899e".to_owned(),
        );
        let entry = LogEntry::of(ask, path, self.now(), &HEADERS, &SECRETS);
        let status = answer.as_ref().map_or(0, |answer| answer.status);
        self.faults.log.push(LogEntry { status, fault: met.map(|(rule, _)| rule.fault), ..entry });
        answer
    }

    /// The list of all sites, as at `api.chameleoncloud.org`: without a login.
    fn list_sites(&self) -> Answer {
        let site = |(name, web): &(String, String)| {
            let uid = name.rsplit('@').next().unwrap_or_default().to_lowercase();
            json!({"name": name, "uid": uid, "web": web, "links": [{"rel": "self", "href": format!("/sites/{uid}")}]})
        };
        let items: Vec<_> = self.config.sites.iter().map(site).collect();
        Answer::json(200, json!({"total": items.len(), "offset": 0, "items": items}))
    }

    fn dispatch(&mut self, service: &str, ask: &Ask) -> Answer {
        let caller = self.authenticated(ask.header("x-auth-token"));
        match service {
            "identity" => self.identity(ask),
            "auth" => self.issue_login(ask),
            "sites" => self.list_sites(),
            "reservation" => self.reservation(ask, caller.as_ref()),
            "compute" => self.compute(ask, caller.as_ref()),
            "image" => self.image(ask, caller.is_some()),
            "network" => self.network(ask, caller.as_ref()),
            _ => Answer::text(
                404,
                "text/plain",
                "this is a stand-in for OpenStack; its services are /identity /reservation /compute /image /network, \
                 and its identity provider /auth\n",
            ),
        }
    }
}

/// The error of a failing service; `None` for a status that only a proxy in front of it answers with.
fn error(service: &str, status: u16) -> Option<Answer> {
    if status != 500 {
        return None;
    }
    Some(match service {
        "reservation" => blazar::internal_error(),
        "compute" => Answer::nova(
            500,
            "Unexpected API Error. Please report this at http://bugs.launchpad.net/nova/ and attach the Nova API log if possible.\n\
             <class 'oslo_messaging.exceptions.MessagingTimeout'>",
        ),
        "network" => Answer::neutron(
            500,
            "HTTPInternalServerError",
            "Request Failed: internal server error while processing your request.",
        ),
        "identity" => Answer::keystone(
            500,
            "Internal Server Error",
            "An unexpected error prevented the server from fulfilling your request.",
        ),
        _ => return None,
    })
}
