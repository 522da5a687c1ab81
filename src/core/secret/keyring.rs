//! The desktop's keyring (the Secret Service, over the session bus). The kernel's own, keyutils, is not used: it forgets at reboot.

use std::sync::mpsc;
use std::time::Duration;

use keyring::{Entry, Error as Cause};
use secrecy::{ExposeSecret as _, SecretString};

use crate::error::{Doing as _, Error, ErrorKind, Result};

/// The service name under which the keyring lists our entries.
const SERVICE: &str = "gpucl";
const HINT: &str = "the keyring belongs to the desktop, and an SSH login has none; log in again from here: gpucl login";
/// How long a user may take to unlock the keyring.
const UNLOCK_LIMIT: Duration = Duration::from_secs(120);

/// Reads the secret of an account.
pub(super) fn get(account: &str) -> Result<SecretString> {
    let doing = || format!("read the credential {account} from the keyring");
    call(account, doing, |entry| entry.get_password()).map(SecretString::from).map_err(|error| error.hint(HINT))
}

/// Stores the secret of an account, replacing an earlier one.
pub(super) fn put(account: &str, secret: &SecretString) -> Result<()> {
    let doing = || format!("put the credential {account} into the keyring");
    let secret = secret.clone();
    call(account, doing, move |entry| entry.set_password(secret.expose_secret()))
}

/// Deletes the secret of an account; succeeds when there is none.
pub(super) fn remove(account: &str) -> Result<()> {
    let doing = || format!("remove the credential {account} from the keyring");
    let removed = call(account, doing, |entry| match entry.delete_credential() {
        Err(Cause::NoEntry) => Ok(()),
        done => done,
    });
    removed.map_err(|error| error.hint(HINT))
}

/// Calls the keyring on its own thread, since it may prompt a user who never answers; the thread is abandoned then.
fn call<T: Send + 'static>(
    account: &str,
    doing: impl Fn() -> String,
    run: impl FnOnce(&Entry) -> keyring::Result<T> + Send + 'static,
) -> Result<T> {
    let (sender, answer) = mpsc::channel();
    let entry = Entry::new(SERVICE, account).doing(ErrorKind::State, &doing)?;
    std::thread::spawn(move || sender.send(run(&entry)));
    match answer.recv_timeout(UNLOCK_LIMIT) {
        Ok(done) => done.doing(ErrorKind::State, &doing),
        Err(_) => Err(Error::new(ErrorKind::Timeout, doing())
            .because(format!("it did not answer within {} s; it may be locked", UNLOCK_LIMIT.as_secs()))),
    }
}
