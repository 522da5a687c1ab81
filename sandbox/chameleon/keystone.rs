//! Keystone v3: users, tokens, application credentials, the catalog.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::answer::{Answer, Ask};
use super::super::clock::after;
use super::super::door::is_same;
use super::config::{Service, User};
use super::format::{long, uuid_of};
use super::records::{Caller, Credential, Token};
use super::state::State;

/// The id of something that is known by its name alone.
fn id_of(name: &str) -> String {
    uuid_of(name).replace('-', "")
}

/// Formats the times in tokens.
fn time(at: Timestamp) -> String {
    format!("{}Z", long(at))
}

impl State {
    pub(super) fn identity(&mut self, ask: &Ask) -> Answer {
        let (method, path) = ask.route();
        match (method, &path[..]) {
            ("GET", []) => Answer::json(300, json!({"versions": {"values": [self.identity_version()]}}))
                .with("location", format!("{}/identity/v3/", self.base)),
            ("GET", ["v3"]) => Answer::json(200, json!({"version": self.identity_version()})),
            ("POST", ["v3", "auth", "tokens"]) => self.make_token(ask),
            ("POST", ["v3", "OS-FEDERATION", "identity_providers", _, "protocols", _, "auth"]) => self.federate(ask),
            ("GET", ["v3", "auth", "tokens"]) => self.show_token(ask),
            ("DELETE", ["v3", "auth", "tokens"]) => self.revoke_token(ask),
            _ => match self.token_of(ask) {
                None => self.refused(),
                Some(token) => self.identity_with(ask, &token),
            },
        }
    }

    fn identity_with(&mut self, ask: &Ask, token: &Token) -> Answer {
        let (method, path) = ask.route();
        let by_restricted = token.credential.as_ref().is_some_and(|id| {
            self.credentials.iter().any(|credential| &credential.id == id && !credential.unrestricted)
        });
        let caller = Self::caller(token.user);
        let not_found = |what: &str| Answer::keystone(404, "Not Found", what);
        match (method, &path[..]) {
            ("GET", ["v3", "auth", "projects"] | ["v3", "OS-FEDERATION", "projects"]) => {
                let more = self.config.more_projects.iter().map(|(name, _)| (id_of(name), name.clone()));
                let all = std::iter::once((caller.project_id, caller.project)).chain(more);
                let project = |(id, name): (String, String)| {
                    json!({"id": id, "name": name, "domain_id": "default", "description": "",
                        "enabled": true, "parent_id": "default", "is_domain": false, "tags": [], "options": {},
                        "links": {"self": format!("{}/identity/v3/projects/{id}", self.base)}})
                };
                let projects: Vec<Value> = all.map(project).collect();
                let own = format!("{}/identity/v3/auth/projects", self.base);
                let links = json!({"next": null, "self": own, "previous": null});
                Answer::json(200, json!({"links": links, "projects": projects}))
            }
            ("GET", ["v3", "auth", "catalog"]) => Answer::json(200, json!({"catalog": self.catalog()})),
            ("GET", ["v3", "users", user, "application_credentials"]) if *user == caller.user_id => {
                let mine: Vec<Value> = self
                    .credentials
                    .iter()
                    .filter(|credential| credential.user.name() == caller.user)
                    .map(|credential| self.render_credential(credential, false))
                    .collect();
                Answer::json(200, json!({"application_credentials": mine}))
            }
            ("POST", ["v3", "users", user, "application_credentials"]) if *user == caller.user_id => {
                let asked = ask.json().unwrap_or_default();
                let credential = Credential {
                    id: self.ids.hex(),
                    secret: self.ids.secret(),
                    name: asked["application_credential"]["name"].as_str().unwrap_or_default().to_owned(),
                    user: token.user,
                    unrestricted: asked["application_credential"]["unrestricted"] == true,
                    expires: asked["application_credential"]["expires_at"].as_str().and_then(|text| text.parse().ok()),
                };
                if by_restricted {
                    return Answer::keystone(
                        403,
                        "Forbidden",
                        "Using method 'application_credential' is not allowed for managing additional application credentials.",
                    );
                }
                let is_taken = |known: &&Credential| known.user.name() == caller.user && known.name == credential.name;
                if self.credentials.iter().any(|known| is_taken(&known)) {
                    let text = format!(
                        "Conflict occurred attempting to store application_credential - Duplicate entry found with name {} at user ID {}.",
                        credential.name, caller.user_id
                    );
                    return Answer::keystone(409, "Conflict", &text);
                }
                let body = self.render_credential(&credential, true);
                self.credentials.push(credential);
                Answer::json(201, json!({"application_credential": body}))
            }
            (_, ["v3", "users", user, "application_credentials", id]) if *user == caller.user_id => {
                let at = self.credentials.iter().position(|credential| &credential.id == id);
                match (method, at) {
                    ("GET", Some(at)) => {
                        let body = self.render_credential(&self.credentials[at], false);
                        Answer::json(200, json!({"application_credential": body}))
                    }
                    ("DELETE", Some(at)) => {
                        self.credentials.remove(at);
                        // Its tokens are revoked with it.
                        self.tokens.retain(|_, token| token.credential.as_deref() != Some(*id));
                        Answer::empty(204)
                    }
                    _ => not_found(&format!("Could not find Application Credential: {id}.")),
                }
            }
            _ => not_found("The resource could not be found."),
        }
    }

    fn identity_version(&self) -> Value {
        json!({"id": "v3.14", "status": "stable", "updated": "2020-04-07T00:00:00Z",
            "links": [{"rel": "self", "href": format!("{}/identity/v3/", self.base)}],
            "media-types": [{"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"}]})
    }

    fn render_credential(&self, credential: &Credential, with_secret: bool) -> Value {
        let caller = Self::caller(credential.user);
        let mut body = json!({"id": credential.id, "name": credential.name, "description": null, "user_id": caller.user_id,
            "project_id": caller.project_id, "system": null, "expires_at": credential.expires.map(time), "unrestricted": credential.unrestricted,
            "roles": roles(true),
            "links": {"self": format!("{}/identity/v3/application_credentials/{}", self.base, credential.id)}});
        if with_secret {
            body["secret"] = json!(credential.secret);
        }
        body
    }

    /// The token in `X-Auth-Token`, if it is valid.
    fn token_of(&self, ask: &Ask) -> Option<Token> {
        self.tokens.get(ask.header("x-auth-token")?).filter(|token| self.now() < token.expires).cloned()
    }

    fn make_token(&mut self, ask: &Ask) -> Answer {
        let Some(asked) = ask.json() else {
            return Answer::keystone(
                400,
                "Bad Request",
                "Expecting to find valid JSON in request body. The server could not comply with the request since it is either malformed \
                 or otherwise incorrect. The client is assumed to be in error.",
            );
        };
        let identity = &asked["auth"]["identity"];
        match identity["methods"][0].as_str() {
            Some("application_credential") => {
                let asked = &identity["application_credential"];
                let id = asked["id"].as_str().unwrap_or_default();
                let Some(found) = self.credentials.iter().find(|credential| credential.id == id) else {
                    return Answer::keystone(
                        404,
                        "Not Found",
                        &format!("Could not find Application Credential: {id}."),
                    );
                };
                let is_over = found.expires.is_some_and(|end| end <= self.now());
                if is_over || !asked["secret"].as_str().is_some_and(|secret| is_same(secret, &found.secret)) {
                    return self.refused();
                }
                let (user, id) = (found.user, found.id.clone());
                self.issue(user, true, "application_credential", Some(id))
            }
            Some("token") => {
                let token = identity["token"]["id"].as_str().and_then(|id| self.tokens.get(id)).cloned();
                let Some(token) = token.filter(|token| self.now() < token.expires) else { return self.refused() };
                if token.credential.is_some() {
                    return Answer::keystone(403, "Forbidden", "Application credentials cannot request a scope.");
                }
                let project = &asked["auth"]["scope"]["project"];
                if project.is_null() {
                    return self.issue(token.user, false, "token", None);
                }
                let caller = Self::caller(token.user);
                if project["id"] == caller.project_id.as_str() || project["name"] == caller.project.as_str() {
                    return self.issue(token.user, true, "token", None);
                }
                let more = &self.config.more_projects;
                let is_it = |name: &str| project["id"] == id_of(name).as_str() || project["name"] == name;
                match more.iter().find(|(name, _)| is_it(name)).cloned() {
                    Some(other) => self.issue_in(token.user, Some(other), true, "token", None),
                    None => self.refused(),
                }
            }
            _ => self.refused(),
        }
    }

    /// Exchanges an access token of the identity provider for an unscoped token.
    fn federate(&mut self, ask: &Ask) -> Answer {
        let bearer = ask.header("authorization").and_then(|text| text.strip_prefix("Bearer "));
        let user = bearer.and_then(|token| self.access_tokens.get(token).copied().or_else(|| self.bearer_of(token)));
        match user {
            Some(user) => self.issue(user, false, "openid", None),
            None => Answer::unauthorized(),
        }
    }

    fn issue(&mut self, user: User, scoped: bool, method: &'static str, credential: Option<String>) -> Answer {
        self.issue_in(user, None, scoped, method, credential)
    }

    /// A token for another project than the user's usual one, with the role there.
    fn issue_in(
        &mut self,
        user: User,
        other: Option<(String, String)>,
        scoped: bool,
        method: &'static str,
        credential: Option<String>,
    ) -> Answer {
        let now = self.now();
        let expires = after(now, self.config.token_life);
        let token = Token { user, other, scoped, method, credential, issued: now, expires };
        let body = self.render_token(&token);
        let id = self.ids.token();
        self.tokens.insert(id.clone(), token);
        Answer::json(201, body).with("x-subject-token", id)
    }

    fn show_token(&self, ask: &Ask) -> Answer {
        if self.token_of(ask).is_none() {
            return Answer::unauthorized();
        }
        let subject = ask.header("x-subject-token").unwrap_or_default();
        match self.tokens.get(subject).filter(|token| self.now() < token.expires) {
            Some(token) => Answer::json(200, self.render_token(token)).with("x-subject-token", subject),
            None => Answer::keystone(404, "Not Found", &format!("Could not find token: {subject}.")),
        }
    }

    fn revoke_token(&mut self, ask: &Ask) -> Answer {
        if self.token_of(ask).is_none() {
            return Answer::unauthorized();
        }
        self.tokens.remove(ask.header("x-subject-token").unwrap_or_default());
        Answer::empty(204)
    }

    fn render_token(&self, token: &Token) -> Value {
        let caller = Self::caller(token.user);
        let domain = json!({"id": "default", "name": "Default"});
        let mut body = json!({
            "methods": [token.method],
            "user": {"domain": domain, "id": caller.user_id, "name": caller.user, "password_expires_at": null},
            "audit_ids": [&uuid_of(&time(token.issued))[..22]],
            "expires_at": time(token.expires),
            "issued_at": time(token.issued),
        });
        if token.scoped {
            (body["project"], body["roles"]) = match &token.other {
                None => (json!({"domain": domain, "id": caller.project_id, "name": caller.project}), roles(false)),
                Some((name, role)) => (
                    json!({"domain": domain, "id": id_of(name), "name": name}),
                    json!([{"id": id_of(role), "name": role}]),
                ),
            };
            body["is_domain"] = json!(false);
            body["catalog"] = self.catalog();
        }
        let credential = token.credential.as_ref();
        if let Some(used) = self.credentials.iter().find(|known| Some(&known.id) == credential) {
            body["application_credential"] =
                json!({"id": used.id, "name": used.name, "restricted": !used.unrestricted});
        }
        json!({"token": body})
    }

    fn catalog(&self) -> Value {
        let name = |service| match service {
            Service::Identity => "keystone",
            Service::Reservation => "blazar",
            Service::Compute => "nova",
            Service::Image => "glance",
            Service::Network => "neutron",
        };
        let offered = Service::ALL.into_iter().filter(|service| !self.config.without.contains(service));
        offered
            .map(|service| {
                // Only these three have their version in the URL.
                let version = match service {
                    Service::Identity => "/v3",
                    Service::Reservation => "/v1",
                    Service::Compute => "/v2.1",
                    Service::Image | Service::Network => "",
                };
                let kind = service.name();
                let url = format!("{}/{kind}{version}", self.base);
                let endpoints: Vec<Value> = ["public", "internal", "admin"]
                    .iter()
                    .map(|interface| {
                        json!({"id": uuid_of(&format!("{interface} {kind}")).replace('-', ""), "interface": interface,
                            "region_id": self.config.region, "url": url, "region": self.config.region})
                    })
                    .collect();
                json!({"endpoints": endpoints, "id": uuid_of(kind).replace('-', ""), "type": kind, "name": name(service)})
            })
            .collect()
    }

    pub(super) fn project_id(project: &str) -> String {
        uuid_of(&format!("project {project}")).replace('-', "")
    }

    pub(super) fn user_id(user: &str) -> String {
        uuid_of(&format!("user {user}")).replace('-', "")
    }

    pub(super) fn caller(user: User) -> Caller {
        Caller {
            user_id: Self::user_id(user.name()),
            user: user.name().to_owned(),
            project_id: Self::project_id(user.project()),
            project: user.project().to_owned(),
            restricted: user == User::AliceRestricted,
        }
    }

    /// The user of a valid scoped token.
    pub(super) fn authenticated(&self, token: Option<&str>) -> Option<Caller> {
        let token = self.tokens.get(token?).filter(|token| token.scoped && self.now() < token.expires)?;
        let by_restricted = token.credential.as_ref().is_some_and(|id| {
            self.credentials.iter().any(|credential| &credential.id == id && !credential.unrestricted)
        });
        Some(Caller { restricted: by_restricted, ..Self::caller(token.user) })
    }

    /// The user with this id.
    pub(super) fn names(user_id: &str) -> Option<User> {
        User::ALL.into_iter().find(|user| Self::user_id(user.name()) == user_id)
    }

    /// The answer of a service to a request without a valid token.
    pub(super) fn refused(&self) -> Answer {
        Answer::unauthorized().with("www-authenticate", format!("Keystone uri=\"{}/identity/v3\"", self.base))
    }
}

impl Answer {
    /// An error of Keystone, or of the token check in front of each service.
    pub(super) fn keystone(code: u16, title: &str, message: &str) -> Self {
        Self::json(code, json!({"error": {"code": code, "message": message, "title": title}}))
    }

    fn unauthorized() -> Self {
        Self::keystone(401, "Unauthorized", "The request you have made requires authentication.")
    }
}

/// The roles of every user.
fn roles(long: bool) -> Value {
    ["reader", "member"]
        .iter()
        .map(|name| {
            let mut role = json!({"id": uuid_of(name).replace('-', ""), "name": name});
            if long {
                role["domain_id"] = Value::Null;
                role["description"] = Value::Null;
                role["options"] = json!({"immutable": true});
            }
            role
        })
        .collect()
}
