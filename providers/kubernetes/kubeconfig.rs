//! Kubeconfigs: read as files that a stranger may have written.

use std::path::{Path, PathBuf};

use kube::config::{AuthInfo, ExecConfig, Kubeconfig};
use secrecy::{ExposeSecret as _, SecretString};

use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::provider::LoginFile;
use crate::util::fs::{RECORD_LIMIT, read_text_within, read_within};

/// Reads and merges the kubeconfigs that exist; `None` if none does. Paths in them are relative to their folder, as for
/// `kubectl`.
pub(super) fn read_files(files: &[PathBuf]) -> Result<Option<Kubeconfig>> {
    let mut merged: Option<Kubeconfig> = None;
    for file in files.iter().filter(|file| file.exists()) {
        let doing = || format!("read the kubeconfig {}", file.display());
        // Only a regular file, and of limited size: a pipe would never end.
        let text = read_text_within(file, RECORD_LIMIT).doing(ErrorKind::Spec, doing)?;
        let mut next = Kubeconfig::from_yaml(&text).doing(ErrorKind::Spec, doing)?;
        if let Some(folder) = file.parent() {
            with_whole_paths(&mut next, folder);
        }
        merged = Some(match merged {
            None => next,
            Some(before) => before.merge(next).doing(ErrorKind::Spec, doing)?,
        });
    }
    Ok(merged)
}

fn with_whole_paths(kubeconfig: &mut Kubeconfig, folder: &Path) {
    let whole = |path: &mut Option<String>| {
        if let Some(path) = path.as_mut().filter(|path| Path::new(path.as_str()).is_relative()) {
            *path = folder.join(path.as_str()).display().to_string();
        }
    };
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        whole(&mut cluster.certificate_authority);
    }
    for login in kubeconfig.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        // Editors end a line; `kubectl` takes it off as well.
        login.token = login.token.take().map(|token| SecretString::from(token.expose_secret().trim().to_owned()));
        whole(&mut login.client_certificate);
        whole(&mut login.client_key);
        whole(&mut login.token_file);
        // A bare name is looked for in PATH.
        if let Some(exec) = login.exec.as_mut().filter(|exec| exec.command.as_ref().is_some_and(|it| it.contains('/')))
        {
            whole(&mut exec.command);
        }
    }
}

/// Every server, program and file that a kubeconfig leads to, of all its contexts: one may be chosen later.
pub(super) fn described(file: &Path) -> Result<LoginFile> {
    let doing = || format!("read the kubeconfig {}", file.display());
    let Some(kubeconfig) = read_files(&[file.to_owned()])? else {
        return Err(Error::new(ErrorKind::Spec, doing()).because("there is no such file"));
    };
    let (mut says, mut programs) = (Vec::new(), Vec::new());
    for cluster in kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref()) {
        says.extend(cluster.server.iter().map(|server| format!("the server {server}")));
        says.extend(cluster.proxy_url.iter().map(|proxy| format!("by the proxy {proxy}")));
    }
    for login in kubeconfig.auth_infos.iter().filter_map(|named| named.auth_info.as_ref()) {
        let files = [&login.token_file, &login.client_key, &login.client_certificate];
        says.extend(files.into_iter().flatten().map(|file| format!("it sends {file}")));
        refuse_old_login(login, &doing())?;
        for provider in login.auth_provider.iter() {
            let at = provider.config.get("idp-issuer-url").map(|url| format!(" at {url}")).unwrap_or_default();
            says.push(format!("it logs in by {}{at}", provider.name));
        }
        let Some(exec) = &login.exec else { continue };
        let arguments = exec.args.clone().unwrap_or_default();
        says.extend(exec.command.iter().map(|program| match arguments.is_empty() {
            true => format!("it runs {program}"),
            false => format!("it runs {program} with the arguments {}", arguments.join(" ")),
        }));
        for variable in exec.env.iter().flatten() {
            let of = |key: &str| variable.get(key).map(String::as_str).unwrap_or_default();
            says.push(format!("with {}={}", of("name"), of("value")));
        }
        // It is started in `/`; a script may be among the arguments of an interpreter.
        programs.extend(exec.command.iter().filter(|program| program.contains('/')).map(PathBuf::from));
        programs.extend(arguments.iter().map(|argument| Path::new("/").join(argument)).filter(|path| path.is_file()));
    }
    says.sort();
    says.dedup();
    programs.sort();
    programs.dedup();
    Ok(LoginFile { says, programs })
}

/// Refuses a login that Kubernetes no longer has since 1.26: its program would be started in the working folder.
fn refuse_old_login(login: &AuthInfo, doing: &str) -> Result<()> {
    if login.auth_provider.as_ref().is_some_and(|provider| provider.config.contains_key("cmd-path")) {
        return Err(Error::new(ErrorKind::Spec, doing)
            .because("its user logs in by an `auth-provider` that runs a program, which Kubernetes no longer has")
            .hint("make the login anew with your cluster's own tool: it writes an `exec` in its place"));
    }
    Ok(())
}

/// Refuses a context whose files are no ordinary ones, or that would send a login over an open connection.
pub(super) fn check(kubeconfig: &Kubeconfig, context: &str) -> Result<()> {
    let doing = || format!("open the context `{context}` of the kubeconfig");
    let named = kubeconfig.contexts.iter().find(|named| named.name == context);
    let Some(chosen) = named.and_then(|named| named.context.as_ref()) else { return Ok(()) };
    let cluster = kubeconfig.clusters.iter().find(|named| named.name == chosen.cluster);
    let cluster = cluster.and_then(|named| named.cluster.as_ref());
    let login = chosen.user.as_ref().and_then(|user| kubeconfig.auth_infos.iter().find(|named| named.name == *user));
    let login = login.and_then(|named| named.auth_info.as_ref());
    let of_login = login.map(|login| [&login.client_certificate, &login.client_key, &login.token_file]);
    let files = of_login.into_iter().flatten().chain(cluster.map(|cluster| &cluster.certificate_authority));
    for file in files.flatten() {
        read_within(Path::new(file), RECORD_LIMIT)
            .map_err(|error| Error::new(ErrorKind::Spec, doing()).because(format!("{file} cannot be used: {error}")))?;
    }
    login.map_or(Ok(()), |login| refuse_old_login(login, &doing()))?;
    let variables = login.and_then(|login| login.exec.as_ref()?.env.as_ref());
    let names = variables.into_iter().flatten().filter_map(|variable| variable.get("name"));
    if let Some(name) = names.into_iter().find(|name| loads_programs(name)) {
        return Err(Error::new(ErrorKind::Spec, doing())
            .because(format!("its login sets the variable {name}, by which other programs are loaded"))
            .hint("set it in your own environment, if it is meant"));
    }
    let server = cluster.and_then(|cluster| cluster.server.as_deref()).unwrap_or_default();
    let wrong = |why: String, hint: &str| Err(Error::new(ErrorKind::Spec, doing()).because(why).hint(hint));
    if !is_address(server) {
        let why = format!("the server `{server}` of its cluster `{}` is no address", chosen.cluster);
        return wrong(why, "write it with its scheme: `server: https://10.0.0.1:6443`");
    }
    let proxy = cluster.and_then(|cluster| cluster.proxy_url.as_deref()).filter(|proxy| !proxy.is_empty());
    if proxy.is_some_and(|proxy| !["http://", "https://"].iter().any(|scheme| begins_with(proxy, scheme))) {
        let why = "its `proxy-url` is neither http:// nor https://, and gpucl has no other".to_owned();
        return wrong(
            why,
            "lead a port of this machine there: `ssh -L 6443:SERVER:443 HOST`, and name https://127.0.0.1:6443 with `tls-server-name: SERVER`",
        );
    }
    let token = login.and_then(|login| login.token.as_ref()).map(|token| token.expose_secret());
    if token.is_some_and(|token| !token.bytes().all(|byte| byte > b' ' && byte < 0x7f)) {
        return wrong(
            "the token of its user has a blank, a line break or a letter beyond ASCII".to_owned(),
            "a token is one word",
        );
    }
    let has_login = login.is_some_and(|login| {
        login.token.is_some()
            || login.token_file.is_some()
            || login.exec.is_some()
            || login.password.is_some()
            || login.auth_provider.is_some()
    });
    if has_login && is_open(server) {
        return Err(Error::new(ErrorKind::Spec, doing())
            .because(format!("{server} is not encrypted, and everybody on the way could read the login"))
            .hint("the server's address begins with https://"));
    }
    Ok(())
}

/// Has the program by which the user logs in started where [`util::child`](crate::util::child) starts programs: `az` is
/// one in Python, which would import modules of the working folder.
pub(super) fn away_from_here(login: &mut ExecConfig) {
    let Some(program) = login.command.replace("/bin/sh".to_owned()) else {
        login.command = None;
        return;
    };
    let own = login.args.take().unwrap_or_default();
    let words = ["-c", "cd / && exec \"$0\" \"$@\"", &program].map(str::to_owned);
    login.args = Some(words.into_iter().chain(own).collect());
}

/// Whether a variable makes programs load others: the shell that starts a login would do so too.
fn loads_programs(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    ["LD_", "DYLD_", "BASH_"].iter().any(|begin| name.starts_with(begin))
        || ["PATH", "ENV", "IFS", "SHELLOPTS", "PS4", "GCONV_PATH", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP"]
            .contains(&name.as_str())
}

/// Whether this is an address that a client can connect to: a scheme, a host, and a port if one is named.
fn is_address(server: &str) -> bool {
    let Some((_, rest)) = server.split_once("://") else { return false };
    let place = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (place, None),
    };
    ["http://", "https://"].iter().any(|scheme| begins_with(server, scheme))
        && server.parse::<http::Uri>().is_ok()
        && !host.is_empty()
        && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}

fn begins_with(text: &str, start: &str) -> bool {
    text.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start))
}

/// Whether what is sent to a server can be read on the way: without TLS, and not on this machine alone.
fn is_open(server: &str) -> bool {
    let Some(rest) = server.get(..7).filter(|begin| begin.eq_ignore_ascii_case("http://")).and(server.get(7..)) else {
        return false;
    };
    let place = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
    let host = match place.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => place.split(':').next().unwrap_or_default(),
    };
    let is_here = host.eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    !is_here
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kubeconfig whose user and server are these.
    fn opened(folder: &Path, user: &str, server: &str) -> Result<()> {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: s, cluster: {{server: '{server}'}}}}]\n\
             contexts: [{{name: c, context: {{cluster: s, user: u}}}}]\nusers: [{{name: u, user: {user}}}]\n"
        );
        let file = folder.join("kube.yaml");
        fs_err::write(&file, text).unwrap();
        check(&read_files(&[file])?.unwrap(), "c")
    }

    #[test]
    fn only_regular_files_of_a_limited_size_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs_err::write(at("token"), "secret").unwrap();
        fs_err::write(at("large"), vec![b'x'; 2 << 20]).unwrap();
        let pipe = std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap();
        assert!(pipe.success());
        assert!(opened(folder.path(), "{tokenFile: token}", "https://h:1").is_ok());
        for file in ["/dev/zero", "pipe", "large", "none"] {
            for key in ["tokenFile", "client-certificate", "client-key"] {
                let error = opened(folder.path(), &format!("{{{key}: {file}}}"), "https://h:1").unwrap_err();
                assert!(error.to_string().contains("cannot be used"), "{key} {file}: {error}");
            }
        }
        for file in ["/dev/zero", "pipe", "large"] {
            let error = read_files(&[folder.path().join(file)]).unwrap_err();
            assert!(error.to_string().contains("read the kubeconfig"), "{file}: {error}");
        }
    }

    #[test]
    fn what_no_client_can_connect_to_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for server in
            ["192.168.1.135:8001", "localhost:64431", "node1", "/run/x.sock", "ftp://h", "https://", "https://h:99999"]
        {
            let error = opened(folder.path(), "{}", server).unwrap_err().to_string();
            assert!(error.contains(&format!("the server `{server}` of its cluster `s` is no address")), "{error}");
        }
        for server in ["https://h", "HTTPS://h:6443/k8s/clusters/c-1", "https://[::1]:6443", "https://[fd00::1]"] {
            assert!(opened(folder.path(), "{}", server).is_ok(), "{server}");
        }
        let by = |proxy: &str| opened(folder.path(), "{}", &format!("https://h', proxy-url: '{proxy}"));
        assert!(by("socks5://127.0.0.1:1080").unwrap_err().to_string().contains("its `proxy-url` is neither http://"));
        assert!(by("http://127.0.0.1:3128").is_ok() && by("").is_ok());
    }

    #[test]
    fn a_login_is_never_sent_over_an_open_connection() {
        let folder = tempfile::tempdir().unwrap();
        fs_err::write(folder.path().join("token"), "secret").unwrap();
        for user in ["{tokenFile: token}", "{token: abc}", "{username: u, password: p}", "{exec: {command: x}}"] {
            for server in ["http://h", "HTTP://10.0.0.1:80/x", "http://localhost.evil.org", "http://127.0.0.1@evil.org"]
            {
                assert!(opened(folder.path(), user, server).is_err(), "{user} {server}");
            }
            for server in ["https://h", "http://127.0.0.1:8001", "http://[::1]:1/x", "http://localhost"] {
                assert!(opened(folder.path(), user, server).is_ok(), "{user} {server}");
            }
        }
        assert!(opened(folder.path(), "{}", "http://h").is_ok(), "there is nothing to read");
        assert!(opened(folder.path(), "{token: \"abc\\n\"}", "https://h").is_ok(), "an editor ends the line");
        for token in ["secret one", "secret\\none", "\u{e9}"] {
            let error = opened(folder.path(), &format!("{{token: \"{token}\"}}"), "https://h").unwrap_err().to_string();
            assert!(error.contains("the token of its user has a blank") && !error.contains(token), "{error}");
        }
        let set = |name: &str| {
            opened(
                folder.path(),
                &format!("{{exec: {{command: x, env: [{{name: {name}, value: ./e}}]}}}}"),
                "https://h",
            )
        };
        for name in ["LD_PRELOAD", "PATH", "BASH_ENV"] {
            assert!(set(name).unwrap_err().to_string().contains(name), "{name}");
        }
        assert!(set("AWS_PROFILE").is_ok());
    }
}
