//! The list of sites that Chameleon publishes, for logging in at all of them. The built-in table is used where the list
//! cannot be had, or is not one.

use std::path::PathBuf;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use reqwest::Url;
use serde::{Deserialize, Serialize};

use super::sites::{KnownSite, SITES};
use crate::provider::UserEnvironment;
use crate::provider::kit::http;
use crate::util::fs::{RECORD_LIMIT, create_private_dir, read_text_within, write_atomic};
use crate::util::http::{Unread, body, innermost};

/// The list, as `ccauth` reads it (its `discover.py`): a site's Keystone is at port 5000 of its page.
pub(super) const LIST: &str = "https://api.chameleoncloud.org/sites";
/// The longest that a login waits for the list.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// The largest list that is read, in bytes: the real one has a few kilobytes.
const SIZE_LIMIT: usize = 256 << 10;
/// The most sites that are taken from a list.
const MOST: usize = 40;
/// How long a list is used before it is asked for again.
const FRESH: SignedDuration = SignedDuration::from_hours(24);
/// Who has names below it is Chameleon; other hosts only where the built-in table has them.
const DOMAIN: &str = ".chameleoncloud.org";

/// A site to log in to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListedSite {
    /// The name: the region in the site's catalog.
    pub(super) name: String,
    /// The URL of its Keystone.
    pub(super) auth_url: String,
    /// Whether it has bare-metal hosts to lease.
    pub(super) bare_metal: bool,
}

impl From<&KnownSite> for ListedSite {
    fn from(site: &KnownSite) -> Self {
        Self { name: site.name.to_owned(), auth_url: site.auth_url.to_owned(), bare_metal: site.bare_metal }
    }
}

/// One site of the list. What else it says is not needed.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Item {
    #[serde(default)]
    name: String,
    #[serde(default)]
    web: String,
}

#[derive(Deserialize)]
struct List {
    items: Vec<serde_json::Value>,
}

/// A list, and when it was read.
#[derive(Serialize, Deserialize)]
struct Kept {
    v: u32,
    at: Timestamp,
    items: Vec<Item>,
}

/// The sites, and why the list was not used, if so.
pub(super) struct Sites {
    pub(super) sites: Vec<ListedSite>,
    pub(super) trouble: Option<String>,
}

/// The sites of the list, of the last day or asked for now; else those of the built-in table.
pub(super) async fn sites(user_environment: &UserEnvironment) -> Sites {
    sites_at(user_environment, LIST, Timestamp::now()).await
}

async fn sites_at(user_environment: &UserEnvironment, list: &str, now: Timestamp) -> Sites {
    if let Some(sites) = kept(user_environment, now) {
        return Sites { sites, trouble: None };
    }
    match asked(list).await {
        Ok(items) => {
            let sites = checked(&items);
            let _ = keep(user_environment, &Kept { v: 1, at: now, items });
            Sites { sites, trouble: None }
        }
        Err(trouble) => Sites { sites: built_in(), trouble: Some(trouble) },
    }
}

/// The sites that are known without asking anybody: of a list of the last day, else of the built-in table.
pub(super) fn known(user_environment: &UserEnvironment) -> Vec<ListedSite> {
    kept(user_environment, Timestamp::now()).unwrap_or_else(built_in)
}

fn built_in() -> Vec<ListedSite> {
    SITES.iter().map(ListedSite::from).collect()
}

fn file(user_environment: &UserEnvironment) -> PathBuf {
    let named = user_environment.variable("XDG_CACHE_HOME").map(PathBuf::from).filter(|folder| folder.is_absolute());
    named.unwrap_or_else(|| user_environment.home.join(".cache")).join("gpucl/chameleon-sites.json")
}

/// The list of the last day. One that cannot be read, or is from the future, is as none.
fn kept(user_environment: &UserEnvironment, now: Timestamp) -> Option<Vec<ListedSite>> {
    let text = read_text_within(&file(user_environment), RECORD_LIMIT).ok()?;
    let kept: Kept = serde_json::from_str(&text).ok().filter(|kept: &Kept| kept.v == 1)?;
    let age = now.duration_since(kept.at);
    if age.is_negative() || age >= FRESH {
        return None;
    }
    // Others may write where it is: it is checked like an answer.
    Some(checked(&kept.items)).filter(|sites| !sites.is_empty())
}

/// Keeps a list. Where it cannot be kept, it is asked for again.
fn keep(user_environment: &UserEnvironment, kept: &Kept) -> std::io::Result<()> {
    let file = file(user_environment);
    if let Some(folder) = file.parent() {
        create_private_dir(folder)?;
    }
    write_atomic(&file, &serde_json::to_vec(kept)?, 0o600)
}

/// Asks for the list; why there is none, in words.
async fn asked(list: &str) -> Result<Vec<Item>, String> {
    let url = Url::parse(list).map_err(|error| error.to_string())?;
    let client = http::client(&url).timeout(ANSWER_LIMIT).build().map_err(|error| innermost(&error).to_string())?;
    let mut answer = client
        .get(url)
        .header(reqwest::header::ACCEPT, "application/json")
        .send()
        .await
        .map_err(|error| innermost(&error).to_string())?;
    // A redirect is not followed: the list is where it is.
    if !answer.status().is_success() {
        return Err(format!("it answered {}", answer.status().as_u16()));
    }
    let bytes = body(&mut answer, SIZE_LIMIT).await.map_err(|unread| match unread {
        Unread::Broken(error) => innermost(&error).to_string(),
        Unread::TooLong(limit) => format!("it answered with more than {} KiB", limit >> 10),
    })?;
    let list: List = serde_json::from_slice(&bytes).map_err(|_| "it answered with something else".to_owned())?;
    let items: Vec<Item> = list.items.into_iter().filter_map(|item| serde_json::from_value(item).ok()).collect();
    if checked(&items).is_empty() { Err("it names no site of Chameleon".to_owned()) } else { Ok(items) }
}

/// The sites among these items that can be Chameleon's: those of the built-in table first, in its order. A login is sent to
/// no other host than Chameleon's.
fn checked(items: &[Item]) -> Vec<ListedSite> {
    let mut sites: Vec<ListedSite> = Vec::new();
    for item in items {
        let Some(site) = site_of(item) else { continue };
        let is_new = sites.iter().all(|one| one.name != site.name && one.auth_url != site.auth_url);
        if is_new && sites.len() < MOST {
            sites.push(site);
        }
    }
    let place = |site: &ListedSite| SITES.iter().position(|known| known.name == site.name).unwrap_or(SITES.len());
    sites.sort_by_key(place);
    sites
}

fn site_of(item: &Item) -> Option<ListedSite> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "@._-".contains(letter);
    if item.name.is_empty() || item.name.len() > 40 || !item.name.chars().all(is_plain) {
        return None;
    }
    let web = Url::parse(&item.web).ok()?;
    let host = web.host_str()?;
    // Nothing but a host: no port, no user, no path.
    if web.scheme() != "https" || web.as_str() != format!("https://{host}/") {
        return None;
    }
    let auth_url = format!("https://{host}:5000/v3");
    let known = SITES.iter().find(|known| known.name == item.name);
    if !host.ends_with(DOMAIN) && !SITES.iter().any(|known| known.auth_url == auth_url) {
        return None;
    }
    let bare_metal = known.map_or_else(|| item.name.starts_with("CHI@"), |known| known.bare_metal);
    Some(ListedSite { name: item.name.clone(), auth_url, bare_metal })
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    fn item(name: &str, web: &str) -> Item {
        Item { name: name.to_owned(), web: web.to_owned() }
    }

    fn user_environment(home: &std::path::Path) -> UserEnvironment {
        UserEnvironment {
            variables: std::collections::BTreeMap::new(),
            home: home.to_owned(),
            config_home: home.join(".config"),
            config_dir: home.join(".config/gpucl"),
            here: home.to_owned(),
        }
    }

    /// A server that gives each caller this answer; also returns how many came.
    fn server(answer: String) -> (String, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/sites", listener.local_addr().unwrap());
        let asked = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                let _head = stream.read(&mut [0; 4096]).unwrap_or_default();
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        (url, asked)
    }

    fn ok(body: &str) -> String {
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
    }

    const GOOD: &str = r#"{"items": [{"name": "KVM@TACC", "uid": "kvm", "web": "https://kvm.tacc.chameleoncloud.org"},
        {"name": "CHI@New", "uid": "new", "web": "https://chi.new.chameleoncloud.org", "links": [{"rel": "self"}]},
        {"name": "CHI@UC", "uid": "uc", "web": "https://chi.uc.chameleoncloud.org/"}, 7, {"uid": "x"}]}"#;

    #[test]
    fn a_login_goes_to_no_other_host_than_chameleons() {
        let good = site_of(&item("CHI@New", "https://chi.new.chameleoncloud.org")).unwrap();
        assert_eq!(good.auth_url, "https://chi.new.chameleoncloud.org:5000/v3");
        assert!(good.bare_metal);
        // One that is not below Chameleon's domain, and that this version knows.
        assert!(site_of(&item("CHI@NU", "https://sl-ciab.northwestern.edu")).is_some());
        for web in [
            "http://chi.uc.chameleoncloud.org",
            "https://chameleoncloud.org.evil.example",
            "https://evil.example",
            "https://evilchameleoncloud.org",
            "https://chi.uc.chameleoncloud.org@evil.example",
            "https://evil.example/.chameleoncloud.org",
            "https://evil.example#.chameleoncloud.org",
            "https://user:word@chi.uc.chameleoncloud.org",
            "https://chi.uc.chameleoncloud.org:9999",
            "https://chi.uc.chameleoncloud.org/path",
            "https://chi.uc.chameleoncloud.org?x",
            "https://10.0.0.1",
            "file:///etc/passwd",
            "",
        ] {
            assert_eq!(site_of(&item("CHI@UC", web)), None, "{web}");
        }
        for name in ["", "CHI@UC\nx", "CHI UC", "\u{1b}[2J", &"x".repeat(41)] {
            assert_eq!(site_of(&item(name, "https://chi.uc.chameleoncloud.org")), None, "{name:?}");
        }
        // A name and an address count once, and there are not too many.
        let many: Vec<Item> =
            (0..100).map(|n| item(&format!("CHI@{n}"), &format!("https://chi.{n}.chameleoncloud.org"))).collect();
        assert_eq!(checked(&many).len(), MOST);
        let twice = [item("CHI@A", "https://a.chameleoncloud.org"), item("CHI@B", "https://a.chameleoncloud.org")];
        assert_eq!(checked(&twice).len(), 1);
    }

    #[tokio::test]
    async fn a_list_is_used_for_a_day_and_then_asked_for_again() {
        let home = tempfile::tempdir().unwrap();
        let user_environment = user_environment(home.path());
        let (url, asked) = server(ok(GOOD));
        let now = Timestamp::now();
        for (hours, calls) in [(0, 1), (23, 1), (25, 2), (24, 3)] {
            let now = now + SignedDuration::from_hours(hours);
            let found = sites_at(&user_environment, &url, now).await;
            assert_eq!(found.trouble, None);
            let names: Vec<&str> = found.sites.iter().map(|site| site.name.as_str()).collect();
            assert_eq!(names, ["CHI@UC", "KVM@TACC", "CHI@New"]);
            // The last one is of a clock that goes wrong: a list from the future.
            assert_eq!(asked.load(std::sync::atomic::Ordering::SeqCst), calls, "after {hours} h");
        }
        assert_eq!(known(&user_environment).len(), SITES.len(), "a list from the future is none");
        fs_err::write(file(&user_environment), "{").unwrap();
        assert_eq!(known(&user_environment).len(), SITES.len());
    }

    #[tokio::test]
    async fn without_a_list_the_built_in_table_is_used_and_the_reason_said() {
        let home = tempfile::tempdir().unwrap();
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let evil = r#"{"items": [{"name": "CHI@UC", "uid": "uc", "web": "https://evil.example"}]}"#;
        let huge = format!("{{\"items\": [\"{}\"]}}", "x".repeat(SIZE_LIMIT));
        for (url, reason) in [
            (format!("http://{closed}/sites"), "refused"),
            (
                server(
                    "HTTP/1.1 302 Found\r\nlocation: https://evil.example/sites\r\ncontent-length: 0\r\n\r\n".into(),
                )
                .0,
                "it answered 302",
            ),
            (server("HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n".into()).0, "it answered 503"),
            (server(ok("<html>log in first</html>")).0, "something else"),
            (server(ok(r#"{"sites": []}"#)).0, "something else"),
            (server(ok(r#"{"items": []}"#)).0, "it names no site"),
            (server(ok(evil)).0, "it names no site"),
            (server(ok(&huge)).0, "more than 256 KiB"),
        ] {
            let found = sites_at(&user_environment(home.path()), &url, Timestamp::now()).await;
            assert!(found.trouble.as_ref().is_some_and(|why| why.contains(reason)), "{reason}: {:?}", found.trouble);
            assert_eq!(found.sites, built_in());
            assert!(!file(&user_environment(home.path())).exists(), "{reason}: what is wrong is not kept");
        }
    }
}
