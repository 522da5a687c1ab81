//! What a site is spoken to with.

use std::fmt;
use std::path::PathBuf;

use secrecy::SecretString;

/// How we say who we are.
#[derive(Clone)]
pub(crate) enum Method {
    /// An application credential: one project at one site, and no password in it.
    ApplicationCredential {
        /// Its id.
        id: String,
        /// Its secret.
        secret: SecretString,
    },
    /// A token that somebody else got. It cannot be renewed.
    Token {
        /// The token.
        token: SecretString,
    },
    /// An access token of an identity provider, such as Chameleon's own Jupyter hands out. It cannot be renewed.
    OidcAccessToken {
        /// The identity provider's name in Keystone: `chameleon`.
        identity_provider: String,
        /// The protocol's name in Keystone: `openid`.
        protocol: String,
        /// The access token.
        access_token: SecretString,
    },
    /// Name and password at an identity provider, as in the file that the web interface hands out.
    OidcPassword {
        /// The identity provider's name in Keystone.
        identity_provider: String,
        /// The protocol's name in Keystone.
        protocol: String,
        /// Where the identity provider describes itself.
        discovery_endpoint: Option<String>,
        /// Where it gives tokens, when it is not asked for that.
        token_endpoint: Option<String>,
        /// The client that we are to it.
        client_id: String,
        /// Its secret, often `none`.
        client_secret: SecretString,
        /// What the token is for.
        scope: String,
        /// The user's name.
        username: String,
        /// The user's password.
        password: SecretString,
    },
    /// Name and password in Keystone itself.
    Password {
        /// The user, by id or name.
        user: Named,
        /// The user's password.
        password: SecretString,
    },
}

impl Method {
    /// What it is called.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::ApplicationCredential { .. } => "application credential",
            Self::Token { .. } => "token",
            Self::OidcAccessToken { .. } => "access token",
            Self::OidcPassword { .. } | Self::Password { .. } => "password",
        }
    }

    /// A new token can be had when one has ended.
    pub(crate) fn is_renewable(&self) -> bool {
        !matches!(self, Self::Token { .. } | Self::OidcAccessToken { .. })
    }
}

impl fmt::Debug for Method {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// Something in Keystone, by id or by name and domain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Named {
    /// Its id.
    pub(crate) id: Option<String>,
    /// Its name.
    pub(crate) name: Option<String>,
    /// The id of its domain.
    pub(crate) domain_id: Option<String>,
    /// The name of its domain.
    pub(crate) domain_name: Option<String>,
}

impl Named {
    /// Neither id nor name.
    pub(crate) fn is_open(&self) -> bool {
        self.id.is_none() && self.name.is_none()
    }
}

/// What one site is spoken to with.
#[derive(Debug, Clone)]
pub(crate) struct Credentials {
    /// How we say who we are.
    pub(crate) method: Method,
    /// The site's Keystone: `https://chi.tacc.chameleoncloud.org:5000/v3`.
    pub(crate) auth_url: String,
    /// The site: `CHI@TACC`. Without it the catalog must have one only.
    pub(crate) region: Option<String>,
    /// Which project, where the method leaves it open.
    pub(crate) project: Named,
    /// Which of the catalog's addresses: `public`, by default.
    pub(crate) interface: String,
    /// A file of certificate authorities beside the system's.
    pub(crate) cacert: Option<PathBuf>,
    /// The site's certificate is checked.
    pub(crate) verify: bool,
}

impl Credentials {
    /// Credentials with all else as usual.
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

    /// Keystone's address with its version and without a slash at its end.
    pub(crate) fn keystone(&self) -> String {
        let url = self.auth_url.trim_end_matches('/');
        if url.ends_with("/v3") { url.to_owned() } else { format!("{}/v3", url.trim_end_matches("/v2.0")) }
    }
}
