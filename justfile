# Shortcuts for one or two commands each.

set shell := ["bash", "-cu"]

# list the recipes
default:
    @just --list

# all tests that need only Rust and python3
test *filter:
    cargo test {{ filter }}

lint:
    cargo clippy --all-targets --all-features -- -D warnings

fmt:
    cargo fmt
    rustfmt --edition 2024 providers/*/mod.rs

# all that must pass before a merge
ci:
    .ci/run

# the README's first two commands on a bare machine, as an ordinary user (root, Debian or Ubuntu; fifteen minutes)
fresh:
    testbed/fresh/run

# the same as root
fresh-as-root:
    testbed/fresh/run --as-root

# what a stranger's folder did to older versions, tried with a release of this one (python3, git; one minute)
hostile *options:
    cargo build --release
    testbed/hostile/run target/release/gpucl {{ options }}

# what a release consists of, from the last commit, into target/packages: wheel, .deb, tarball, SBOM, checksums (ten minutes)
dist *options:
    packaging/build {{ options }}

# the packages as users get them, on bare Debian and Ubuntu systems: installed, a cluster up and down, removed (root; minutes)
packages *options:
    testbed/packages/run {{ options }}

# the testbed of SSH hosts, as containers on this machine (root; minutes the first time, seconds later)
testbed-up:
    testbed/hosts/up

# remove all hosts of the testbed, its services and its network; builds stay
testbed-down:
    testbed/hosts/down

# a real OpenStack with Blazar on the loopback, and hosts behind its servers (root; four minutes the first time)
openstack-up:
    testbed/openstack/up

openstack-down:
    testbed/openstack/down

# a real Slurm: a controller, a login node and three nodes with stand-in GPUs, as containers (root; minutes the first time)
slurm-up:
    testbed/slurm/up

slurm-down:
    testbed/slurm/down

# starts the test cluster with Kubernetes; the first time, it builds Kubernetes (8 to 30 minutes)
kube-up:
    testbed/kube/up

kube-down:
    testbed/kube/down

# every test of the provider `kubernetes`, `kill -9` and calls cut off at all points too; the first time, it builds
# Prometheus and its operator (half an hour)
kube: kube-up
    GPUCL_POINTS=all cargo test --test main kube:: -- --ignored --nocapture --test-threads=1

# every test of the provider `slurm`, `kill -9` at all points and calls cut off at all of them too (half an hour)
slurm: slurm-up
    GPUCL_POINTS=all cargo test --test main slurm:: -- --ignored --nocapture --test-threads=1 --skip slurm::accounts

# one whole path and what an account does not allow, on a Slurm with accounting (five minutes)
slurm-accounts:
    GPUCL_SLURM_ACCOUNTING=1 cargo test --test main -- --ignored --nocapture --test-threads=1 slurm::accounts slurm::whole slurm::contract::two

# the same Slurm of another release of Debian, beside the first, and most of its tests (half an hour the first time)
slurm-release release="bookworm":
    GPUCL_SLURM_RELEASE={{ release }} GPUCL_SLURM_SUBNET=10.216.0.0/24 GPUCL_SLURM_NETWORK=gpucl-slurm-{{ release }} GPUCL_SLURM_BRIDGE=gpuclsl1 \
        cargo test --test main -- --ignored --nocapture --test-threads=1 slurm::contract::two slurm::crash slurm::trouble slurm::whole

# the conformance suite on the real services: twenty minutes; nothing else may use the testbed
chameleon-check: openstack-up
    cargo test --test main chameleon_keeps_the_contract_on_the_real_services -- --ignored --nocapture

# every test that needs a testbed, the long ones too
testbed-all *filter: testbed-up openstack-up
    cargo test -- --ignored --test-threads=1 --nocapture {{ filter }}

# kill -9 at every point of a real cluster on this machine (five minutes)
kill-points:
    GPUCL_POINTS=all cargo test --test main crash::real -- --ignored --nocapture

# hosts at 40 ms: a playbook of twelve steps, compared with one plain ssh for each host, and with Ansible and pyinfra
fan-out hosts="1,8,32,128": testbed-up
    peers=${XDG_CACHE_HOME:-$HOME/.cache}/gpucl-testbed/peers; [ -x $peers/bin/pyinfra ] || (python3 -m venv $peers && $peers/bin/pip install -q ansible-core==2.19.14 pyinfra==3.10.0); \
        GPUCL_PEERS=$peers GPUCL_HOSTS={{ hosts }} cargo test --release --test main hosts::many -- --ignored --nocapture

# `sync` against rsync, 10,000 small files and one large one, through an sshd of this user; the ratio of the times
sync-bench bytes="1073741824":
    GPUCL_SYNC_BYTES={{ bytes }} cargo test --test main sync_against_rsync -- --ignored --nocapture

# what the guard of an end saves per second: a hundred thousand small files and a large one, with a stand-in of a store
end-speed:
    cargo test --test main end::speed -- --ignored --nocapture

# startup time and memory of the program
bench:
    cargo build --release
    python3 benches/startup.py

# fifty requests a second for five minutes through an update, a rollback, and kills of a replica and of its node: on a
# cluster of gpucl, and on a bare Ray of the same version (twelve minutes; nothing else should use the machine)
serve-load seconds="300":
    cargo build
    python3 -B benches/serve_faults.py gpucl target/debug/gpucl {{ seconds }}
    ray=$(ls -d ${XDG_CACHE_HOME:-$HOME/.cache}/gpucl/environments/ray-*/bin/ray | head -1); \
        python3 -B benches/serve_faults.py bare $ray {{ seconds }}

# what can go wrong with Serve and MLflow, on clusters of this machine (root, to fill a file system; five minutes)
serve-troubles:
    cargo test --test main -- --ignored --nocapture --test-threads=2 scenario::serve_trouble scenario::mlflow_trouble scenario::mlflow::runs_outlive

# the guide's story of training and serving, on this machine and in containers over SSH; then its models are taken to
# another cluster (root; five minutes)
serve-story: testbed-up
    cargo test --test main -- --ignored --nocapture --test-threads=1 hosts::story scenario::story

# the guard of an end, killed after each of its effects in turn: two minutes
end-killed:
    cargo test --test main end::killed -- --include-ignored --nocapture

# the guard in a container of a host of the testbed (Docker; five minutes)
end-containers: testbed-up
    cargo test --test main end::containers -- --ignored --nocapture

# three real leases that end, on the testbed of Chameleon, a training that goes on at a host by SSH, and a deadline at Lambda's
# stand-in (Docker, OpenStack; thirty minutes)
end-clouds: testbed-up
    testbed/openstack/up
    cargo test --test main end::clouds -- --ignored --nocapture --test-threads=1
    testbed/openstack/down

# twenty ends of slots with nothing of ours on this machine, on four hosts side by side: twenty minutes
end-rounds:
    cargo test --test main end::rounds -- --ignored --nocapture

# a job that goes on although its cluster ends, an end that is called off, and one that is changed, on this machine (ten minutes)
end-story:
    cargo test --test main -- --ignored --nocapture --test-threads=1 scenario::slot end::ray end::here

# what people do by hand in the last minutes, two clusters on one machine, and an agent that is killed (ten minutes)
end-troubles:
    cargo test --test main -- --ignored --nocapture --test-threads=1 end::troubles costs::ending::an_agent costs::news

# two programs that renew one login at Chameleon at once, a hundred times
login-rounds:
    cargo test --test main -- --ignored --nocapture chameleon::login::two_programs

# the time and CPU of what the README's three commands build from scratch, and of a release
build-time:
    export CARGO_TARGET_DIR=$(mktemp -d); time cargo build; time cargo test --no-run; \
        time cargo install --path . --debug --locked --root "$CARGO_TARGET_DIR/installed"; \
        time cargo build --release; rm -rf "$CARGO_TARGET_DIR"

# regenerate the generated files
gen:
    cargo run --quiet -- schema > docs/reference/spec.schema.json
    GPUCL_WRITE=1 cargo test --test main cli::reference

# a new provider's folder, from the template
new-provider name:
    cp -r providers/_template providers/{{ name }}
    sed -i 's/^name: _template/name: {{ name }}/' providers/{{ name }}/provider.yaml
    cargo run --quiet -- provider list

# build, list and check a copy of the template under another name (two minutes)
template-provider:
    cargo test --test main template_provider -- --ignored

# a crash at every effect
crash-matrix:
    cargo test --test main crash -- --include-ignored

# kill `up` and `down` at random moments of a real cluster; what still runs after the next `down`?
kill-rounds rounds="8":
    GPUCL_ROUNDS={{ rounds }} cargo test --test main after_random_kills -- --ignored --nocapture

# the course lab of examples/lab, block by block: on_an_ssh_host, on_this_machine or at_chameleon
lab where="on_this_machine":
    cargo test --test main lab::{{ where }} -- --ignored --nocapture

# PyTorch itself, on this machine and in containers on a host of the testbed: training on four workers, and data loaders
# (twice 6 GB, fifteen minutes)
lab-torch: testbed-up
    cargo test --test main ::torch:: -- --ignored --nocapture --test-threads=1

# on hosts of the testbed: workers stopped, started and killed by hand, data that goes and comes back, and images of
# `setup` (ten minutes)
more-hosts: testbed-up
    cargo test --test main -- --ignored --nocapture --test-threads=1 hosts::by_hand hosts::data hosts::setup

# on a machine with GPUs of NVIDIA and nobody's programs on them: what jobs get of them, here and through an sshd of this
# user (two minutes)
real-gpus:
    cargo test --test main real_gpus -- --ignored --nocapture --test-threads=1

# on this machine: `run` interrupted at each stage, with nothing left, and environments of `setup` that clusters share
# (five minutes)
more-local:
    cargo test --test main -- --ignored --nocapture --test-threads=1 scenario::one_run scenario::setup

# two sites of the real OpenStack at once: one table, one chart, a lease at the site that has the host; then one of them
# is stopped (root, 5 GiB of memory; five minutes more the first time). The second site is down at its end
two-sites:
    testbed/openstack/up
    GPUCL_OPENSTACK_SITE=2 testbed/openstack/up
    cargo test --test main chameleon::two_sites -- --ignored --nocapture

# every mutating call to Chameleon, with every fault: on stand-ins, then on the real services (half an hour)
chameleon-matrix:
    testbed/openstack/up
    cargo test --test main chameleon::matrix -- --include-ignored --nocapture --test-threads=1

# every mutating call to Lambda, with every fault and every way to continue
lambda-matrix:
    cargo test --test main lambda::matrix -- --include-ignored --nocapture

# four nodes from nothing and back, on hosts of the testbed behind the stand-in of Lambda (four minutes)
more-lambda: testbed-up
    cargo test --test main lambda::whole::four -- --ignored --nocapture

# how many requests and answers the last run of the tests compared with the facts of Lambda's document
lambda-contract:
    @cat target/tmp/lambda-contract.txt

# ten million inputs to all parsers of foreign data: most of an hour on one core. `just fuzz 100000` for a quick run
fuzz inputs="10000000" round="0":
    cargo test --profile fuzz --lib --no-run
    ulimit -v 8000000; GPUCL_FUZZ_INPUTS={{ inputs }} GPUCL_FUZZ_ROUND={{ round }} nice cargo test --profile fuzz --lib fuzz:: -- --nocapture --test-threads=1
    GPUCL_FUZZ_INPUTS={{ inputs }} GPUCL_FUZZ_ROUND={{ round }} nice cargo test --test main data::archives::archives_in_any_order -- --nocapture

# licences, sources and advisories of the dependencies (needs cargo-deny and, for advisories, the network)
deny:
    cargo deny check
