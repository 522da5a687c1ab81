//! The package system and the disk: locked, half configured, full, without a mirror.

use crate::hosts::trouble::lab::{ENDS, Lab, with_variables};

/// Holds dpkg's lock for `seconds`, as another apt would.
fn lock_for(lab: &Lab, seconds: u32) {
    lab.host.sh(&format!(
        "cat >/var/tmp/hold.pl <<'PERL'\n\
         use Fcntl; open(F, '+>>', '/var/lib/dpkg/lock-frontend') or die; \
         my $l = pack('s s x4 q q l x4', F_WRLCK, 0, 0, 0, 0); fcntl(F, F_SETLK, $l) or die; sleep {seconds};\n\
         PERL\n\
         setsid perl /var/tmp/hold.pl >/dev/null 2>&1 </dev/null &\nsleep 1"
    ));
}

#[test]
#[ignore = "by hand: just testbed-all"]
fn a_locked_package_system_is_waited_for_and_its_holder_named() {
    let lab = Lab::open();
    lab.ends_before_docker();
    lock_for(&lab, 20);
    let begin = std::time::Instant::now();
    lab.run(&lab.spec("locked"), &["up"])
        .exits(1)
        .says("(perl /var/tmp/hold.pl ) holds /var/lib/dpkg/lock-frontend")
        .says("Waiting for the package system: process")
        .says(ENDS);
    assert!(begin.elapsed().as_secs() >= 15, "it was waited for");
    lab.down("locked");
}

#[test]
#[ignore = "by hand: just testbed-all"]
fn a_package_system_that_stays_locked_ends_the_wait_and_names_its_holder() {
    let lab = Lab::open();
    lab.ends_before_docker();
    lock_for(&lab, 60);
    let spec = with_variables(&lab.spec("locked"), "base: {apt_wait: \"6\"}");
    lab.run(&spec, &["up"])
        .exits(1)
        .says("step `repair interrupted installations`")
        .says("the package system is locked for 6 s: process")
        .says("hint: wait for it to end, or check what it is doing; then run the same command again");
    lab.host.sh("kill $(pgrep -f '[/]var/tmp/hold')");
    lab.down("locked");
}

/// A package whose script runs this when it is configured.
pub(super) fn package(lab: &Lab, name: &str, script: &str) {
    lab.host.sh(&format!(
        "rm -rf /var/tmp/{name} && mkdir -p /var/tmp/{name}/DEBIAN && cd /var/tmp/{name} && \
         printf 'Package: {name}\\nVersion: 1\\nArchitecture: all\\nMaintainer: nobody <nobody@localhost>\\nDescription: of a test\\n' >DEBIAN/control && \
         printf '#!/bin/sh\\n{script}\\n' >DEBIAN/postinst && chmod 755 DEBIAN DEBIAN/postinst && dpkg-deb --build . /var/tmp/{name}.deb"
    ));
}

#[test]
#[ignore = "by hand: just testbed-all"]
fn a_half_configured_package_is_repaired_first() {
    let lab = Lab::open();
    lab.ends_before_docker();
    package(&lab, "gpucl-half", "exit 0");
    let _undo = lab.while_held("dpkg --unpack /var/tmp/gpucl-half.deb", "dpkg --purge gpucl-half");
    assert!(lab.host.sh("dpkg --audit").contains("gpucl-half"));
    lab.run(&lab.spec("half"), &["up"]).exits(1).says("repair interrupted installations: done").says(ENDS);
    assert_eq!(lab.host.sh("dpkg --audit"), "");
    lab.down("half");
}

#[test]
#[ignore = "by hand: just testbed-all"]
fn a_package_that_cannot_be_configured_is_reported_with_dpkgs_message() {
    let lab = Lab::open();
    lab.ends_before_docker();
    package(&lab, "gpucl-never", "echo it never will; exit 1");
    let _undo = lab.while_held(
        "dpkg --unpack /var/tmp/gpucl-never.deb",
        "rm -f /var/lib/dpkg/info/gpucl-never.postinst; dpkg --purge --force-all gpucl-never",
    );
    lab.run(&lab.spec("never"), &["up"])
        .exits(1)
        .says("packages installed before are broken, and dpkg cannot repair them")
        .says("gpucl-never")
        .says("hint: run `sudo dpkg --configure -a`");
    lab.down("never");
}

#[test]
#[ignore = "by hand: just testbed-all"]
fn a_full_disk_is_reported() {
    let lab = Lab::open();
    lab.ends_before_docker();
    let undo = lab.while_held(
        "mkdir -p /var/lib/gpucl && mount -t tmpfs -o size=64k tmpfs /var/lib/gpucl && head -c 60000 /dev/zero >/var/lib/gpucl/full || true",
        "umount /var/lib/gpucl; rmdir /var/lib/gpucl",
    );
    lab.run(&lab.spec("full"), &["up"]).exits(1).says("No space left on device").says("df -h");
    drop(undo);
    // With room again the same command goes on.
    lab.gpucl(&["up"]).exits(1).says(ENDS);
    lab.down("full");
}

#[test]
#[ignore = "by hand: just testbed-all"]
fn a_disk_that_is_too_small_is_found_before_anything_is_installed() {
    let lab = Lab::open();
    lab.ends_before_docker();
    let _undo = lab.while_held("chmod -x /usr/bin/docker", "chmod +x /usr/bin/docker");
    let spec = with_variables(&lab.spec("small"), "base: {disk_needed_mib: \"99999999\"}");
    lab.run(&spec, &["up"])
        .exits(1)
        .says("step `check the disk`")
        .says("MiB are free in /var/lib, and packages and images need 99999999 MiB")
        .says("hint: make room there (df -h /var/lib)");
    let _ = lab.gpucl(&["down", "--yes", "-c", "small"]).exits(0);
}

#[test]
#[ignore = "by hand: just testbed-all"]
fn a_mirror_that_is_down_is_named_and_not_left_in_the_sources() {
    let lab = Lab::open();
    lab.ends_before_docker();
    let mirror = format!("http://{}:9/ubuntu", lab.host.address());
    let spec = with_variables(&lab.spec("mirror"), &format!("base: {{apt_mirror: \"{mirror}\"}}"));
    lab.run(&spec, &["up"])
        .exits(1)
        .says("step `use the mirror`")
        .says(&format!("the mirror {mirror} cannot be read"))
        .says("hint: see `apt_mirror` under `playbooks: base:`");
    let lists = lab.host.sh("ls /etc/apt/sources.list.d");
    assert!(!lists.contains("gpucl"), "{lists}");
    lab.down("mirror");
}
