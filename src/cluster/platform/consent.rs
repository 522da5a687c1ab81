//! Consent to a place: a stranger's file must not choose somebody's production.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::cluster::options::{Ask, UpOptions};
use crate::cluster::settings::Settings;
use crate::engine::Urgency;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::provider::platform::Site;
use crate::util::fs;

/// A place where the user has agreed to have clusters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Agreed {
    server: String,
    place: String,
    user: String,
}

impl Agreed {
    fn to(site: &Site) -> Self {
        Self { server: site.server.clone(), place: site.place.clone(), user: site.user.clone() }
    }
}

/// Asks once for each place and user; remembers a yes.
///
/// # Errors
/// If the answer is no, or there is nobody to ask and the command line does not name the place.
pub(super) async fn ask(settings: &Settings, options: &UpOptions, site: &Site) -> Result<()> {
    let path = settings.paths.state.join("places.json");
    let mut agreed = read(&path)?;
    if agreed.contains(&Agreed::to(site)) {
        return Ok(());
    }
    if options.at.as_deref() != Some(site.place.as_str()) {
        if let Some(named) = &options.at {
            return Err(Error::new(ErrorKind::Usage, format!("bring up a cluster at {named}"))
                .because(format!("the spec's place is {}", site.place)));
        }
        let asks = options.approval.asked().ok_or_else(|| {
            Error::new(ErrorKind::Usage, format!("bring up a cluster at {}", site.place))
                .because("it is the first one there, and `--yes` does not choose a place")
                .hint(format!("--yes --at {}   # if that is where it shall run", site.place))
        })?;
        let ask = Ask::Place(site.clone());
        let answer = tokio::task::spawn_blocking(move || asks(&ask));
        tokio::select! {
            answer = answer => answer.unwrap_or_else(|error| {
                Err(Error::new(ErrorKind::Internal, "ask about the place").caused_by(&error))
            })?,
            () = settings.cancel.at_least(Urgency::Finish) => {
                return Err(Error::new(ErrorKind::Cancelled, "ask about the place")
                    .because(format!("{}; nothing was changed", settings.cancel.by())));
            }
        }
    }
    agreed.push(Agreed::to(site));
    let doing = || format!("write {}", path.display());
    let text = serde_json::to_string_pretty(&agreed).doing(ErrorKind::Internal, doing)?;
    fs::create_private_dir(&settings.paths.state).doing(ErrorKind::State, doing)?;
    fs::write_atomic(&path, text.as_bytes(), 0o600).doing(ErrorKind::State, doing)
}

fn read(path: &Path) -> Result<Vec<Agreed>> {
    let doing = || format!("read {}", path.display());
    match fs::read_text_within(path, fs::RECORD_LIMIT) {
        Ok(text) => serde_json::from_str(&text).doing(ErrorKind::State, doing),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).doing(ErrorKind::State, doing),
    }
}
