//! Credentials: sources, selection, storage and login.

mod clouds;
mod credentials;
mod entry;
mod find;
mod flat;
mod login;
mod sites;
#[cfg(test)]
mod tests;

pub(super) use credentials::{Credentials, Method, Named};
pub(super) use find::{Candidate, Choice, find};
pub(super) use login::ChameleonLogin;

/// The web page of a site for application credentials.
pub(super) fn credentials_page(auth_url: &str) -> String {
    match reqwest::Url::parse(auth_url).ok().and_then(|url| Some((url.scheme().to_owned(), url.host_str()?.to_owned())))
    {
        Some((scheme, host)) => format!("{scheme}://{host}/identity/application_credentials/"),
        None => "the site's web page, under Identity, Application Credentials".to_owned(),
    }
}
