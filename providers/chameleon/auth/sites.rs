//! The sites of Chameleon, each with its own Keystone. An explicitly given address takes precedence over this table.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KnownSite {
    /// The name: the region in the site's catalog.
    pub(crate) name: &'static str,
    /// The URL of its Keystone.
    pub(crate) auth_url: &'static str,
    /// Whether it has bare-metal hosts to lease.
    pub(crate) bare_metal: bool,
}

const fn site(name: &'static str, auth_url: &'static str, bare_metal: bool) -> KnownSite {
    KnownSite { name, auth_url, bare_metal }
}

/// The sites, those with GPUs on bare metal first.
pub(crate) const SITES: &[KnownSite] = &[
    site("CHI@TACC", "https://chi.tacc.chameleoncloud.org:5000/v3", true),
    site("CHI@UC", "https://chi.uc.chameleoncloud.org:5000/v3", true),
    site("CHI@NCAR", "https://chi.hpc.ucar.edu:5000/v3", true),
    site("CHI@NU", "https://sl-ciab.northwestern.edu:5000/v3", true),
    site("CHI@NRP", "https://chi.nrp.ai:5000/v3", true),
    site("CHI@Edge", "https://chi.edge.chameleoncloud.org:5000/v3", false),
    site("KVM@TACC", "https://kvm.tacc.chameleoncloud.org:5000/v3", false),
];

/// Finds a site by name, place or kind: `CHI@TACC`, `chi@tacc`, `tacc`, `kvm`.
pub(crate) fn known_site(word: &str) -> Option<&'static KnownSite> {
    SITES.iter().find(|site| means(word, site.name)).or_else(|| {
        // `kvm` is not a place; the part before the @ works if it is unique.
        let mut found = SITES
            .iter()
            .filter(|site| site.name.split_once('@').is_some_and(|(before, _)| before.eq_ignore_ascii_case(word)));
        found.next().filter(|_| found.next().is_none())
    })
}

/// Whether a word is the name or place of this site.
pub(crate) fn means(word: &str, name: &str) -> bool {
    let place = name.split_once('@').filter(|(before, _)| *before == "CHI").map(|(_, place)| place);
    word.eq_ignore_ascii_case(name) || place.is_some_and(|place| word.eq_ignore_ascii_case(place))
}

/// Finds a site by the host of its Keystone.
pub(crate) fn site_at(auth_url: &str) -> Option<&'static KnownSite> {
    let host = |url: &str| reqwest::Url::parse(url).ok()?.host_str().map(str::to_owned);
    let wanted = host(auth_url)?;
    SITES.iter().find(|site| host(site.auth_url).as_deref() == Some(&wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_found_by_its_name_or_its_place() {
        let names = |word: &str| known_site(word).map(|site| site.name);
        assert_eq!(names("CHI@TACC"), Some("CHI@TACC"));
        assert_eq!(names("tacc"), Some("CHI@TACC"));
        assert_eq!(names("uc"), Some("CHI@UC"));
        assert_eq!(names("kvm"), Some("KVM@TACC"));
        assert_eq!(names("chi"), None);
        assert_eq!(names("mars"), None);
        assert_eq!(site_at("https://chi.uc.chameleoncloud.org:5000/v3/").map(|site| site.name), Some("CHI@UC"));
        assert_eq!(site_at("http://127.0.0.1:5000"), None);
    }
}
