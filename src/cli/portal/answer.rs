//! The portal's own short answers.

use super::head::{Head, cookie_name};

/// What the portal says by itself.
#[derive(Debug, Clone, Copy)]
pub(super) enum Answer {
    Malformed,
    TooLarge,
    TooSlow,
    WrongHost,
    Elsewhere,
    NoKey { followed_link: bool },
    UpstreamDown,
}

impl Answer {
    /// The whole answer.
    pub(super) fn render(self) -> String {
        let (status, text) = match self {
            Self::Malformed => ("400 Bad Request", "This request cannot be understood."),
            Self::TooLarge => ("431 Request Header Fields Too Large", "The head of this request is too large."),
            Self::TooSlow => ("408 Request Timeout", "The request did not arrive in time."),
            Self::WrongHost => (
                "421 Misdirected Request",
                "This address does not belong to this page. Use the one that <code>gpucl dashboard</code> prints.",
            ),
            Self::Elsewhere => ("403 Forbidden", "Another page made this request; it is not passed on."),
            Self::NoKey { .. } => (
                "401 Unauthorized",
                "This page needs its key. Open the address that <code>gpucl dashboard</code> prints.",
            ),
            Self::UpstreamDown => {
                ("502 Bad Gateway", "The cluster does not answer. Look at it with <code>gpucl status</code>.")
            }
        };
        // The second request comes from this page, so the browser sends the cookie it kept back from the first.
        let again = match self {
            Self::NoKey { followed_link: true } => "<meta http-equiv=\"refresh\" content=\"0\">",
            _ => "",
        };
        let body =
            format!("<!doctype html><meta charset=\"utf-8\">{again}<title>gpucl: {status}</title><p>{text}</p>\n");
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n{COMMON}\r\n{body}",
            body.len()
        )
    }
}

const COMMON: &str = "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n\
    X-Frame-Options: DENY\r\nConnection: close\r\n";

/// Gives the browser its cookie and sends it to the same place without the key.
pub(super) fn welcome(head: &Head, port: u16, key: &str) -> String {
    format!(
        "HTTP/1.1 303 See Other\r\nLocation: {}\r\nSet-Cookie: {}={key}; Path=/; HttpOnly; SameSite=Strict\r\n\
         Content-Length: 0\r\n{COMMON}\r\n",
        head.target_without_key(),
        cookie_name(port),
    )
}
