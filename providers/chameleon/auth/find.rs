//! Finds the credentials to use, and their source.

use super::super::credentials::{Credentials, Method, Named};
use super::clouds::Clouds;
use super::entry::{ACCOUNTS, Entry, parts};
use super::flat::Flat;
use super::sites::{means, site_at};
use crate::error::{Error, ErrorKind, Result};
use crate::provider::UserEnvironment;
use crate::secret::Vault;

/// The cloud, site and project selected by flags or the spec.
#[derive(Debug, Clone, Default)]
pub(crate) struct Choice {
    /// A cloud of `clouds.yaml`.
    pub(crate) cloud: Option<String>,
    /// A site, by name or place: `CHI@TACC`, `tacc`.
    pub(crate) site: Option<String>,
    /// A project, by name or id.
    pub(crate) project: Option<String>,
}

/// Credentials that match the choice.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    /// Their source, for display: `the cloud uc of ~/clouds.yaml`.
    pub(crate) source: String,
    /// The site's name; its address if the name is unknown before the first call.
    pub(crate) site: String,
    pub(crate) credentials: Credentials,
    /// It was stored by `gpucl login`.
    pub(super) is_login: bool,
}

/// Variables that select credentials but hold none.
const SELECTORS: [&str; 8] = [
    "OS_CLOUD",
    "OS_REGION_NAME",
    "OS_CLIENT_CONFIG_FILE",
    "OS_CLIENT_SECURE_FILE",
    "OS_CLOUD_NAME",
    "OS_PROJECT_NAME",
    "OS_PROJECT_ID",
    "OS_INTERFACE",
];

/// Finds the credentials to use, one per matching site. Reads files and the keyring; sends nothing.
///
/// The first source that has any is used: the named cloud, `OS_CLOUD`, the `OS_*` variables, and last the logins
/// together with the clouds of `clouds.yaml` that are Chameleon's, or the only one. A login at a site goes before a cloud
/// that nobody named.
pub(crate) fn find(user_environment: &UserEnvironment, vault: &Vault, choice: &Choice) -> Result<Vec<Candidate>> {
    let clouds = Clouds::read(user_environment)?;
    let finder = Finder { user_environment, vault, clouds, choice };
    let found = finder.found()?;
    let wanted = choice.site.as_deref().or_else(|| user_environment.variable("OS_REGION_NAME"));
    let fitting: Vec<Candidate> = match wanted {
        None => found,
        Some(word) => {
            let known: Vec<String> = found.iter().map(|one| format!("{} ({})", one.site, one.source)).collect();
            let fitting: Vec<Candidate> = found.into_iter().filter(|one| finder.fits(one, word)).collect();
            if fitting.is_empty() {
                return Err(finder.no_such_site(word, &known));
            }
            fitting
        }
    };
    finder.one_each(fitting)
}

/// Whether there are any credentials, even if it is unclear which to use.
pub(crate) fn is_known(user_environment: &UserEnvironment, vault: &Vault) -> Result<bool> {
    let choice = Choice::default();
    let finder = Finder { user_environment, vault, clouds: Clouds::read(user_environment)?, choice: &choice };
    Ok(user_environment.variable("OS_CLOUD").is_some()
        || finder.environment().is_some()
        || !finder.clouds.names().is_empty()
        || !vault.list(ACCOUNTS)?.is_empty())
}

/// The clouds whose login is confirmed on a page, of the `OS_*` variables or of `clouds.yaml`, one per site. Sends
/// nothing.
pub(crate) fn device_logins(
    user_environment: &UserEnvironment,
    vault: &Vault,
    choice: &Choice,
) -> Result<Vec<Candidate>> {
    let finder = Finder { user_environment, vault, clouds: Clouds::read(user_environment)?, choice };
    let found = match (user_environment.variable("OS_CLOUD"), finder.environment()) {
        (Some(name), environment) if name != finder.environment_name() || environment.is_none() => {
            finder.cloud(name)?
        }
        (_, Some(flat)) => vec![finder.of_environment(flat)?],
        _ => {
            let names = finder.clouds.names();
            // One of another kind may be incomplete.
            names.iter().filter_map(|name| finder.cloud(name).ok()).flatten().collect()
        }
    };
    let is_meant = |one: &Candidate| choice.site.as_deref().is_none_or(|word| finder.fits(one, word));
    let is_device = |one: &Candidate| matches!(one.credentials.method, Method::OidcDevice { .. });
    let mut each: Vec<Candidate> = Vec::new();
    for one in found.into_iter().filter(|one| is_device(one) && is_meant(one)) {
        match each.iter_mut().find(|before| before.site == one.site) {
            Some(before) => drop(finder.is_same_login(before, &one)),
            None => each.push(one),
        }
    }
    Ok(each)
}

struct Finder<'a> {
    user_environment: &'a UserEnvironment,
    vault: &'a Vault,
    clouds: Clouds,
    choice: &'a Choice,
}

impl Finder<'_> {
    /// All candidates of the first source that has any.
    fn found(&self) -> Result<Vec<Candidate>> {
        if let Some(name) = &self.choice.cloud {
            return self.cloud(name);
        }
        let environment = self.environment();
        if let Some(name) = self.user_environment.variable("OS_CLOUD") {
            if name == self.environment_name() && environment.is_some() {
                return self.of_environment(environment.unwrap_or_default()).map(|one| vec![one]);
            }
            return self.cloud(name);
        }
        if let Some(flat) = environment {
            let one = self.of_environment(flat)?;
            let word = self.choice.site.as_deref();
            if word.is_none_or(|word| self.fits(&one, word)) {
                return Ok(vec![one]);
            }
            // The variables are for another site than the named one.
            let mut all = self.logins()?;
            all.push(one);
            return Ok(all);
        }
        let mut all = self.logins()?;
        let names = self.clouds.names();
        let named_site = self.choice.site.is_some() || self.user_environment.variable("OS_REGION_NAME").is_some();
        // With a site named, all clouds can be filtered by it; the only one is meant whatever it is.
        let all_are_meant = named_site || names.len() == 1;
        let mut unusable = None;
        for name in names.iter().filter(|name| all_are_meant || self.is_of_chameleon(name)) {
            match self.cloud(name) {
                Ok(found) => all.extend(found),
                Err(error) => drop(unusable.get_or_insert(error)),
            }
        }
        // An unusable cloud that was not named is ignored, unless there is nothing else.
        if all.is_empty() { Err(unusable.unwrap_or_else(|| self.nothing())) } else { Ok(all) }
    }

    /// Whether a cloud of `clouds.yaml` is Chameleon's without being named: by how it logs in, or where.
    fn is_of_chameleon(&self, name: &str) -> bool {
        let is_its = |flat: &Flat| {
            flat.get(&["auth_type"]).is_some_and(|kind| kind.eq_ignore_ascii_case("v3chameleonoidc"))
                || flat.get(&["auth_url"]).is_some_and(|url| site_at(url).is_some())
        };
        self.clouds.cloud(name).is_ok_and(|flats| flats.iter().any(is_its))
    }

    /// A cloud of `clouds.yaml`, one candidate per region.
    fn cloud(&self, name: &str) -> Result<Vec<Candidate>> {
        let file = self.clouds.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        let source = format!("the cloud {name} of {file}");
        let flats = self.clouds.cloud(name)?;
        flats.into_iter().map(|flat| self.candidate(&flat, &source, Some(name))).collect()
    }

    /// The `OS_*` variables as options, if they hold a credential.
    fn environment(&self) -> Option<Flat> {
        let is_ours = |name: &str| {
            name.starts_with("OS_") && !["OS_TEST", "OS_STD", "OS_LOG"].iter().any(|begin| name.starts_with(begin))
        };
        let set = || {
            let variables = self.user_environment.variables.iter();
            variables.filter(|(name, value)| is_ours(name) && !value.is_empty())
        };
        set().find(|(name, _)| !SELECTORS.contains(&name.as_str()))?;
        // OS_AUTH_URL alone is no credential: it may be set for `gpucl login`.
        let credential = ["OS_TOKEN", "OS_AUTH_TOKEN", "OS_ACCESS_TOKEN", "OS_PASSWORD", "OS_AUTH_TYPE"];
        set().find(|(name, _)| credential.contains(&name.as_str()) || name.starts_with("OS_APPLICATION_CREDENTIAL"))?;
        let mut flat = Flat::default();
        for (name, value) in set() {
            flat.set(name.trim_start_matches("OS_"), value.clone());
        }
        Some(flat)
    }

    fn environment_name(&self) -> &str {
        self.user_environment.variable("OS_CLOUD_NAME").unwrap_or("envvars")
    }

    fn of_environment(&self, flat: Flat) -> Result<Candidate> {
        let name = self.environment_name();
        if self.clouds.names().contains(&name) {
            return Err(Error::new(ErrorKind::Usage, "choose credentials")
                .because(format!("the OS_* variables define the cloud `{name}`, and so does clouds.yaml"))
                .hint("choose one: OS_CLOUD=NAME; or give the variables another name: OS_CLOUD_NAME=NAME"));
        }
        self.candidate(&flat, "the OS_* variables", None)
    }

    /// The credentials stored by `gpucl login`, restricted to the chosen project, if any.
    fn logins(&self) -> Result<Vec<Candidate>> {
        let project = self.project();
        let mut found = Vec::new();
        for account in self.vault.list(ACCOUNTS)? {
            let of_project = parts(&account).map(|(_, name)| name);
            let chosen = project.name.as_deref();
            if chosen.is_some_and(|chosen| of_project.is_none_or(|name| !name.eq_ignore_ascii_case(chosen))) {
                continue;
            }
            let Some(text) = self.vault.get(&account)? else { continue };
            let credentials = Entry::read(&account, &text)?.credentials();
            let site = credentials.region.clone().unwrap_or_default();
            let source = format!("the login at {site} in {}", of_project.unwrap_or_default());
            found.push(Candidate { source, site, credentials, is_login: true });
        }
        Ok(found)
    }

    fn candidate(&self, flat: &Flat, source: &str, cloud: Option<&str>) -> Result<Candidate> {
        let mut credentials = flat.credentials(source, self.user_environment)?;
        let chosen = self.project();
        // A flag takes precedence over the cloud's own project, a variable does not.
        if !chosen.is_open() && (self.choice.project.is_some() || credentials.project.is_open()) {
            let domains = credentials.project;
            credentials.project = Named { domain_id: domains.domain_id, domain_name: domains.domain_name, ..chosen };
        }
        if let (None, Some(interface)) =
            (flat.get(&["interface", "endpoint_type"]), self.user_environment.variable("OS_INTERFACE"))
        {
            credentials.interface = interface.to_owned();
        }
        if credentials.cacert.is_none() {
            credentials.cacert = self.user_environment.variable("OS_CACERT").map(Into::into);
        }
        if let Some(path) = credentials.cacert.take() {
            credentials.cacert = Some(match path.strip_prefix("~") {
                Ok(below) => self.user_environment.home.join(below),
                Err(_) => self.user_environment.here.join(path),
            });
        }
        let site = credentials.region.clone().or_else(|| cloud.map(str::to_owned));
        let site = site.unwrap_or_else(|| credentials.auth_url.clone());
        Ok(Candidate { source: source.to_owned(), site, credentials, is_login: false })
    }

    /// The project chosen by flag or variable.
    fn project(&self) -> Named {
        let variable = |name: &str| self.user_environment.variable(name).map(str::to_owned);
        match &self.choice.project {
            Some(word) => Named { name: Some(word.clone()), ..Named::default() },
            None => Named { id: variable("OS_PROJECT_ID"), name: variable("OS_PROJECT_NAME"), ..Named::default() },
        }
    }

    fn fits(&self, one: &Candidate, word: &str) -> bool {
        means(word, &one.site)
            || one.credentials.region.as_deref().is_some_and(|region| means(word, region))
            // A cloud may be named after its site.
            || (one.credentials.region.is_none() && one.source.starts_with(&format!("the cloud {word} ")))
    }

    /// Whether two candidates are one login, whose project is then the chosen one, or else left open: Keystone knows which
    /// there are. So `ccauth --all-projects` writes its clouds.
    fn is_same_login(&self, before: &mut Candidate, one: &Candidate) -> bool {
        let kept_of = |one: &Candidate| match &one.credentials.method {
            Method::OidcDevice { kept, .. } => Some((kept.clone(), one.credentials.auth_url.clone())),
            _ => None,
        };
        let is_same = kept_of(before).is_some_and(|kept| kept_of(one).is_some_and(|other| other == kept));
        let (first, second) = (&before.credentials.project, &one.credentials.project);
        if is_same && (first.name != second.name || first.id != second.id) {
            let domains = first.clone();
            let chosen = self.project();
            before.credentials.project =
                Named { domain_id: domains.domain_id, domain_name: domains.domain_name, ..chosen };
        }
        is_same
    }

    /// Keeps one candidate per site; fails if a site has candidates for several projects.
    fn one_each(&self, found: Vec<Candidate>) -> Result<Vec<Candidate>> {
        let mut each: Vec<Candidate> = Vec::new();
        for one in found {
            let Some(before) = each.iter_mut().find(|before| before.site == one.site) else {
                each.push(one);
                continue;
            };
            if self.is_same_login(before, &one) {
                continue;
            }
            let (first, second) = (&before.credentials.project, &one.credentials.project);
            let contradict = match before.is_login && !one.is_login {
                // The cloud was not named. It may know its project by id alone, or not at all.
                true => first.name.as_ref().zip(second.name.as_ref()).is_some_and(|(a, b)| !a.eq_ignore_ascii_case(b)),
                false => first.name != second.name || first.id != second.id,
            };
            if contradict {
                return Err(Error::new(ErrorKind::Usage, format!("choose credentials for {}", one.site))
                    .because(format!("there are several: {} and {}", before.source, one.source))
                    .hint("choose a project: --project NAME, or set OS_PROJECT_NAME")
                    .hint("or choose a cloud of clouds.yaml: set OS_CLOUD"));
            }
        }
        Ok(each)
    }

    fn nothing(&self) -> Error {
        let project = self.project();
        let clouds = match (&self.clouds.path, self.clouds.names().as_slice()) {
            (None, _) => "no clouds.yaml in ~/.config/openstack or /etc/openstack".to_owned(),
            (Some(path), []) => format!("{} has no cloud", path.display()),
            (Some(path), names) => {
                format!("{} has several clouds, and none was chosen: {}", path.display(), names.join(", "))
            }
        };
        let logins = match &project.name {
            Some(name) => format!("no login in the project {name}"),
            None => "no login".to_owned(),
        };
        let error = Error::new(ErrorKind::Usage, "find credentials for Chameleon")
            .because(format!("tried: no OS_* credentials in the environment, {logins}, {clouds}"))
            .hint("gpucl login chameleon");
        if self.clouds.names().len() > 1 { error.hint("choose a cloud: OS_CLOUD=NAME") } else { error }
    }

    fn no_such_site(&self, word: &str, known: &[String]) -> Error {
        Error::new(ErrorKind::Usage, format!("find credentials for the site {word}"))
            .because(format!("there are credentials only for {}", known.join(", ")))
            .hint(format!("gpucl login chameleon --site {word}"))
    }
}
