//! A login in a real keyring: `gnome-keyring-daemon` on a session bus of the test's own.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use gpucl::sandbox::lambda::User;

use super::site::Site;
use crate::support::{TestEnv, until};

/// A session bus with an unlocked keyring; both end with it.
struct Desktop {
    bus: Child,
    keyring: Child,
    address: String,
}

impl Desktop {
    fn start(env: &TestEnv) -> Self {
        let mut bus = Command::new("dbus-daemon")
            .args(["--session", "--nofork", "--nopidfile", "--print-address"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut address = String::new();
        BufReader::new(bus.stdout.take().unwrap()).read_line(&mut address).unwrap();
        let address = address.trim().to_owned();
        let mut keyring = Command::new("gnome-keyring-daemon")
            .args(["--foreground", "--unlock", "--components=secrets"])
            .env("DBUS_SESSION_BUS_ADDRESS", &address)
            .env("HOME", env.home())
            .env("XDG_RUNTIME_DIR", env.root().join("run"))
            .env_remove("XDG_DATA_HOME")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The end of its standard input ends the password.
        keyring.stdin.take().unwrap().write_all(b"password of the keyring").unwrap();
        let is_owned = || {
            let mut ask = Command::new("dbus-send");
            ask.args(["--session", "--print-reply", "--dest=org.freedesktop.DBus", "/org/freedesktop/DBus"]);
            ask.args(["org.freedesktop.DBus.NameHasOwner", "string:org.freedesktop.secrets"]);
            let output = ask.env("DBUS_SESSION_BUS_ADDRESS", &address).output().unwrap();
            String::from_utf8_lossy(&output.stdout).contains("true").then_some(())
        };
        until("the keyring answers on its bus", 20, is_owned);
        Self { bus, keyring, address }
    }
}

impl Drop for Desktop {
    fn drop(&mut self) {
        for child in [&mut self.keyring, &mut self.bus] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn log_in(site: &Site, key: &str) {
    let mut child = site.env.command(&["login", "lambda", "--secret-stdin"]).stdin(Stdio::piped()).spawn().unwrap();
    writeln!(child.stdin.take().unwrap(), "{key}").unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
#[ignore = "testbed"]
fn a_login_is_stored_in_the_keyring_or_a_file() {
    let mut site = Site::prompt();
    site.env.set("LAMBDA_API_KEY", "");
    let key = site.sandbox.key(User::Alice);
    let desktop = Desktop::start(&site.env);
    site.env.set("DBUS_SESSION_BUS_ADDRESS", &desktop.address);
    let file = site.env.home().join(".config/gpucl/credentials.yaml");
    let kept = || std::fs::read_to_string(&file).unwrap();

    log_in(&site, &key);
    assert!(kept().contains("keyring") && !kept().contains(&key), "{}", kept());
    site.run(&["offers", "--provider", "lambda"]).exits(0);
    site.run(&["logout", "lambda"]).exits(0);
    site.run(&["offers", "--provider", "lambda"]).exits(2);

    site.env.set("GPUCL_KEYRING", "off");
    log_in(&site, &key);
    assert!(kept().contains(&key), "the file holds it");
    site.run(&["offers", "--provider", "lambda"]).exits(0);
}
