//! Selection of credentials from files, variables and logins.

use secrecy::{ExposeSecret as _, SecretString};

use super::super::credentials::{Credentials, Method};
use super::entry::Entry;
use super::{Candidate, Choice, find};
use crate::error::Result;
use crate::provider::UserEnvironment;
use crate::secret::Vault;

/// A user with a home folder of their own.
struct User {
    folder: tempfile::TempDir,
    user_environment: UserEnvironment,
}

impl User {
    fn new(variables: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let user_environment = UserEnvironment {
            variables: variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            home: at("home"),
            config_home: at("home/.config"),
            config_dir: at("home/.config/gpucl"),
            here: at("work"),
        };
        Self { folder, user_environment }
    }

    fn write(&self, name: &str, text: &str) -> &Self {
        let path = self.folder.path().join(name);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, text).unwrap();
        self
    }

    /// The same environment with these variables in place of others.
    fn with(&self, variables: Variables) -> UserEnvironment {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        UserEnvironment { variables, ..self.user_environment.clone() }
    }

    fn log_in(&self, site: &str, project: &str) -> &Self {
        let secret = SecretString::from("kept".to_owned());
        let method = Method::ApplicationCredential { id: format!("{site} {project}"), secret };
        let entry = Entry::new(&Credentials::new(method, "https://site.example:5000/v3"), site, project).unwrap();
        self.vault().put(&entry.account(), &entry.text().unwrap()).unwrap();
        self
    }

    fn vault(&self) -> Vault {
        Vault::open(&self.user_environment.config_dir, None)
    }

    fn find(&self, choice: &Choice) -> Result<Vec<Candidate>> {
        find(&self.user_environment, &self.vault(), choice)
    }

    /// The ids of the credentials found without a choice.
    fn ids(&self) -> Vec<String> {
        ids(&self.find(&Choice::default()).unwrap())
    }
}

fn ids(found: &[Candidate]) -> Vec<String> {
    let id = |one: &Candidate| match &one.credentials.method {
        Method::ApplicationCredential { id, .. } => id.clone(),
        other => other.name().to_owned(),
    };
    found.iter().map(id).collect()
}

fn site(word: &str) -> Choice {
    Choice { site: Some(word.to_owned()), ..Choice::default() }
}

fn cloud(name: &str, id: &str, region: &str) -> String {
    format!(
        "  {name}:\n    auth_type: v3applicationcredential\n    region_name: {region}\n    auth:\n      \
         auth_url: https://site.example:5000/v3\n      application_credential_id: {id}\n      \
         application_credential_secret: hush\n"
    )
}

fn clouds(clouds: &[(&str, &str, &str)]) -> String {
    let clouds: String = clouds.iter().map(|(name, id, region)| cloud(name, id, region)).collect();
    format!("clouds:\n{clouds}")
}

type Variables<'a> = &'a [(&'a str, &'a str)];

/// Credentials as variables.
const ENVIRONMENT: &[(&str, &str)] = &[
    ("OS_AUTH_URL", "https://chi.tacc.chameleoncloud.org:5000/v3"),
    ("OS_APPLICATION_CREDENTIAL_ID", "of-env"),
    ("OS_APPLICATION_CREDENTIAL_SECRET", "hush"),
];

fn with(more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    [ENVIRONMENT, more].concat()
}

#[test]
fn the_first_source_with_credentials_is_used() {
    let two = clouds(&[("tacc", "of-tacc", "CHI@TACC"), ("uc", "of-uc", "CHI@UC")]);
    let one = clouds(&[("uc", "of-uc", "CHI@UC")]);
    // Variables, clouds.yaml, logged in, expected ids.
    let table: &[(Variables, &str, bool, &[&str])] = &[
        (&[("OS_CLOUD", "uc")], &two, true, &["of-uc"]),
        (&with(&[("OS_CLOUD", "uc")]), &two, true, &["of-uc"]),
        (ENVIRONMENT, &two, true, &["of-env"]),
        (&with(&[("OS_CLOUD", "envvars")]), &two, true, &["of-env"]),
        (&[], &two, true, &["CHI@NU CHI-1"]),
        (&[], &one, true, &["CHI@NU CHI-1", "of-uc"]),
        (&[], &one, false, &["of-uc"]),
        (&[("OS_REGION_NAME", "CHI@UC")], &two, true, &["of-uc"]),
        (&[("OS_REGION_NAME", "CHI@NU")], &two, true, &["CHI@NU CHI-1"]),
        // OS_AUTH_URL alone is no credential.
        (&[("OS_AUTH_URL", "https://x.example/v3")], &one, false, &["of-uc"]),
    ];
    for (variables, file, logged_in, expected) in table {
        let user = User::new(variables);
        user.write("home/.config/openstack/clouds.yaml", file);
        if *logged_in {
            user.log_in("CHI@NU", "CHI-1");
        }
        assert_eq!(user.ids(), *expected, "{variables:?}");
    }
}

#[test]
fn the_first_file_is_used_and_its_secure_yaml_overrides_it() {
    let user = User::new(&[]);
    user.write(
        "home/.config/openstack/clouds.json",
        r#"{"clouds": {"uc": {"auth": {"auth_url": "https://s.example/v3",
        "application_credential_id": "of-work", "application_credential_secret": "x"}}}}"#,
    );
    assert_eq!(user.ids(), ["of-work"]);
    user.write("home/.config/openstack/clouds.yaml", &clouds(&[("uc", "of-yaml", "CHI@UC")]));
    assert_eq!(user.ids(), ["of-yaml"]);
    user.write(
        "home/.config/openstack/secure.yaml",
        "clouds: {uc: {auth: {application_credential_secret: over}}, other: {}}\n",
    );
    let found = user.find(&Choice { cloud: Some("uc".to_owned()), ..Choice::default() }).unwrap();
    let Method::ApplicationCredential { id, secret } = &found[0].credentials.method else { panic!("{found:?}") };
    assert_eq!((id.as_str(), secret.expose_secret()), ("of-yaml", "over"));
    let other = User::new(&[("OS_CLIENT_CONFIG_FILE", "mine.yaml")]);
    other.write("home/.config/openstack/clouds.yaml", &clouds(&[("uc", "of-yaml", "CHI@UC")]));
    other.write("work/mine.yaml", &clouds(&[("uc", "of-mine", "CHI@UC")]));
    assert_eq!(other.ids(), ["of-mine"]);
}

/// A folder from somebody else may hold a `clouds.yaml` that points a cloud of your name to their Keystone.
#[test]
fn a_secret_of_one_folder_is_not_sent_where_a_file_of_another_says() {
    let theirs =
        "clouds: {uc: {region_name: X, auth: {auth_url: \"https://evil.example/v3\", application_credential_id: i}}}\n";
    let secure = "clouds: {uc: {auth: {application_credential_secret: yours}}}\n";
    let user = User::new(&[]);
    user.write("work/clouds.yaml", theirs)
        .write("home/.config/openstack/clouds.yaml", &clouds(&[("uc", "of-uc", "X")]));
    user.write("home/.config/openstack/secure.yaml", secure);
    // What lies in the working folder is not read, whatever its name.
    for name in ["work/clouds.yml", "work/clouds.json", "work/secure.yaml"] {
        user.write(name, theirs);
    }
    for variables in [&[][..], &[("OS_CLOUD", "uc")]] {
        let user = User { user_environment: user.with(variables), folder: tempfile::tempdir().unwrap() };
        assert_eq!(user.ids(), ["of-uc"]);
    }
    // Where the user names it, a link in its folder leads to no secret of another one.
    let home = user.folder.path().join("home/.config/openstack/secure.yaml");
    fs_err::remove_file(user.folder.path().join("work/secure.yaml")).unwrap();
    std::os::unix::fs::symlink(&home, user.folder.path().join("work/secure.yaml")).unwrap();
    let user = User { user_environment: user.with(&[("OS_CLIENT_CONFIG_FILE", "clouds.yaml")]), ..user };
    let error = user.find(&Choice::default()).unwrap_err();
    assert!(error.to_string().contains("application_credential_secret is missing"), "{error}");
    // A `secure.yaml` named by a variable is not merged with a file of another folder either; that is an error.
    let file = user.folder.path().join("home/.config/openstack/secure.yaml").display().to_string();
    let named = User {
        user_environment: UserEnvironment {
            variables: [
                ("OS_CLIENT_SECURE_FILE".to_owned(), file),
                ("OS_CLIENT_CONFIG_FILE".to_owned(), "clouds.yaml".to_owned()),
            ]
            .into(),
            ..user.user_environment.clone()
        },
        ..user
    };
    let error = named.find(&Choice::default()).unwrap_err();
    assert!(error.to_string().contains("files of different folders are not merged"), "{error}");
    let file = named.folder.path().join("home/.config/openstack/secure.yaml").display().to_string();
    let named = User { user_environment: named.with(&[("OS_CLIENT_SECURE_FILE", file.as_str())]), ..named };
    let found = named.find(&Choice::default()).unwrap();
    let Method::ApplicationCredential { secret, .. } = &found[0].credentials.method else { panic!("{found:?}") };
    assert_eq!(secret.expose_secret(), "yours");
}

#[test]
fn a_site_narrows_the_candidates() {
    let user = User::new(&[]);
    user.log_in("CHI@TACC", "CHI-1").log_in("CHI@UC", "CHI-1");
    assert_eq!(user.ids(), ["CHI@TACC CHI-1", "CHI@UC CHI-1"]);
    assert_eq!(ids(&user.find(&site("tacc")).unwrap()), ["CHI@TACC CHI-1"]);
    let error = user.find(&site("nu")).unwrap_err();
    assert!(error.to_string().contains("CHI@TACC (the login at CHI@TACC in CHI-1), CHI@UC"), "{error}");
    assert_eq!(error.hints(), ["gpucl login chameleon --site nu"]);
    // The variables are for another site than the named one.
    let user = User::new(ENVIRONMENT);
    user.log_in("CHI@UC", "CHI-1");
    assert_eq!(ids(&user.find(&site("uc")).unwrap()), ["CHI@UC CHI-1"]);
    assert_eq!(ids(&user.find(&site("CHI@TACC")).unwrap()), ["of-env"]);
}

#[test]
fn several_projects_at_one_site_need_a_choice() {
    let user = User::new(&[]);
    user.log_in("CHI@UC", "CHI-1").log_in("CHI@UC", "CHI-2");
    let error = user.find(&Choice::default()).unwrap_err();
    assert!(error.hints()[0].contains("--project"), "{error}");
    let choice = Choice { project: Some("chi-2".to_owned()), ..Choice::default() };
    assert_eq!(ids(&user.find(&choice).unwrap()), ["CHI@UC CHI-2"]);
    let chosen = User::new(&[("OS_PROJECT_NAME", "CHI-1")]);
    chosen.log_in("CHI@UC", "CHI-1").log_in("CHI@UC", "CHI-2");
    assert_eq!(chosen.ids(), ["CHI@UC CHI-1"]);
}

#[test]
fn a_cloud_of_several_regions_is_several_sites() {
    let user = User::new(&[]);
    let text = clouds(&[("chi", "of-chi", "X")])
        .replace("region_name: X", "regions: [CHI@UC, {name: CHI@NU, values: {interface: internal}}]");
    user.write("home/.config/openstack/clouds.yaml", &text);
    let found = user.find(&Choice::default()).unwrap();
    let sites: Vec<(&str, &str)> =
        found.iter().map(|one| (one.site.as_str(), one.credentials.interface.as_str())).collect();
    assert_eq!(sites, [("CHI@UC", "public"), ("CHI@NU", "internal")]);
    assert_eq!(user.find(&site("nu")).unwrap().len(), 1);
}

/// A cloud at a known site, with an application credential of this id.
fn of_site(name: &str, id: &str, host: &str, more: &str) -> String {
    format!(
        "  {name}:\n    auth:\n      auth_url: https://{host}:5000/v3\n      application_credential_id: {id}\n      \
         application_credential_secret: hush\n      {more}\n"
    )
}

fn settings_of_each_site(user: &User, settings: serde_json::Value) -> Vec<serde_json::Value> {
    let at = |name: &str| user.folder.path().join(name);
    let context = crate::provider::Context {
        data_dir: at("data"),
        cache_dir: at("cache"),
        runtime_dir: at("run"),
        clusters_dir: at("clusters"),
        user_environment: user.user_environment.clone(),
        events: crate::event::Bus::new().0,
    };
    super::each_site(&settings, &context).unwrap()
}

#[test]
fn of_several_clouds_those_of_chameleon_are_its_sites() {
    let (tacc, uc) = ("chi.tacc.chameleoncloud.org", "chi.uc.chameleoncloud.org");
    let oidc = "auth_type: v3chameleonoidc\n    region_name: CHI@NU\n    auth: {auth_url: \"https://x.example/v3\", \
                identity_provider: chameleon, protocol: openid, client_id: c, project_id: p, discovery_endpoint: \
                \"https://auth.example\"}";
    let text = format!(
        "clouds:\n{}{}{}  nu:\n    {oidc}\n{}  broken: {{auth: {{auth_url: \"https://{uc}:5000/v3\"}}}}\n",
        of_site("tacc", "of-tacc", tacc, ""),
        of_site("uc", "of-uc", uc, ""),
        of_site("work", "of-work", "cloud.example", ""),
        of_site("kvm", "of-kvm", "kvm.tacc.chameleoncloud.org", ""),
    );
    let user = User::new(&[]);
    user.write("home/.config/openstack/clouds.yaml", &text);
    let mut ids = user.ids();
    ids.sort();
    assert_eq!(ids.len(), 4, "{ids:?}");
    assert!(!ids.contains(&"of-work".to_owned()), "{ids:?}");
    // A site without bare metal is asked only if it is named.
    let sites = |settings: serde_json::Value| {
        let each = settings_of_each_site(&user, settings);
        let mut sites: Vec<String> = each.iter().map(|one| one["site"].as_str().unwrap_or("-").to_owned()).collect();
        sites.sort();
        sites
    };
    assert_eq!(sites(serde_json::json!({"hours": 2})), ["CHI@NU", "CHI@TACC", "CHI@UC"]);
    assert_eq!(sites(serde_json::json!({"site": "kvm"})), ["kvm"]);
    assert_eq!(sites(serde_json::json!({"cloud": "kvm"})), ["KVM@TACC"]);
    assert_eq!(settings_of_each_site(&user, serde_json::json!({"cloud": "uc", "hours": 2}))[0]["hours"], 2);
}

#[test]
fn a_login_goes_before_a_cloud_that_nobody_named() {
    let file = |project: &str| format!("clouds:\n{}", of_site("uc", "of-file", "chi.uc.chameleoncloud.org", project));
    // Without a project, with an id that the login does not know, and with the same name.
    for project in ["", "project_id: 0123", "project_name: chi-1"] {
        let user = User::new(&[]);
        user.log_in("CHI@UC", "CHI-1").write("home/.config/openstack/clouds.yaml", &file(project));
        assert_eq!(user.ids(), ["CHI@UC CHI-1"], "{project}");
        let named = Choice { cloud: Some("uc".to_owned()), ..Choice::default() };
        assert_eq!(ids(&user.find(&named).unwrap()), ["of-file"], "{project}");
    }
    let user = User::new(&[]);
    user.log_in("CHI@UC", "CHI-1").write("home/.config/openstack/clouds.yaml", &file("project_name: CHI-2"));
    let error = user.find(&Choice::default()).unwrap_err();
    assert!(error.to_string().contains("the login at CHI@UC in CHI-1 and the cloud uc of "), "{error}");
}

#[test]
fn every_authentication_method_is_read() {
    let table: &[(&[(&str, &str)], &str)] = &[
        (
            &[
                ("OS_AUTH_TYPE", "v3applicationcredential"),
                ("OS_APPLICATION_CREDENTIAL_ID", "i"),
                ("OS_APPLICATION_CREDENTIAL_SECRET", "s"),
            ],
            "application credential",
        ),
        (
            &[
                ("OS_AUTH_TYPE", "v3oidcaccesstoken"),
                ("OS_IDENTITY_PROVIDER", "chameleon"),
                ("OS_PROTOCOL", "openid"),
                ("OS_ACCESS_TOKEN", "t"),
                ("OS_PROJECT_NAME", "CHI-1"),
            ],
            "access token",
        ),
        (&[("OS_TOKEN", "t")], "token"),
        (
            &[
                ("OS_AUTH_TYPE", "v3oidcpassword"),
                ("OS_IDENTITY_PROVIDER", "chameleon"),
                ("OS_PROTOCOL", "openid"),
                ("OS_CLIENT_ID", "keystone-tacc-prod"),
                ("OS_CLIENT_SECRET", "none"),
                ("OS_USERNAME", "u"),
                ("OS_PASSWORD", "p"),
                ("OS_DISCOVERY_ENDPOINT", "https://auth.example"),
            ],
            "password",
        ),
        (&[("OS_USERNAME", "u"), ("OS_PASSWORD", "p"), ("OS_USER_DOMAIN_NAME", "Default")], "password"),
    ];
    for (variables, expected) in table {
        let variables = [&[("OS_AUTH_URL", "https://chi.uc.chameleoncloud.org:5000")], *variables].concat();
        let found = User::new(&variables).find(&Choice::default()).unwrap();
        assert_eq!(found[0].credentials.method.name(), *expected);
        assert_eq!(
            (found[0].site.as_str(), found[0].credentials.keystone().as_str()),
            ("CHI@UC", "https://chi.uc.chameleoncloud.org:5000/v3")
        );
    }
}

#[test]
fn incomplete_or_conflicting_options_fail_without_showing_secrets() {
    let table: &[(Variables, &str, &str)] = &[
        (&[], "", "tried: no OS_* credentials in the environment, no login, no clouds.yaml"),
        (&[], "clouds: {a: {auth: {}}, b: {}}", "has several clouds, and none was chosen: a, b"),
        (&[("OS_CLOUD", "ab")], "clouds: {aa: {}}", "find the cloud `ab`"),
        (&[("OS_CLOUD", "a")], "clouds: {a: {profile: chameleon}}", "profiles such as `chameleon` are not supported"),
        (
            &[("OS_CLOUD", "a")],
            "clouds: {a: {auth_type: v3kerberos, auth: {auth_url: x}}}",
            "`v3kerberos` is not supported",
        ),
        (
            &[("OS_CLOUD", "a")],
            "clouds: {a: {auth: {auth_url: x, application_credential_id: i}}}",
            "application_credential_secret is missing",
        ),
        (&[("OS_CLOUD", "a")], "clouds: {a: {auth: {password: hush, [}}}", "is not valid YAML"),
        (ENVIRONMENT, "clouds: {envvars: {}}", "and so does clouds.yaml"),
    ];
    for (variables, file, expected) in table {
        let user = User::new(variables);
        if !file.is_empty() {
            user.write("home/.config/openstack/clouds.yaml", file);
        }
        let error = user.find(&Choice::default()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(!format!("{error:?}").contains("hush"), "{error:?}");
        assert!(!error.hints().is_empty(), "{error}");
    }
}

#[test]
fn a_ca_file_is_resolved_against_the_home_and_the_working_folder() {
    let user = User::new(&with(&[("OS_CACERT", "ca.pem"), ("OS_INSECURE", "true"), ("OS_INTERFACE", "internal")]));
    let found = user.find(&Choice::default()).unwrap().remove(0).credentials;
    assert_eq!(found.cacert.as_deref(), Some(user.folder.path().join("work/ca.pem").as_path()));
    assert_eq!((found.verify, found.interface.as_str()), (false, "internal"));
    let user = User::new(&with(&[("OS_CACERT", "~/ca.pem")]));
    let found = user.find(&Choice::default()).unwrap().remove(0).credentials;
    assert_eq!(found.cacert.as_deref(), Some(user.folder.path().join("home/ca.pem").as_path()));
    assert!(found.verify);
}

#[test]
fn a_stored_login_is_read_back_and_shows_no_secret() {
    let user = User::new(&[]);
    user.log_in("CHI@UC", "CHI-1");
    let found = user.find(&Choice::default()).unwrap().remove(0);
    assert_eq!((found.site.as_str(), found.source.as_str()), ("CHI@UC", "the login at CHI@UC in CHI-1"));
    assert!(!format!("{found:?}").contains("kept"), "{found:?}");
}
