//! The portal's own short answers.

use axum::body::Body;
use axum::http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderValue, LOCATION, REFERRER_POLICY, SET_COOKIE,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{Response, StatusCode};
use secrecy::ExposeSecret as _;

use super::gate::{Gate, Refusal};

/// An answer with these words, in HTML.
fn page(status: StatusCode, head: &str, text: &str) -> Response<Body> {
    // Without an icon named, the browser would ask the page for one.
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
        // Who was refused keeps no connection.
        (CONNECTION, "close"),
    ];
    for (name, value) in fixed {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

/// Why a request goes nowhere.
pub(super) fn refuse(refusal: Refusal) -> Response<Body> {
    let (status, text) = match refusal {
        Refusal::Malformed => (StatusCode::BAD_REQUEST, "This request cannot be understood."),
        Refusal::WrongHost => (
            StatusCode::MISDIRECTED_REQUEST,
            "This address does not belong to this page. Use the one that <code>gpucl dashboard</code> prints.",
        ),
        Refusal::OtherOrigin => (StatusCode::FORBIDDEN, "Another page made this request; it is not passed on."),
        Refusal::NoKey => (
            StatusCode::UNAUTHORIZED,
            "This page needs its key, which is a new one at each call. Open the address that \
             <code>gpucl dashboard</code> prints.",
        ),
        Refusal::NoCredential => (
            StatusCode::UNAUTHORIZED,
            "Here programs are answered that bring the page's own credential. In a browser, open the address that \
             <code>gpucl dashboard</code> prints; where that is not found, the one of <code>gpucl dashboard --plain</code>.",
        ),
    };
    page(status, "", text)
}

/// The page does not answer.
pub(super) fn is_down() -> Response<Body> {
    let text = "The cluster does not answer. Look at it with <code>gpucl status</code>.";
    page(StatusCode::BAD_GATEWAY, "", text)
}

/// Gives the browser its cookie and sends it to the same place without the key.
pub(super) fn welcome(gate: &Gate, location: &str, crosses: bool) -> Response<Body> {
    let mut answer = if crosses {
        // After a redirect the browser would still keep a strict cookie back, since another site began it. What this page
        // leads to, this page began.
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

/// Text within an attribute.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('"', "&quot;").replace('\'', "&#39;").replace('<', "&lt;").replace('>', "&gt;")
}
