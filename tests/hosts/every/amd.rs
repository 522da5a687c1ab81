//! One host with two GPUs of AMD: the image of Ray with ROCm is built on the host, on a stand-in for the base.

use std::time::Instant;

use crate::hosts::spec::{env, gpucl, spec};
use crate::hosts::testbed::TestHost;
use crate::support::alone;

#[test]
#[ignore = "by hand: just testbed-all"]
fn a_host_with_two_amd_gpus_comes_to_ready_and_goes() {
    let _turn = alone();
    let host = TestHost::start("amd", &["--gpus", "amd:2", "--image", "fresh"]);
    let env = env();
    env.write("cluster.yaml", &spec("amd", &[&host], "services: {jupyter: false}\n"));
    let begin = Instant::now();
    let up = gpucl(&env, &["up"]).exits(0).prints("ready:").says("HIP");
    println!("first up: {:.0} s\n{}\n{}", begin.elapsed().as_secs_f64(), up.stderr, up.stdout);
    for render in ["renderD128", "renderD129"] {
        let owners = host.sh(&format!(
            "for c in $(docker ps -q); do docker inspect -f '{{{{.Name}}}} {{{{json .HostConfig.Devices}}}}' $c; done | grep -c {render}"
        ));
        assert_eq!(owners.trim(), "1", "{render} is in one container");
    }
    gpucl(&env, &["up"]).exits(0).prints("nothing was changed");
    gpucl(&env, &["down", "--yes"]).exits(0);
    assert_eq!(host.sh("docker ps -aq").trim(), "");
}
