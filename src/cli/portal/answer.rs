//! The portal's own responses.

use axum::body::Body;
use axum::http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderValue, LOCATION, REFERRER_POLICY, SET_COOKIE,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{Response, StatusCode};
use secrecy::ExposeSecret as _;

use super::gate::{Gate, Refusal};
use super::page::Down;

/// A response with this text, as HTML.
fn page(status: StatusCode, head: &str, text: &str) -> Response<Body> {
    // Without this icon the browser would request one from the page.
    let body = format!(
        "<!doctype html><meta charset=\"utf-8\"><link rel=\"icon\" href=\"data:,\">{head}\
         <title>gpucl: {status}</title><p>{text}</p>\n"
    );
    let mut answer = Response::new(Body::from(body));
    *answer.status_mut() = status;
    let fixed = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CACHE_CONTROL, "no-store"),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        // A refused client keeps no connection.
        (CONNECTION, "close"),
    ];
    for (name, value) in fixed {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

/// The response that explains why a request was refused.
pub(super) fn refuse(refusal: Refusal) -> Response<Body> {
    let (status, text) = match refusal {
        Refusal::Malformed => (StatusCode::BAD_REQUEST, "This request cannot be understood."),
        Refusal::WrongHost => (
            StatusCode::MISDIRECTED_REQUEST,
            "This address does not belong to this page. Use the one that <code>gpucl dashboard</code> prints.",
        ),
        Refusal::OtherOrigin => (StatusCode::FORBIDDEN, "Another page made this request; it was not forwarded."),
        Refusal::NoKey => (
            StatusCode::UNAUTHORIZED,
            "This page needs its key, which is new in each run. Open the address that \
             <code>gpucl dashboard</code> prints.",
        ),
        Refusal::NoCredential => (
            StatusCode::UNAUTHORIZED,
            "This address is for programs with the page's own credential. In a browser, open the address that \
             <code>gpucl dashboard</code> prints; if it is not found, the one of <code>gpucl dashboard --plain</code>.",
        ),
    };
    page(status, "", text)
}

/// The response if the page does not answer, with what is known of the reason.
pub(super) fn is_down(why: &Down) -> Response<Body> {
    let mut text = "The cluster does not answer. Check it with <code>gpucl status</code>.".to_owned();
    for sentence in &why.happened {
        text.push_str("</p><p>");
        text.push_str(&escaped(sentence));
        text.push('.');
    }
    // It asks again until the page is back.
    let head = if why.comes_back { "<meta http-equiv=\"refresh\" content=\"5\">" } else { "" };
    page(StatusCode::BAD_GATEWAY, head, &text)
}

/// Sets the cookie and redirects to the same place without the key.
pub(super) fn welcome(gate: &Gate, location: &str, crosses: bool) -> Response<Body> {
    let mut answer = if crosses {
        // After an HTTP redirect that another site began, the browser would still withhold a strict cookie. A
        // navigation that this page begins is same-site.
        let to = escaped(location);
        page(StatusCode::OK, &format!("<meta http-equiv=\"refresh\" content=\"0;url={to}\">"), "")
    } else {
        let mut answer = page(StatusCode::SEE_OTHER, "", "");
        match HeaderValue::from_str(location) {
            Ok(location) => answer.headers_mut().insert(LOCATION, location),
            Err(_) => return refuse(Refusal::Malformed),
        };
        answer
    };
    let cookie = format!("{}={}; Path=/; HttpOnly; SameSite=Strict", gate.cookie, gate.key.expose_secret());
    match HeaderValue::from_str(&cookie) {
        Ok(cookie) => answer.headers_mut().insert(SET_COOKIE, cookie),
        Err(_) => return refuse(Refusal::Malformed),
    };
    answer
}

/// Escapes text for HTML, also in an attribute.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('"', "&quot;").replace('\'', "&#39;").replace('<', "&lt;").replace('>', "&gt;")
}
