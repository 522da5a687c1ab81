//! What a host's environment is made from: environment modules and the source of packages. Its site says it, unless the
//! spec does.

use std::collections::BTreeMap;

use super::{MODULES, PLAYBOOK};
use crate::error::{Error, ErrorKind, Result};
use crate::playbook::Stage;
use crate::provider::{Packages, Site};
use crate::spec::Spec;

/// The variables of playbooks; empty where nothing is particular.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Source {
    /// The modules, with blanks between them.
    pub(super) modules: String,
    /// `site`, or the absolute path of a folder of wheels.
    pub(super) packages: String,
    /// `yes` where the site names the folder of environments, which may be one itself.
    pub(super) own_environments: String,
}

impl Source {
    /// What a host of this site uses for this spec.
    pub(super) fn of(spec: &Spec, site: &Site) -> Self {
        let given = |name: &str| {
            let text = spec.playbooks.get(PLAYBOOK)?.get(name)?;
            Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
        };
        let of_site = || match &site.packages {
            Packages::Index => String::new(),
            Packages::Site => "site".to_owned(),
            Packages::Folder(path) => path.clone(),
        };
        Self {
            modules: given("modules").unwrap_or_else(|| site.modules.join(" ")),
            packages: given("packages").unwrap_or_else(of_site),
            own_environments: if site.environments.is_empty() { String::new() } else { "yes".to_owned() },
        }
    }

    /// Rejects what no host can do.
    pub(super) fn check(&self) -> Result<()> {
        let wrong = |name: &str| Error::new(ErrorKind::Spec, format!("read `{name}` of the runtime `native`"));
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || "/._+-:@=, ".contains(letter);
        if self.modules.starts_with('-') || self.modules.contains(" -") || !self.modules.chars().all(is_name) {
            return Err(wrong("modules")
                .because(format!("`{}` is no list of modules", self.modules))
                .hint("names with blanks between them: `modules: StdEnv/2023 python/3.12 arrow`"));
        }
        if !matches!(self.packages.as_str(), "" | "site") && !self.packages.starts_with('/') {
            return Err(wrong("packages")
                .because(format!("`{}` is neither `site` nor an absolute path", self.packages))
                .hint("`packages: site` takes the wheels that pip's configuration on the host names"));
        }
        Ok(())
    }

    /// The variables that are not empty. A playbook is given no others: one of the user's own need not know them.
    pub(super) fn variables(&self) -> impl Iterator<Item = (String, String)> {
        let all = [
            ("modules", self.modules.clone()),
            ("packages", self.packages.clone()),
            ("own_environments", self.own_environments.clone()),
        ];
        all.into_iter().filter(|(_, value)| !value.is_empty()).map(|(name, value)| (name.to_owned(), value))
    }

    /// Removes the empty variables from a stage, so that a host without a source has the same stage as ever.
    pub(super) fn leave_out(&self, stage: &mut Stage) {
        let set: BTreeMap<String, String> = self.variables().collect();
        for name in ["modules", "packages", "own_environments"] {
            if !set.contains_key(name) {
                stage.variables.remove(name);
            }
        }
    }

    /// Whether nothing is particular about what an environment is made from.
    pub(super) fn is_plain(&self) -> bool {
        self.modules.is_empty() && self.packages.is_empty()
    }

    /// The shell code that takes on what the modules have set; nothing without modules.
    pub(super) fn environment(&self) -> &'static str {
        if self.modules.is_empty() { "" } else { MODULES }
    }
}

#[cfg(test)]
mod tests;
