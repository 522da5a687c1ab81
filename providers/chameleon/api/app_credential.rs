//! Application credentials that a login makes, and deletes again (Keystone's API v3, "Application credentials").

use jiff::Timestamp;
use reqwest::Method as Verb;
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::credentials::Method;
use super::call::{TOKEN, ask, decode, json_of, secret_header};
use super::failure::{Api, Failure, FailureKind};
use super::lenient;
use super::site::Site;
use crate::provider::kit::Call;
use crate::provider::kit::http::{Answer, Effect, part};

#[derive(Deserialize)]
struct Listed {
    #[serde(deserialize_with = "lenient::text")]
    id: String,
    #[serde(default, deserialize_with = "lenient::text")]
    name: String,
}

impl Site {
    /// Makes an application credential of this name for the project, without an end, and with the right to make leases;
    /// returns its id and its secret.
    pub(crate) async fn make_credential(&self, name: &str) -> Api<(String, SecretString)> {
        let doing = self.at("make an application credential");
        // Without `expires_at` it lasts. Blazar acts by a trust, which takes an unrestricted one.
        let body = json!({ "application_credential": { "name": name, "unrestricted": true,
            "description": "made by `gpucl login chameleon`; `gpucl logout chameleon` deletes it" } });
        let answer = match self.of_user(&Verb::POST, "", Some(&body), &doing).await {
            Err(failure) if failure.effect == Effect::Unknown => {
                self.remove_credentials_named(name).await?;
                return Err(failure);
            }
            other => other?,
        };
        let made = json_of(&answer, &doing, &Verb::POST)?;
        let made = &made["application_credential"];
        match (made["id"].as_str(), made["secret"].as_str()) {
            (Some(id), Some(secret)) => Ok((id.to_owned(), SecretString::from(secret.to_owned()))),
            _ => {
                self.remove_credentials_named(name).await?;
                Err(Failure::new(FailureKind::Malformed, doing, "the answer has no id, or no secret"))
            }
        }
    }

    /// Deletes those of the user's application credentials that have this name: nobody knows their secret.
    async fn remove_credentials_named(&self, name: &str) -> Api<()> {
        let doing = self.at("list the application credentials");
        let answer = self.of_user(&Verb::GET, "", None, &doing).await?;
        let mut value = json_of(&answer, &doing, &Verb::GET)?;
        let listed: Vec<Listed> = decode(value["application_credentials"].take(), &doing, &Verb::GET)?;
        for one in listed.iter().filter(|one| one.name == name) {
            self.remove_credential(&one.id).await?;
        }
        Ok(())
    }

    /// Deletes an application credential; it may be the one that this site is used with. None of that id is success.
    pub(crate) async fn remove_credential(&self, id: &str) -> Api<()> {
        let doing = self.at(&format!("delete the application credential {id}"));
        match self.of_user(&Verb::DELETE, id, None, &doing).await {
            Ok(_) => Ok(()),
            Err(failure) if matches!(failure.kind, FailureKind::NotFound | FailureKind::UnknownCredential) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// When the application credential in use ends; `None` if it does not, or another method is used.
    pub(crate) async fn credential_end(&self) -> Api<Option<Timestamp>> {
        let Method::ApplicationCredential { id, .. } = &self.credentials().method else { return Ok(None) };
        let doing = self.at("read when the application credential ends");
        let answer = self.of_user(&Verb::GET, id, None, &doing).await?;
        let value = json_of(&answer, &doing, &Verb::GET)?;
        match &value["application_credential"]["expires_at"] {
            Value::Null => Ok(None),
            at => lenient::parse_time(at.as_str().unwrap_or_default())
                .map(Some)
                .ok_or_else(|| Failure::new(FailureKind::Malformed, doing, "cannot read its end")),
        }
    }

    /// A call to Keystone on the user's own application credentials.
    async fn of_user(&self, verb: &Verb, id: &str, body: Option<&Value>, doing: &str) -> Api<Answer> {
        let session = self.session(None).await?;
        let user = session.who().user_id;
        let mut url = format!("{}/users/{}/application_credentials", self.credentials().keystone(), part(&user));
        if !id.is_empty() {
            url = format!("{url}/{}", part(id));
        }
        let call = Call::of(verb);
        let once = || async {
            let request = self.client(call).request(verb.clone(), &url);
            let request = request.header(TOKEN, secret_header(&session.token, doing)?);
            let request = body.iter().fold(request, |request, body| request.json(body));
            ask(request, verb, doing).await
        };
        self.with_patience(call, once).await
    }
}
