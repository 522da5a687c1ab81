//! The identity provider of a site, as `ccauth` uses Keycloak: discovery, the device flow of RFC 8628, and refresh tokens
//! that each use replaces. A replaced one that is used once more ends its login, as with Keycloak's "Revoke Refresh Token".

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::super::answer::{Answer, Ask};
use super::super::clock::after;
use super::super::ids::hex;
use super::config::User;
use super::records::{Code, Login, Reply};
use super::state::State;

const REALM: &str = "/auth/realms/chameleon";
pub(super) const DISCOVERY: &str = "/auth/realms/chameleon/.well-known/openid-configuration";
/// The only client, a public one.
const CLIENT: &str = "chi-cli-device-token";
const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

impl State {
    pub(super) fn issue_login(&mut self, ask: &Ask) -> Answer {
        let (method, path) = ask.route();
        let form = form(ask);
        let field = |name: &str| form.get(name).map_or("", String::as_str);
        match (method, &path[..]) {
            ("GET", ["realms", "chameleon", ".well-known", "openid-configuration"]) => {
                Answer::json(200, self.document())
            }
            ("POST", ["realms", "chameleon", "protocol", "openid-connect", _, ..]) if field("client_id") != CLIENT => {
                refusal(401, "invalid_client", "Invalid client or Invalid client credentials")
            }
            ("POST", ["realms", "chameleon", "protocol", "openid-connect", "auth", "device"]) => self.begin_code(),
            ("POST", ["realms", "chameleon", "protocol", "openid-connect", "token"]) => match field("grant_type") {
                DEVICE_GRANT => self.exchange_code(field("device_code")),
                "refresh_token" => self.exchange_refresh(field("refresh_token")),
                _ => refusal(400, "unsupported_grant_type", "Unsupported grant_type"),
            },
            ("GET", ["realms", "chameleon", "device"]) => Answer::page(200, None),
            _ => refusal(404, "not_found", "HTTP 404 Not Found"),
        }
    }

    fn issuer_base(&self) -> &str {
        self.config.issuer.address.as_deref().unwrap_or(&self.base)
    }

    fn document(&self) -> Value {
        let at = |path: &str| format!("{}{REALM}{path}", self.issuer_base());
        json!({"issuer": at(""), "token_endpoint": at("/protocol/openid-connect/token"),
            "device_authorization_endpoint": at("/protocol/openid-connect/auth/device"),
            "grant_types_supported": ["authorization_code", "refresh_token", "password", DEVICE_GRANT]})
    }

    fn begin_code(&mut self) -> Answer {
        let device_code = self.ids.digits();
        let letters = self.ids.hex().to_uppercase();
        let user_code = format!("{}-{}", &letters[..4], &letters[4..8]);
        let ends = after(self.now(), self.config.issuer.code_life);
        let page = format!("{}{REALM}/device", self.issuer_base());
        let answer = json!({"device_code": device_code, "user_code": user_code, "verification_uri": page,
            "verification_uri_complete": format!("{page}?user_code={user_code}"),
            "expires_in": self.config.issuer.code_life.as_secs_f64(), "interval": self.config.issuer.interval});
        self.issuer.codes.insert(device_code, Code { user_code, answer: Reply::None, ends, asked: None });
        Answer::json(200, answer)
    }

    /// Answers a code as the visitor of the page: `None` refuses it.
    pub(super) fn confirm_code(&mut self, user_code: &str, user: Option<User>) -> bool {
        let now = self.now();
        let code = self.issuer.codes.values_mut().find(|code| code.user_code == user_code && now < code.ends);
        code.map(|code| code.answer = user.map_or(Reply::No, Reply::Yes)).is_some()
    }

    fn exchange_code(&mut self, device_code: &str) -> Answer {
        let (now, interval) = (self.now(), std::time::Duration::from_secs(self.config.issuer.interval));
        let Some(code) = self.issuer.codes.get_mut(device_code) else {
            return refusal(400, "invalid_grant", "Device code not valid");
        };
        // A network is not exact.
        let is_early = code.asked.is_some_and(|at| now < after(at, interval.mul_f64(0.9)));
        code.asked = Some(now);
        if code.ends <= now {
            return refusal(400, "expired_token", "Device code is expired");
        }
        match code.answer {
            _ if is_early => refusal(400, "slow_down", "Slow down"),
            Reply::None => refusal(400, "authorization_pending", "The authorization request is still pending"),
            Reply::No => refusal(400, "access_denied", "The end user denied the authorization request"),
            Reply::Yes(user) => {
                self.issuer.codes.remove(device_code);
                let token = self.begin_login(user);
                self.tokens_of(user, &token)
            }
        }
    }

    /// Begins a login; returns its first refresh token.
    pub(super) fn begin_login(&mut self, user: User) -> String {
        self.issuer.made += 1;
        let number = self.issuer.made;
        let token = self.new_refresh_token(number);
        let ends = after(self.now(), self.config.issuer.refresh_life);
        self.issuer.logins.insert(number, Login { user, token: token.clone(), ends });
        token
    }

    /// A JSON web token, as Keycloak's are; the number of its login is in it.
    fn new_refresh_token(&mut self, login: u64) -> String {
        let part = |value: Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let id = self.ids.hex();
        let claims =
            json!({"iss": format!("{}{REALM}", self.issuer_base()), "typ": "Refresh", "sid": login, "jti": id});
        format!("{}.{}.{}", part(json!({"alg": "HS512", "typ": "JWT"})), part(claims), self.ids.hex())
    }

    fn exchange_refresh(&mut self, token: &str) -> Answer {
        let (now, rotates) = (self.now(), self.config.issuer.rotates);
        let claims = token.split('.').nth(1).and_then(|part| BASE64_URL_SAFE_NO_PAD.decode(part).ok());
        let claims = claims.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok()).unwrap_or_default();
        let number = claims["sid"].as_u64().unwrap_or_default();
        let Some(login) = self.issuer.logins.get(&number).filter(|login| now < login.ends) else {
            return refusal(400, "invalid_grant", "Token is not active");
        };
        let user = login.user;
        if login.token != token {
            self.issuer.logins.remove(&number);
            self.issuer.log_outs += 1;
            return refusal(400, "invalid_grant", "Maximum allowed refresh token reuse exceeded");
        }
        let next = if rotates { self.new_refresh_token(number) } else { token.to_owned() };
        let ends = after(now, self.config.issuer.refresh_life);
        self.issuer.logins.insert(number, Login { user, token: next.clone(), ends });
        self.tokens_of(user, &next)
    }

    fn tokens_of(&mut self, user: User, refresh_token: &str) -> Answer {
        let ends = after(self.now(), self.config.issuer.access_life).as_second();
        let claims = format!("{user:?}.{ends}");
        let access_token = format!("{claims}.{}", self.signature(&claims));
        self.issuer.given.push(access_token.clone());
        Answer::json(
            200,
            json!({"access_token": access_token, "expires_in": self.config.issuer.access_life.as_secs(),
                "refresh_expires_in": self.config.issuer.refresh_life.as_secs(), "refresh_token": refresh_token,
                "token_type": "Bearer", "not-before-policy": 0, "scope": "openid profile"}),
        )
    }

    fn signature(&self, claims: &str) -> String {
        hex(format!("{} {claims}", self.config.issuer.key).as_bytes())
    }

    /// The user of an access token of this provider, or of another site's with the same key.
    pub(super) fn bearer_of(&self, token: &str) -> Option<User> {
        let (claims, signature) = token.rsplit_once('.')?;
        let (user, ends) = claims.split_once('.')?;
        let is_valid = self.signature(claims) == signature && self.now().as_second() < ends.parse().ok()?;
        User::ALL.into_iter().find(|known| is_valid && format!("{known:?}") == user)
    }
}

fn refusal(status: u16, error: &str, description: &str) -> Answer {
    Answer::json(status, json!({"error": error, "error_description": description}))
}

/// The fields of a body in the format of HTML forms.
fn form(ask: &Ask) -> BTreeMap<String, String> {
    let text = String::from_utf8_lossy(&ask.body);
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    let read = |part: &str| super::super::answer::decoded(&part.replace('+', " "));
    pairs.map(|(key, value)| (read(key), read(value))).collect()
}
