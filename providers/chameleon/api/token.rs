//! Obtains a token, by each authentication method.

use futures_util::future::join_all;
use reqwest::{Client, Method as Verb};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::credentials::{Issuer, Method, Named, credentials_page};
use super::call::{TOKEN, ask, json_of, secret_header};
use super::failure::{Api, Failure, FailureKind};
use super::session::{Body, Session, Thing};
use super::site::Site;
use crate::provider::kit::Call;
use crate::provider::kit::http::{Answer, Effect};

/// The response header with the token.
const SUBJECT: &str = "X-Subject-Token";

/// The most projects that are asked for the user's roles.
const MOST_ROLES: usize = 12;

#[derive(Deserialize)]
struct Projects {
    projects: Vec<Thing>,
}

impl Site {
    /// Gets a token for one project.
    pub(super) async fn obtain(&self) -> Api<Session> {
        let doing = format!("authenticate at {}", self.region());
        let session = match &self.credentials().method {
            Method::ApplicationCredential { id, secret } => {
                let identity = json!({
                    "methods": ["application_credential"],
                    "application_credential": { "id": id, "secret": secret.expose_secret() },
                });
                self.token(&json!({ "auth": { "identity": identity } }), &doing).await
            }
            Method::Password { user, password } => {
                let mut user = named(user);
                user["password"] = password.expose_secret().into();
                let mut auth = json!({ "identity": { "methods": ["password"], "password": { "user": user } } });
                let project = &self.credentials().project;
                if project.id.is_some() || (project.name.is_some() && has_domain(project)) {
                    auth["scope"] = json!({ "project": named(project) });
                }
                self.token(&json!({ "auth": auth }), &doing).await
            }
            Method::Token { token } => self.own(token, &doing).await,
            Method::OidcAccessToken { identity_provider, protocol, access_token } => {
                self.federated(identity_provider, protocol, access_token, &doing).await
            }
            Method::OidcPassword { identity_provider, protocol, issuer, username, password } => {
                let access_token = self.access_token(issuer, username, password, &doing).await?;
                self.federated(identity_provider, protocol, &access_token, &doing).await
            }
            Method::OidcDevice { identity_provider, protocol, issuer, kept } => {
                let access_token = self.signed_in(issuer, kept, None, &doing).await?;
                match self.federated(identity_provider, protocol, &access_token, &doing).await {
                    // It ended before its time, such as by a logout on a page.
                    Err(failure) if failure.status == Some(401) => {
                        let access_token = self.signed_in(issuer, kept, Some(&access_token), &doing).await?;
                        self.federated(identity_provider, protocol, &access_token, &doing).await
                    }
                    other => other,
                }
            }
        };
        let session = session.map_err(|failure| self.explained(failure))?;
        self.scoped(session, &doing).await
    }

    /// Asks Keystone for a token.
    async fn token(&self, body: &Value, doing: &str) -> Api<Session> {
        let url = format!("{}/auth/tokens", self.credentials().keystone());
        let answer = self.identity(Verb::POST, doing, |client| Ok(client.post(&url).json(body))).await?;
        self.session_of(&answer, doing)
    }

    async fn own(&self, token: &SecretString, doing: &str) -> Api<Session> {
        let url = format!("{}/auth/tokens", self.credentials().keystone());
        let header = secret_header(token, doing)?;
        let answer = self
            .identity(Verb::GET, doing, |client| {
                Ok(client.get(&url).header(TOKEN, header.clone()).header(SUBJECT, header.clone()))
            })
            .await?;
        self.session_with(token.clone(), &answer, doing)
    }

    /// Exchanges an identity provider's access token for an unscoped token.
    async fn federated(
        &self,
        provider: &str,
        protocol: &str,
        access_token: &SecretString,
        doing: &str,
    ) -> Api<Session> {
        let keystone = self.credentials().keystone();
        let url = format!("{keystone}/OS-FEDERATION/identity_providers/{provider}/protocols/{protocol}/auth");
        let answer = self
            .identity(Verb::POST, doing, |client| Ok(client.post(&url).bearer_auth(access_token.expose_secret())))
            .await?;
        self.session_of(&answer, doing)
    }

    /// Exchanges name and password for an access token of the identity provider.
    async fn access_token(
        &self,
        issuer: &Issuer,
        username: &str,
        password: &SecretString,
        doing: &str,
    ) -> Api<SecretString> {
        let endpoint = self.token_endpoint(issuer, doing).await?;
        let form = [
            ("username", username),
            ("password", password.expose_secret()),
            ("scope", issuer.scope.as_str()),
            ("grant_type", "password"),
        ];
        // Chameleon's openrc file gives a public client this secret.
        let client_secret = issuer.client_secret.as_ref().map_or("none", |secret| secret.expose_secret());
        let answer = self
            .identity(Verb::POST, doing, |client| {
                Ok(client.post(&endpoint).basic_auth(&issuer.client_id, Some(client_secret)).form(&form))
            })
            .await
            // For wrong passwords such providers answer 400 or 401.
            .map_err(|failure| match failure.status {
                Some(400 | 401) => Failure { kind: FailureKind::WrongSecret, ..self.explained(failure) },
                _ => failure,
            })?;
        let document = json_of(&answer, doing, &Verb::POST)?;
        match document.get("access_token").and_then(Value::as_str) {
            Some(token) => Ok(SecretString::from(token.to_owned())),
            None => Err(Failure::new(FailureKind::Malformed, doing, "the identity provider returned no access token")),
        }
    }

    /// Scopes a session to one project: the chosen one, or the only one.
    async fn scoped(&self, session: Session, doing: &str) -> Api<Session> {
        let wanted = &self.credentials().project;
        if let Some(project) = &session.body.project
            && (wanted.is_open()
                || wanted.id.as_deref().is_some_and(|id| id == project.id)
                || (wanted.id.is_none()
                    && wanted.name.as_deref().is_some_and(|name| is_same(name, &project.name) || name == project.id)))
        {
            return Ok(session);
        }
        if let (Method::ApplicationCredential { .. }, Some(project)) =
            (&self.credentials().method, &session.body.project)
        {
            let asked = wanted.name.as_deref().or(wanted.id.as_deref()).unwrap_or_default();
            let text = format!("the application credential belongs to the project {}, not to {asked}", project.name);
            return Err(Failure::new(FailureKind::Incomplete, doing, text)
                .hint(format!("make one in {asked}, then: gpucl login chameleon --project {asked}")));
        }
        let id = match &wanted.id {
            Some(id) => id.clone(),
            None => self.choose_project(&session, doing).await?,
        };
        self.scoped_to(&session, &id, doing).await
    }

    /// These projects with the user's roles in each: `CHI-1 (member, reader), CHI-2 (reader)`. For an error: a project that
    /// does not answer is named without roles.
    async fn with_roles(&self, session: &Session, projects: &[Thing], doing: &str) -> String {
        let named = async |(index, project): (usize, &Thing)| {
            let roles = match index < MOST_ROLES {
                true => self.scoped_to(session, &project.id, doing).await.map(|session| session.who().roles.join(", ")),
                false => Ok(String::new()),
            };
            let roles = roles.unwrap_or_default();
            if roles.is_empty() { project.name.clone() } else { format!("{} ({roles})", project.name) }
        };
        let mut all = join_all(projects.iter().enumerate().map(named)).await;
        all.sort_unstable();
        all.join(", ")
    }

    /// Exchanges a session's token for one of a project.
    async fn scoped_to(&self, session: &Session, project: &str, doing: &str) -> Api<Session> {
        let body = json!({ "auth": {
            "identity": { "methods": ["token"], "token": { "id": session.token.expose_secret() } },
            "scope": { "project": { "id": project } },
        }});
        let url = format!("{}/auth/tokens", self.credentials().keystone());
        let header = secret_header(&session.token, doing)?;
        let answer = self
            .identity(Verb::POST, doing, |client| Ok(client.post(&url).header(TOKEN, header.clone()).json(&body)))
            .await
            .map_err(|failure| self.explained(failure))?;
        self.session_of(&answer, doing)
    }

    /// Determines the id of the chosen or only project.
    async fn choose_project(&self, session: &Session, doing: &str) -> Api<String> {
        let url = format!("{}/auth/projects", self.credentials().keystone());
        let header = secret_header(&session.token, doing)?;
        let answer =
            self.identity(Verb::GET, doing, |client| Ok(client.get(&url).header(TOKEN, header.clone()))).await?;
        let projects: Projects = serde_json::from_slice(&answer.body).map_err(|error| {
            Failure::new(FailureKind::Malformed, doing, format!("cannot read the list of projects: {error}"))
        })?;
        let wanted = self.credentials().project.name.as_deref();
        let fits = |project: &&Thing| wanted.is_none_or(|name| is_same(name, &project.name) || project.id == name);
        let found: Vec<&Thing> = projects.projects.iter().filter(fits).collect();
        match (found.as_slice(), wanted) {
            ([only], _) => Ok(only.id.clone()),
            ([], None) => {
                Err(Failure::new(FailureKind::Forbidden, doing, "you are not a member of any project at this site")
                    .hint("ask a project's PI to add you; then sign in once at the site's web page"))
            }
            ([], Some(name)) => {
                let all = self.with_roles(session, &projects.projects, doing).await;
                let text = format!("you are not in a project {name}; your projects are {all}");
                Err(Failure::new(FailureKind::SeveralProjects, doing, text))
            }
            _ => {
                let all = self.with_roles(session, &projects.projects, doing).await;
                let text = format!("the {} is valid for several projects: {all}", self.credentials().method.name());
                Err(Failure::new(FailureKind::SeveralProjects, doing, text))
            }
        }
    }

    /// A call to Keystone or an identity provider; retried, since it changes nothing.
    pub(super) async fn identity(
        &self,
        verb: Verb,
        doing: &str,
        request: impl Fn(&Client) -> Api<reqwest::RequestBuilder>,
    ) -> Api<Answer> {
        let once = || async {
            // At most an unused token is left, so no failure here has an effect.
            let failed = |failure: Failure| Failure { effect: Effect::None, ..failure };
            ask(request(self.client(Call::Read))?, &verb, doing).await.map_err(failed)
        };
        self.with_patience(Call::Read, once).await
    }

    fn session_of(&self, answer: &Answer, doing: &str) -> Api<Session> {
        let token = answer.headers.get(SUBJECT).and_then(|token| token.to_str().ok()).unwrap_or_default();
        if token.is_empty() {
            return Err(Failure::new(FailureKind::Malformed, doing, "Keystone's response contains no token"));
        }
        self.session_with(SecretString::from(token.to_owned()), answer, doing)
    }

    fn session_with(&self, token: SecretString, answer: &Answer, doing: &str) -> Api<Session> {
        let value = json_of(answer, doing, &Verb::GET)?;
        let body: Body = serde_json::from_value(value.get("token").cloned().unwrap_or_default()).map_err(|error| {
            Failure::new(FailureKind::Malformed, doing, format!("cannot read Keystone's response: {error}"))
        })?;
        Ok(Session::new(token, body, self.credentials().method.is_renewable()))
    }

    /// Explains Keystone's refusal for this authentication method.
    fn explained(&self, failure: Failure) -> Failure {
        let credentials = self.credentials();
        let page = || credentials_page(&credentials.auth_url);
        let refused = |kind, text: String| Failure { kind, text, ..failure.clone() };
        match (&credentials.method, failure.status) {
            (Method::ApplicationCredential { id, .. }, Some(401)) => refused(
                FailureKind::WrongSecret,
                format!("the secret of the application credential {id} is wrong, or the credential has expired"),
            )
            .hint(format!("a secret is shown only once, at creation; make another credential at {}", page()))
            .hint("gpucl login chameleon"),
            (Method::ApplicationCredential { id, .. }, Some(404)) if failure.text.contains("Could not find") => {
                refused(
                    FailureKind::UnknownCredential,
                    format!("the site has no application credential {id}: it was deleted, or belongs to another site"),
                )
                .hint(format!("each site has its own; see yours at {}", page()))
                .hint("gpucl login chameleon")
            }
            (Method::Token { .. } | Method::OidcAccessToken { .. }, Some(401 | 404)) => refused(
                FailureKind::TokenEnded,
                format!("the {} has expired or was revoked, and cannot be renewed", credentials.method.name()),
            ),
            (Method::Password { .. } | Method::OidcPassword { .. }, Some(401)) => {
                refused(FailureKind::WrongSecret, "the user name or the password is wrong".to_owned())
                    .hint("Chameleon has a separate command-line password: set it at https://auth.chameleoncloud.org")
            }
            (_, Some(404)) => {
                refused(FailureKind::Refused, format!("{} is not a Keystone: {}", credentials.auth_url, failure.text))
                    .hint("auth_url looks like https://chi.tacc.chameleoncloud.org:5000/v3")
            }
            _ => failure,
        }
    }
}

/// A user or project in Keystone's JSON format.
fn named(thing: &Named) -> Value {
    if let Some(id) = &thing.id {
        return json!({ "id": id });
    }
    let domain = match (&thing.domain_id, &thing.domain_name) {
        (Some(id), _) => json!({ "id": id }),
        (None, Some(name)) => json!({ "name": name }),
        (None, None) => json!({ "id": "default" }),
    };
    json!({ "name": thing.name, "domain": domain })
}

fn has_domain(thing: &Named) -> bool {
    thing.domain_id.is_some() || thing.domain_name.is_some()
}

/// Compares names as Keystone does: ignoring case.
fn is_same(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}
