//! Credentials of a site.

use std::fmt;
use std::path::PathBuf;

use secrecy::SecretString;

#[derive(Clone)]
pub(crate) enum Method {
    /// An application credential: limited to one project at one site; contains no password.
    ApplicationCredential { id: String, secret: SecretString },
    /// An existing token. Cannot be renewed.
    Token { token: SecretString },
    /// An access token of an identity provider, such as Chameleon's own Jupyter provides. Cannot be renewed.
    OidcAccessToken {
        /// The identity provider's name in Keystone: `chameleon`.
        identity_provider: String,
        /// The protocol's name in Keystone: `openid`.
        protocol: String,
        access_token: SecretString,
    },
    /// Name and password at an identity provider, as in the openrc file of the web interface.
    OidcPassword {
        /// The identity provider's name in Keystone.
        identity_provider: String,
        /// The protocol's name in Keystone.
        protocol: String,
        issuer: Issuer,
        username: String,
        password: SecretString,
    },
    /// A login that was confirmed on a page of the identity provider: `v3chameleonoidc`, `v3oidcdeviceauthz`.
    OidcDevice {
        /// The identity provider's name in Keystone.
        identity_provider: String,
        /// The protocol's name in Keystone.
        protocol: String,
        issuer: Issuer,
        /// The file with the refresh token.
        kept: PathBuf,
    },
    /// Name and password in Keystone itself.
    Password {
        /// The user, by id or name.
        user: Named,
        password: SecretString,
    },
}

impl Method {
    /// The method's name, for display.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::ApplicationCredential { .. } => "application credential",
            Self::Token { .. } => "token",
            Self::OidcAccessToken { .. } => "access token",
            Self::OidcPassword { .. } | Self::Password { .. } => "password",
            Self::OidcDevice { .. } => "login",
        }
    }

    /// Whether an expired token can be replaced.
    pub(crate) fn is_renewable(&self) -> bool {
        !matches!(self, Self::Token { .. } | Self::OidcAccessToken { .. })
    }
}

impl fmt::Debug for Method {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// An identity provider, and the client that we are to it.
#[derive(Clone)]
pub(crate) struct Issuer {
    /// The URL of its discovery document.
    pub(crate) discovery_endpoint: Option<String>,
    /// The URL of its token endpoint; `None`: taken from the discovery document.
    pub(crate) token_endpoint: Option<String>,
    /// Where a device asks for a code; `None`: taken from the discovery document.
    pub(crate) device_endpoint: Option<String>,
    pub(crate) client_id: String,
    /// `None` for a public client, which names itself only.
    pub(crate) client_secret: Option<SecretString>,
    pub(crate) scope: String,
}

/// A user or project in Keystone, by id or by name and domain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) id: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) domain_id: Option<String>,
    pub(crate) domain_name: Option<String>,
}

impl Named {
    /// Whether neither id nor name is set.
    pub(crate) fn is_open(&self) -> bool {
        self.id.is_none() && self.name.is_none()
    }
}

/// Address and credentials of one site.
#[derive(Debug, Clone)]
pub(crate) struct Credentials {
    pub(crate) method: Method,
    /// The site's Keystone: `https://chi.tacc.chameleoncloud.org:5000/v3`.
    pub(crate) auth_url: String,
    /// The site: `CHI@TACC`. If `None`, the catalog must have exactly one region.
    pub(crate) region: Option<String>,
    /// The project, if the method leaves it open.
    pub(crate) project: Named,
    /// The catalog interface: `public` by default.
    pub(crate) interface: String,
    /// A PEM file of certificate authorities, in addition to the system's.
    pub(crate) cacert: Option<PathBuf>,
    /// Whether to verify the site's certificate.
    pub(crate) verify: bool,
}

impl Credentials {
    /// Credentials with defaults for everything else.
    pub(crate) fn new(method: Method, auth_url: impl Into<String>) -> Self {
        Self {
            method,
            auth_url: auth_url.into(),
            region: None,
            project: Named::default(),
            interface: "public".to_owned(),
            cacert: None,
            verify: true,
        }
    }

    /// Keystone's URL, with `/v3` and without a trailing slash.
    pub(crate) fn keystone(&self) -> String {
        let url = self.auth_url.trim_end_matches('/');
        if url.ends_with("/v3") { url.to_owned() } else { format!("{}/v3", url.trim_end_matches("/v2.0")) }
    }
}

/// The web page of a site for application credentials.
pub(crate) fn credentials_page(auth_url: &str) -> String {
    match reqwest::Url::parse(auth_url).ok().and_then(|url| Some((url.scheme().to_owned(), url.host_str()?.to_owned())))
    {
        Some((scheme, host)) => format!("{scheme}://{host}/identity/application_credentials/"),
        None => "the site's web page, under Identity, Application Credentials".to_owned(),
    }
}
