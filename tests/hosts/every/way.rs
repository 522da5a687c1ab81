//! The way to a host: slow, and cut.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::hosts::trouble::lab::{ENDS, Lab};

/// A round trip of three seconds, as over a satellite and a busy Wi-Fi.
const ONE_WAY: Duration = Duration::from_millis(1500);

/// Hands on what one side says, each piece as much later.
fn late(mut from: TcpStream, mut to: TcpStream) {
    let (send, receive) = mpsc::channel::<(Instant, Vec<u8>)>();
    std::thread::spawn(move || {
        for (at, bytes) in receive {
            std::thread::sleep((at + ONE_WAY).saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
    let mut bytes = [0; 65536];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if send.send((Instant::now(), bytes[..count].to_vec())).is_err() {
            break;
        }
    }
}

/// A port of the loopback behind which a host answers late.
fn slow_way(to: SocketAddr) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let Ok(far) = TcpStream::connect(to) else { continue };
            for (from, to) in [(near.try_clone(), far.try_clone()), (far.try_clone(), near.try_clone())] {
                let (Ok(from), Ok(to)) = (from, to) else { continue };
                std::thread::spawn(move || late(from, to));
            }
        }
    });
    port
}

#[test]
#[ignore = "by hand: just testbed-all"]
fn a_round_trip_of_three_seconds_is_slow_and_no_error() {
    let lab = Lab::open();
    lab.ends_before_docker();
    let address = lab.host.address();
    let port = slow_way(format!("{address}:22").parse().unwrap());
    let spec = lab.spec("slow").replace(&format!("node: {address},"), &format!("node: 127.0.0.1, port: {port},"));
    let (begin, sessions) = (Instant::now(), lab.host.sessions());
    let up = lab.run(&spec, &["up"]).exits(1).says(ENDS).says("step `end the test`");
    println!(
        "up to the end of the test: {:.0} s, {} sessions",
        begin.elapsed().as_secs_f64(),
        lab.host.sessions() - sessions
    );
    assert!(!up.stderr.contains("connecting again"), "{}", up.stderr);
    lab.down("slow");
}

#[test]
#[ignore = "by hand: just testbed-all"]
fn a_step_that_hangs_is_ended_at_its_limit_and_named() {
    let lab = Lab::open();
    lab.playbook("docker", &crate::hosts::trouble::lab::ending(
        "  - name: hang\n    timeout: 5s\n    run: |\n      echo \"waiting for what never comes\"\n      setsid sleep 98765\n",
    ));
    lab.run(&lab.spec("hung"), &["up"])
        .exits(7)
        .says("step `hang`")
        .says("it did not end within 5s, the step's limit, and was ended")
        .says("waiting for what never comes")
        .says("# goes on from here");
    assert!(!lab.host.try_sh("pgrep -f '[s]leep 98765'").status.success(), "what it began is ended too");
    lab.down("hung");
}
