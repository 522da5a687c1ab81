//! The settings of playbooks in a spec, without a cluster.

use crate::support::TestEnv;

const HOSTS: &str = "name: s\nprovider: ssh\nruntime: docker\nhosts: [{node: host.example.org}]\nplaybooks:\n";
const HERE: &str = "name: s\nplaybooks:\n";

/// An empty one reached the host, where the shell had no number to compare.
#[test]
fn a_value_that_its_playbook_cannot_use_is_refused_at_its_place() {
    let env = TestEnv::new();
    for (spec, settings, place, why) in [
        (HOSTS, "  docker: {oldest: ''}\n", "cluster.yaml:6:20: playbooks.docker.oldest", "is empty, must be a number"),
        (
            HOSTS,
            "  base: {http_proxy: 'proxy:3128'}\n",
            "cluster.yaml:6:22: playbooks.base.http_proxy",
            "is `proxy:3128`, must be a URL",
        ),
        // A playbook that would not apply to the host.
        (
            HOSTS,
            "  amd: {reboot: maybe}\n",
            "cluster.yaml:6:17: playbooks.amd.reboot",
            "is `maybe`, must be one of ask, yes, no",
        ),
        (
            HERE,
            "  ray-native: {disk_needed_mib: ''}\n",
            "cluster.yaml:3:33: playbooks.ray-native.disk_needed_mib",
            "is empty, must be a number",
        ),
    ] {
        env.write("cluster.yaml", &format!("{spec}{settings}"));
        // On this machine, `up` asks first whether such settings are wanted at all.
        for verb in ["plan", "render", "up"].iter().take(if spec == HERE { 2 } else { 3 }) {
            let _ = env.run(&[verb, "--yes"]).exits(2).says(place).says(why);
        }
    }
    // All at once.
    env.write("cluster.yaml", &format!("{HOSTS}  nvidia: {{branch: '', modules: closed}}\n"));
    let _ = env.run(&["plan"]).exits(2).says("nvidia.branch: is empty").says("nvidia.modules: is `closed`");
    // A playbook of one's own has forms of its own; a default alone means that it is not empty.
    let own = "name: ray-native\nsummary: mine\nvariables:\n  ray_version:\n  environments:\n  depth: {default: '1', is: number}\n  \
               colour: red\nsteps:\n  - {name: one, run: ':'}\n";
    env.write("mine/playbooks/ray-native.yaml", own);
    for (settings, says) in [("depth: deep", "is `deep`, must be a number"), ("colour: ''", "is empty, must be a text")]
    {
        env.write("cluster.yaml", &format!("{HERE}  ray-native: {{{settings}}}\n"));
        let _ = env.run(&["plan", "--data-dir", "mine"]).exits(2).says(says);
    }
    env.write("cluster.yaml", &format!("{HERE}  ray-native: {{depth: '2', colour: blue}}\n"));
    let _ = env.run(&["plan", "--data-dir", "mine"]).exits(0);
}
