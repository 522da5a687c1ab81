//! Existing things of the account that a cluster uses: SSH key, file systems, image.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::api::{FileSystem, Image, Instance, InstanceType, SshKey};
use super::choice::is_arm;
use super::cloud::Cloud;
use super::config::FileSystemSettings;
use super::found::{FileSystemFound, KeyFound, key_key};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Scope;
use crate::util::fs::{RECORD_LIMIT, read_text_within};

/// Chooses the login key: the named one, else one of the user's keys in the account, else a new one. `hosts` are the
/// instances that the cluster has already.
pub(super) fn key_of<'a>(
    cloud: &Cloud,
    scope: &Scope,
    keys: &[SshKey],
    hosts: impl Iterator<Item = &'a Instance>,
    notes: &mut Vec<String>,
) -> Result<KeyFound> {
    let account = |key: &SshKey| KeyFound::Account { id: key.id.clone(), name: key.name.clone() };
    // A launch takes a key's name: it would be ambiguous between different keys of one name.
    let alike =
        |key: &SshKey| keys.iter().filter(|other| other.name == key.name).all(|other| other.is(&key.public_key));
    if let Some(name) = &cloud.settings.ssh_key {
        let found = keys.iter().find(|key| key.name == *name).ok_or_else(|| {
            let known: Vec<&str> = keys.iter().map(|key| key.name.as_str()).collect();
            Error::new(ErrorKind::Provider, format!("find the SSH key {name}"))
                .because("the account has no SSH key of that name")
                .hint(format!("it has: {}", if known.is_empty() { "none".to_owned() } else { known.join(", ") }))
        })?;
        if !alike(found) {
            return Err(Error::new(ErrorKind::Provider, format!("find the SSH key {name}"))
                .because("the account has several different keys of that name, and a launch selects a key by name")
                .hint("rename one of them at https://cloud.lambda.ai/ssh-keys, or leave `ssh_key:` out"));
        }
        return Ok(account(found));
    }
    // Keep the choice made for the first host.
    let made = scope.tag(&key_key()).to_string();
    let used: Vec<&String> = hosts.flat_map(|host| &host.ssh_key_names).collect();
    if used.contains(&&made) || keys.iter().any(|key| key.name == made) {
        return Ok(KeyFound::Own);
    }
    if let Some(key) = keys.iter().find(|key| used.contains(&&key.name)) {
        return Ok(account(key));
    }
    let own = public_keys(&cloud.context.user_environment.home);
    let usable = |key: &&SshKey| alike(key) && key.name.parse::<crate::name::Tag>().is_err();
    let found = own.iter().find_map(|(file, text)| Some((file, keys.iter().filter(usable).find(|key| key.is(text))?)));
    Ok(match found {
        Some((file, key)) => {
            notes.push(format!("login to the hosts uses the account's key {}, which is {}", key.name, file.display()));
            account(key)
        }
        None => KeyFound::Own,
    })
}

/// The key pairs in `~/.ssh`: the file of each private key, and the text of its public key.
pub(super) fn public_keys(home: &Path) -> Vec<(PathBuf, String)> {
    let Ok(entries) = fs_err::read_dir(home.join(".ssh")) else { return Vec::new() };
    let mut found: Vec<(PathBuf, String)> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "pub"))
        .filter_map(|path| Some((path.with_extension(""), read_text_within(&path, RECORD_LIMIT).ok()?)))
        .filter(|(file, text)| file.is_file() && text.split_whitespace().count() >= 2)
        .collect();
    found.sort();
    found
}

/// Finds the spec's file systems in the region.
pub(super) fn files_of(cloud: &Cloud, files: &[FileSystem], region: &str) -> Result<Vec<FileSystemFound>> {
    let find = |wanted: &FileSystemSettings| {
        let there = files.iter().find(|file| file.name == wanted.name && file.region.name == region);
        if there.is_none() && !wanted.create {
            return Err(Error::new(ErrorKind::Provider, format!("find the file system {}", wanted.name))
                .because(format!("there is none of that name in {region}"))
                .hint("`create: true` creates it"));
        }
        Ok(FileSystemFound { wanted: wanted.clone(), id: there.map(|file| file.id.clone()) })
    };
    cloud.settings.file_systems.iter().map(find).collect()
}

/// Finds an image by family, name or id, for this type in this region.
pub(super) fn image_of(name: &str, images: &[Image], region: &str, kind: &InstanceType) -> Result<Value> {
    let architecture = if is_arm(kind) { "arm64" } else { "x86_64" };
    let fits = |image: &&Image| {
        image.region.name == region && (image.architecture.is_empty() || image.architecture == architecture)
    };
    let here: Vec<&Image> = images.iter().filter(fits).collect();
    if here.iter().any(|image| image.family == name) {
        return Ok(json!({ "family": name }));
    }
    if let Some(image) = here.iter().find(|image| image.id == name || image.name == name) {
        return Ok(json!({ "id": image.id }));
    }
    let mut families: Vec<&str> = here.iter().map(|image| image.family.as_str()).collect();
    families.sort_unstable();
    families.dedup();
    Err(Error::new(ErrorKind::Provider, format!("find the image {name}"))
        .because(format!("{region} has no image of that family, name or id for {architecture}"))
        .hint(format!(
            "its families are: {}",
            if families.is_empty() { "none".to_owned() } else { families.join(", ") }
        )))
}
