//! The HTTP handler: injected faults, dispatch to the services, and the request log.

use std::collections::BTreeMap;

use axum::body::Body as HttpBody;
use axum::extract::connect_info::ConnectInfo;
use axum::http::{Request, Response};
use serde_json::Value;

use super::super::answer::read;
use super::super::door::CONTROL;
use super::super::faults::{Fault, LogEntry, Rule};
use super::super::wire::Wire;
use super::answer::{Answer, Ask, Body};
use super::clock::http;
use super::state::{Shared, State};

/// Answers one request.
pub(super) async fn answer(
    axum::extract::State(shared): axum::extract::State<Shared>,
    ConnectInfo(wire): ConnectInfo<Wire>,
    request: Request<HttpBody>,
) -> Response<HttpBody> {
    let (parts, body) = request.into_parts();
    if let Some(refused) = shared.door().refuses(&parts) {
        return refused.into_response(None);
    }
    let (service, ask) = read(&parts, body).await;
    let path = parts.uri.path().to_owned();
    if service == CONTROL {
        return super::control::answer(&shared, &ask).into_response(None);
    }
    let met = shared.state().faults.take(&ask.method, &path);
    if let Some((_, Fault::Delay(delay))) = &met {
        tokio::time::sleep(*delay).await;
    }
    let (answer, cut) = shared.state().meet(&service, &ask, &path, met);
    if cut {
        wire.cut();
    }
    let now = shared.state().now();
    answer.into_response(Some(http(now)))
}

impl State {
    /// Answers with the fault that is due; returns whether to cut the connection.
    fn meet(&mut self, service: &str, ask: &Ask, path: &str, met: Option<(Rule, Fault)>) -> (Answer, bool) {
        let fault = met.as_ref().map(|(_, fault)| *fault);
        if fault == Some(Fault::TokenExpire)
            && let (Some(id), now) = (ask.header("x-auth-token"), self.now())
            && let Some(token) = self.tokens.get_mut(id)
        {
            token.expires = now;
        }
        let answer = match (fault, &met) {
            (Some(Fault::Status(status)), Some((rule, _))) => troubled(service, status, rule),
            (Some(Fault::Html(status)), Some((rule, _))) => rule.onto(Answer::page(status, rule.body.as_deref())),
            (Some(Fault::AfterHtml(status)), Some((rule, _))) => {
                self.dispatch(service, ask);
                rule.onto(Answer::page(status, rule.body.as_deref()))
            }
            (Some(Fault::CutBefore), _) => Answer::empty(502),
            (Some(Fault::After(status)), Some((rule, _))) => {
                self.dispatch(service, ask);
                troubled(service, status, rule)
            }
            (Some(Fault::Malformed), Some((rule, _))) => {
                let real = self.dispatch(service, ask);
                let body = rule.body.clone().unwrap_or_else(|| "{\"lease\": {\"id\": \"1c899e".to_owned());
                Answer { body: Some(Body::Text("application/json", body)), ..real }
            }
            _ => self.dispatch(service, ask),
        };
        let cut = matches!(fault, Some(Fault::CutBefore | Fault::CutAfter));
        let at = self.now();
        self.faults.log.push(LogEntry {
            method: ask.method.clone(),
            path: path.to_owned(),
            query: ask.query.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join("&"),
            status: if cut { 0 } else { answer.status },
            fault: met.map(|(rule, _)| rule.fault),
            at,
            headers: describe(ask),
            body: ask.json().map(masked),
        });
        (answer, cut)
    }

    fn dispatch(&mut self, service: &str, ask: &Ask) -> Answer {
        let caller = self.authenticated(ask.header("x-auth-token"));
        match service {
            "identity" => self.identity(ask),
            "reservation" => self.reservation(ask, caller.as_ref()),
            "compute" => self.compute(ask, caller.as_ref()),
            "image" => self.image(ask, caller.is_some()),
            "network" => self.network(ask, caller.as_ref()),
            _ => Answer::text(
                404,
                "text/plain",
                "this is a stand-in for OpenStack; its services are /identity /reservation /compute /image /network\n",
            ),
        }
    }
}

/// The error of a failing service, or of a proxy in front of it.
fn troubled(service: &str, status: u16, rule: &Rule) -> Answer {
    let answer = match (&rule.body, status, service) {
        (Some(body), _, _) => Answer::text(status, "application/json", body.clone()),
        (None, 500, "reservation") => Answer::json(
            500,
            serde_json::json!({"error_code": 500, "error_message": "Internal Server Error", "error_name": "INTERNAL_SERVER_ERROR"}),
        ),
        (None, 500, "compute") => Answer::nova(
            500,
            "Unexpected API Error. Please report this at http://bugs.launchpad.net/nova/ and attach the Nova API log if possible.\n\
             <class 'oslo_messaging.exceptions.MessagingTimeout'>",
        ),
        (None, 500, "network") => Answer::neutron(
            500,
            "HTTPInternalServerError",
            "Request Failed: internal server error while processing your request.",
        ),
        (None, 500, "identity") => Answer::keystone(
            500,
            "Internal Server Error",
            "An unexpected error prevented the server from fulfilling your request.",
        ),
        (None, _, _) => Answer::page(status, None),
    };
    rule.onto(answer)
}

/// The headers that affect a service's answer.
fn describe(ask: &Ask) -> BTreeMap<String, String> {
    ["accept", "content-type", "openstack-api-version", "x-openstack-nova-api-version", "user-agent"]
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), ask.header(name)?.to_owned())))
        .collect()
}

fn masked(mut body: Value) -> Value {
    let secrets =
        ["/auth/identity/application_credential/secret", "/auth/identity/token/id", "/auth/identity/password/user"];
    for secret in secrets {
        if let Some(value) = body.pointer_mut(secret) {
            *value = Value::String("***".to_owned());
        }
    }
    body
}
