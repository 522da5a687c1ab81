//! The guard in a container of the head's pod, where a cluster runs on a platform. It is brought its files, as it is given an
//! end, by programs that run in that container: neither objects of the platform nor containers of jobs have the keys of the
//! store. A pod that is made anew has nothing of it until this machine looks at it again.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use super::guard::{CREDENTIALS, GuardAsk, Places, guard_script, key_of, program, settings_of};
use crate::error::{Doing as _, ErrorKind, Result};
use crate::name::Key;
use crate::provider::platform::{DATA, GUARD};
use crate::render::{Library, quote, write_files};
use crate::spec::Spec;
use crate::util::digest;

/// How the program is called in the head's pod, in its folder.
const POD_COMMAND: &str = "python -I -B program/guard.py";
/// The file with its settings.
const SETTINGS: &str = "guard.json";
/// What a guard in a pod prints that does not have the files that it needs.
pub const WANTS_FILES: &str = "::want";

/// What the guard of a cluster on a platform is asked, and brought.
pub struct GuardInPod {
    files: BTreeMap<String, Vec<u8>>,
    digest: String,
}

impl GuardInPod {
    /// The guard of a cluster on a platform; `None` if it has none.
    ///
    /// # Errors
    /// If a file of the program cannot be read.
    pub fn of(spec: &Spec, library: &Library) -> Result<Option<Self>> {
        if key_of(spec, 0, true).is_none() {
            return Ok(None);
        }
        let places = Places {
            home: GUARD.to_owned(),
            data: DATA.to_owned(),
            secrets: format!("{GUARD}/secrets"),
            store: None,
            gcs: "127.0.0.1:6379".to_owned(),
            dashboard: "http://127.0.0.1:8265".to_owned(),
            ray: "ray".to_owned(),
            jupyter: None,
        };
        let settings = settings_of(spec, &Key::numbered("host", 0), true, 1, &places)?;
        let mut files: BTreeMap<_, _> =
            program(library)?.into_iter().map(|(name, bytes)| (format!("program/{name}"), bytes)).collect();
        let digest = digest::of_json(&(&settings, &files));
        files.insert(SETTINGS.to_owned(), bytes_of(&settings)?);
        Ok(Some(Self { files, digest }))
    }

    /// The script that has it do something, and prints its state; [`WANTS_FILES`] where it does not have these files.
    pub fn script(&self, ask: &GuardAsk<'_>) -> String {
        let wants = format!("{{ echo {WANTS_FILES}; exit 0; }}\n");
        let header = format!("[ \"$(cat digest 2>/dev/null)\" = {} ] || {wants}", quote(&self.digest));
        ask_script("-s", &header, ask)
    }

    /// The same, which brings it its files before: with the token of Ray and the keys of the store that outlives the cluster.
    ///
    /// # Errors
    /// If its settings cannot be written.
    pub fn script_with_files(
        &self,
        ask: &GuardAsk<'_>,
        ray_token: &SecretString,
        keys: Option<&SecretString>,
    ) -> Result<String> {
        let secrets = [("ray_token", Some(ray_token)), (CREDENTIALS, keys)];
        let secrets = secrets.into_iter().filter_map(|(name, secret)| Some((name, secret?)));
        let mut files = self.files.clone();
        files.extend(secrets.map(|(name, secret)| (format!("secrets/{name}"), secret.expose_secret().into())));
        // It starts itself anew when its settings are others than those that it began with.
        let of_all = digest::of_json(&files);
        if let Some(settings) = files.get_mut(SETTINGS) {
            let mut value: Value = serde_json::from_slice(settings)
                .doing(ErrorKind::Internal, || "read the guard's settings".to_owned())?;
            value["files"] = json!(of_all);
            *settings = bytes_of(&value)?;
        }
        // The guard is there, and has read its program, before the next may come with other files.
        let header = format!(
            "if [ \"$(cat brought 2>/dev/null)\" != {all} ]; then\n\
             rm -rf new && mkdir -p new/program new/secrets || exit 1\n\
             {}rm -rf program secrets && mv new/program new/secrets . && mv new/guard.json guard.json || exit 1\n\
             tries=0; until [ -e guard/.guard.lock ] || [ $tries -gt 100 ]; do tries=$((tries + 1)); sleep 0.1; done\n\
             rmdir new; echo {} >digest; echo {all} >brought\n\
             fi\n",
            write_files("new", &files),
            quote(&self.digest),
            all = quote(&of_all),
        );
        Ok(ask_script("-x", &header, ask))
    }
}

/// The script that goes to its folder, where others wait that bring it files: `up` and the agent may do so at once.
fn ask_script(lock: &str, header: &str, ask: &GuardAsk<'_>) -> String {
    // A copy of everything takes its time.
    let then = if matches!(ask, GuardAsk::Save) { "exec 9>&-\n" } else { "" };
    let header = format!(
        "umask 077\ncd {GUARD} && exec 9>.lock && flock {lock} -w 30 9 || {{ echo 'its folder is in use, or the image has no flock' >&2; exit 1; }}\n\
         {header}{then}"
    );
    guard_script(&header, POD_COMMAND, ".", ask)
}

fn bytes_of(settings: &Value) -> Result<Vec<u8>> {
    serde_json::to_vec(settings).doing(ErrorKind::Internal, || "write the guard's settings".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(more: &str) -> Option<GuardInPod> {
        let spec: Spec = serde_yaml::from_str(&format!("name: demo\nprovider: kubernetes\n{more}")).unwrap();
        GuardInPod::of(&spec, &Library::default()).unwrap()
    }

    const END: &str = "end: {save: [{from: out, to: 's3://kept/run'}], store: {endpoint: 'https://s3.example.org', \
                       credentials_file: keys}}\n";

    #[test]
    fn what_is_brought_differs_by_key_and_what_asks_has_none() {
        assert!(guard("").is_none());
        let guard = guard(END).unwrap();
        let (token, ask) = (SecretString::from("the-token".to_owned()), GuardAsk::Tell("{}"));
        let asked = guard.script(&ask);
        assert!(asked.contains(WANTS_FILES) && asked.contains(&guard.digest), "{asked}");
        let brought =
            |keys: &str| guard.script_with_files(&ask, &token, Some(&SecretString::from(keys.to_owned()))).unwrap();
        let (one, other) = (brought("first"), brought("second"));
        for name in
            ["new/'program/guard.py'", "new/'secrets/ray_token'", "new/'secrets/end_credentials'", "new/'guard.json'"]
        {
            assert!(one.contains(name), "{name}");
        }
        // By this the guard in the pod is found to have other files.
        let mark = |script: &str| script.lines().find(|line| line.contains("cat brought")).unwrap().to_owned();
        assert_ne!(mark(&one), mark(&other));
        assert_eq!(mark(&one), mark(&brought("first")));
    }

    #[test]
    fn a_copy_of_everything_holds_up_nobody_who_brings_files() {
        let guard = guard(END).unwrap();
        assert!(guard.script(&GuardAsk::Save).contains("exec 9>&-"));
        assert!(!guard.script(&GuardAsk::Tell("{}")).contains("exec 9>&-"));
    }
}
