//! When tokens are requested and renewed, and how refusals are reported.

use secrecy::SecretString;
use serde_json::{Value, json};

use super::forms::{new_lease, recorded};
use super::server::{Fake, Reply};
use crate::chameleon::api::{Effect, FailureKind};
use crate::chameleon::credentials::{Credentials, Issuer, Method, Named};

fn leases() -> Reply {
    Reply::Json(200, json!({"leases": []}))
}

fn unauthorized() -> Reply {
    Reply::Json(401, json!({"error": {"code": 401, "message": "The request you have made requires authentication."}}))
}

fn secret(text: &str) -> SecretString {
    SecretString::from(text.to_owned())
}

#[tokio::test]
async fn many_callers_share_one_token() {
    let fake = Fake::start().await;
    let site = fake.site();
    let calls: Vec<_> = (0..8)
        .map(|_| {
            fake.reply("GET /reservation", leases());
            let site = site.clone();
            tokio::spawn(async move { site.leases().await })
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(fake.tokens(), 1);
}

#[tokio::test]
async fn many_callers_share_one_refusal() {
    let fake = Fake::start().await;
    fake.reply("POST /v3/auth/tokens", unauthorized());
    let site = fake.site();
    let (one, other) = tokio::join!(site.leases(), site.hosts());
    assert_eq!(one.unwrap_err().kind, FailureKind::WrongSecret);
    assert_eq!(other.unwrap_err().kind, FailureKind::WrongSecret);
    assert_eq!(fake.tokens(), 1);
}

#[tokio::test]
async fn a_refused_token_is_renewed_and_the_call_repeated_once() {
    let fake = Fake::start().await;
    fake.reply("POST /reservation", unauthorized());
    fake.reply(
        "POST /reservation",
        Reply::Json(
            201,
            json!({"lease": {"id": "L1", "start_date": "2026-11-21 12:00",
        "end_date": "2026-11-21 15:00"}}),
        ),
    );
    let site = fake.site();
    assert_eq!(site.create_lease(&new_lease()).await.unwrap().id, "L1");
    assert_eq!((fake.tokens(), fake.asked().len()), (2, 2));
    fake.reply("GET /reservation", unauthorized()).reply("GET /reservation", unauthorized());
    let failure = site.leases().await.unwrap_err();
    assert_eq!((failure.kind, fake.tokens()), (FailureKind::Forbidden, 3));
}

#[tokio::test]
async fn a_token_is_renewed_before_it_expires_despite_clock_skew() {
    let fake = Fake::start().await;
    // The lifetime is the difference of the two, by the service's clock, which is years off.
    fake.change_token(|token| {
        token["token"]["issued_at"] = "2020-01-01T00:00:00.000000Z".into();
        token["token"]["expires_at"] = "2020-01-01T01:00:00.000000Z".into();
    });
    let site = fake.site();
    for _ in 0..2 {
        fake.reply("GET /reservation", leases());
        site.leases().await.unwrap();
    }
    assert_eq!(fake.tokens(), 1);
    fake.change_token(|token| token["token"]["expires_at"] = "2020-01-01T00:00:00.000000Z".into());
    let site = fake.site();
    for _ in 0..2 {
        fake.reply("GET /reservation", leases());
        site.leases().await.unwrap();
    }
    assert_eq!(fake.tokens(), 3);
}

#[tokio::test]
async fn a_wrong_secret_and_an_unknown_id_are_distinguished_without_showing_the_secret() {
    let fake = Fake::start().await;
    fake.reply("POST /v3/auth/tokens", unauthorized());
    let failure = fake.site().who().await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::WrongSecret);
    assert!(failure.text.contains("APPCREDID") && !format!("{failure:?}").contains("SECRET"), "{failure:?}");
    fake.reply(
        "POST /v3/auth/tokens",
        Reply::Json(
            404,
            json!({"error": {"code": 404,
        "message": "Could not find Application Credential: APPCREDID.", "title": "Not Found"}}),
        ),
    );
    let failure = fake.site().who().await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::UnknownCredential);
    assert!(failure.hints.iter().any(|hint| hint.contains("/identity/application_credentials/")), "{failure:?}");
    fake.reply("POST /v3/auth/tokens", Reply::Text(404, "", "<html>nothing here</html>".to_owned()));
    assert_eq!(fake.site().who().await.unwrap_err().kind, FailureKind::Refused);
    assert!(!format!("{:?} {:?}", fake.credentials(), fake.site()).contains("SECRET"));
}

#[tokio::test]
async fn a_restricted_credential_fails_before_a_lease_is_requested() {
    let fake = Fake::start().await;
    fake.change_token(|token| token["token"]["application_credential"]["restricted"] = true.into());
    let failure = fake.site().create_lease(&new_lease()).await.unwrap_err();
    assert_eq!((failure.kind, failure.effect), (FailureKind::RestrictedCredential, Effect::None));
    assert!(failure.hints[0].contains("Unrestricted"), "{failure:?}");
    assert!(fake.asked().is_empty());
}

#[tokio::test]
async fn a_catalog_without_leases_or_with_several_regions_fails() {
    let fake = Fake::start().await;
    fake.change_token(|token| {
        token["token"]["catalog"].as_array_mut().unwrap().retain(|service| service["type"] != "reservation");
    });
    let failure = fake.site().leases().await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::NoService("reservation"));
    assert!(failure.text.contains("compute"), "{failure:?}");
    let other = Credentials { region: Some("CHI@UC".to_owned()), ..fake.credentials() };
    let failure = fake.site_with(other).0.servers().await.unwrap_err();
    assert_eq!(failure.text, "its catalog is that of CHI@TACC: it has `compute` in CHI@TACC, not in CHI@UC");
    let (site, _inbox) = fake.site_with(Credentials { region: None, ..fake.credentials() });
    assert!(site.region().starts_with("http://127.0.0.1:"));
    site.who().await.unwrap();
    assert_eq!(site.region(), "CHI@TACC");
    fake.change_token(|token| token["token"]["catalog"][0]["endpoints"][0]["region"] = "CHI@UC".into());
    let (site, _inbox) = fake.site_with(Credentials { region: None, ..fake.credentials() });
    let failure = site.who().await.unwrap_err();
    assert!(failure.text.contains("CHI@TACC, CHI@UC"), "{failure:?}");
}

#[tokio::test]
async fn a_bare_token_is_used_as_it_is_and_cannot_be_renewed() {
    let fake = Fake::start().await;
    let credentials = Credentials { method: Method::Token { token: secret("OURS") }, ..fake.credentials() };
    let (site, _inbox) = fake.site_with(credentials);
    site.who().await.unwrap();
    let asked = fake.all().remove(0);
    assert_eq!(
        (asked.method.as_str(), asked.header("X-Auth-Token"), asked.header("X-Subject-Token")),
        ("GET", "OURS", "OURS")
    );
    fake.reply("GET /reservation", unauthorized()).reply("GET /v3/auth/tokens", unauthorized());
    let failure = site.leases().await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::TokenEnded);
    assert_eq!(fake.asked().last().unwrap().header("X-Auth-Token"), "OURS");
}

#[tokio::test]
async fn a_token_valid_for_several_projects_needs_a_choice() {
    let fake = Fake::start().await;
    let project = fake_project();
    let unscoped = |fake: &Fake| fake.change_token(|token| token["token"]["project"] = Value::Null);
    unscoped(&fake);
    let projects =
        || Reply::Json(200, json!({"projects": [{"id": "p1", "name": "CHI-1"}, {"id": "p2", "name": "CHI-2"}]}));
    let credentials = Credentials { method: Method::Token { token: secret("OURS") }, ..fake.credentials() };
    // One of them does not say which roles there are.
    fake.reply("GET /v3/auth/projects", projects()).reply("POST /v3/auth/tokens", project.clone());
    fake.reply("POST /v3/auth/tokens", unauthorized());
    let failure = fake.site_with(credentials.clone()).0.who().await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::SeveralProjects);
    assert_eq!(failure.text.matches("(member, reader)").count(), 1, "{failure:?}");
    assert!(failure.text.contains("CHI-1") && failure.text.contains("CHI-2"), "{failure:?}");
    let chosen = |name: &str| Credentials {
        project: Named { name: Some(name.to_owned()), ..Named::default() },
        ..credentials.clone()
    };
    fake.reply("GET /v3/auth/projects", projects()).reply("POST /v3/auth/tokens", project);
    assert_eq!(fake.site_with(chosen("chi-2")).0.who().await.unwrap().project_name, "CHI-2");
    let scope = fake.all().last().unwrap().json();
    assert_eq!(scope["auth"]["scope"], json!({"project": {"id": "p2"}}));
    fake.reply("GET /v3/auth/projects", projects());
    let failure = fake.site_with(chosen("CHI-3")).0.who().await.unwrap_err();
    assert!(failure.text.contains("not in a project CHI-3"), "{failure:?}");
}

fn fake_project() -> Reply {
    Reply::Json(
        201,
        json!({"token": {"user": {"id": "u", "name": "u"}, "project": {"id": "p2", "name": "CHI-2"},
        "roles": [{"id": "r1", "name": "member"}, {"id": "r2", "name": "reader"}], "issued_at": "2026-11-21T01:25:33.165457", "expires_at": "2026-11-21T02:25:33.165457+00:00"}}),
    )
}

#[tokio::test]
async fn name_and_password_at_the_identity_provider_go_the_recorded_way() {
    let fake = Fake::start().await;
    let method = Method::OidcPassword {
        identity_provider: "chameleon".to_owned(),
        protocol: "openid".to_owned(),
        issuer: Issuer {
            discovery_endpoint: Some(format!("{}/oidc/.well-known/openid-configuration", fake.address())),
            token_endpoint: None,
            device_endpoint: None,
            client_id: "keystone-tacc-prod".to_owned(),
            client_secret: Some(secret("none")),
            scope: "openid profile".to_owned(),
        },
        username: "jdoe@example.edu".to_owned(),
        password: secret("CLI-PASSWORD"),
    };
    let project = Named { id: Some("2222bbbb".to_owned()), ..Named::default() };
    fake.reply("GET /oidc", Reply::Json(200, json!({"token_endpoint": format!("{}/oidc/token", fake.address())})));
    fake.reply("POST /oidc/token", Reply::Json(200, json!({"access_token": "ACCESS-TOKEN"})));
    fake.reply(
        "POST /v3/OS-FEDERATION",
        Reply::Text(
            201,
            "X-Subject-Token: UNSCOPED-TOKEN\r\n",
            json!({"token": {"user": {"id": "1111aaaa", "name": "j"}, "issued_at": "2026-11-21T01:25:33.165457",
            "expires_at": "2026-11-21T02:25:33.165457+00:00"}})
            .to_string(),
        ),
    );
    let (site, _inbox) = fake.site_with(Credentials { method, project, ..fake.credentials() });
    assert_eq!(site.who().await.unwrap().project_name, "CHI-000000");
    let asked = fake.all();
    assert_eq!(asked.len(), 4);
    for (number, asked) in asked.iter().enumerate() {
        let recorded = recorded("keystone-v3oidcpassword.json", number)["request"].take();
        assert_eq!(
            (asked.method.as_str().into(), asked.path.as_str().into()),
            (recorded["method"].clone(), recorded["path"].clone())
        );
        for header in ["Authorization", "Content-Type"] {
            assert_eq!(asked.header(header), recorded["headers"][header].as_str().unwrap_or_default(), "{header}");
        }
        match &recorded["body"] {
            Value::String(form) => assert_eq!(asked.body, *form),
            Value::Null => assert_eq!(asked.body, ""),
            // The fake site uses one name for both tokens.
            body => assert_eq!(asked.json()["auth"]["scope"], body["auth"]["scope"]),
        }
    }
}

#[tokio::test]
async fn an_expired_access_token_cannot_be_renewed() {
    let fake = Fake::start().await;
    let method = Method::OidcAccessToken {
        identity_provider: "chameleon".to_owned(),
        protocol: "openid".to_owned(),
        access_token: secret("ACCESS-TOKEN"),
    };
    fake.reply("POST /v3/OS-FEDERATION", unauthorized());
    let (site, _inbox) = fake.site_with(Credentials { method, ..fake.credentials() });
    let failure = site.who().await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::TokenEnded);
    assert_eq!(fake.all()[0].header("Authorization"), "Bearer ACCESS-TOKEN");
}
