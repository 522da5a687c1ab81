# Short names; each is one or two commands that can be typed as well.

set shell := ["bash", "-cu"]

# what there is
default:
    @just --list

# all tests that need Rust and python3 only
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

# the README's first two commands on a machine that has nothing, as an ordinary user (root, Debian or Ubuntu; a quarter of an hour)
fresh:
    testbed/fresh/run

# the same as root
fresh-as-root:
    testbed/fresh/run --as-root

# what hosts by SSH need, as containers on this machine (root; minutes the first time, seconds later)
testbed-up:
    testbed/hosts/up

# all hosts of the testbed, its services and its network; what was built stays
testbed-down:
    testbed/hosts/down

# a real OpenStack with Blazar on this machine's loopback, and hosts behind its servers (root; four minutes the first time)
openstack-up:
    testbed/openstack/up

openstack-down:
    testbed/openstack/down

# the conformance suite on the real services: twenty minutes, with nobody else on the testbed
chameleon-check: openstack-up
    cargo test --test main chameleon_keeps_the_contract_on_the_real_services -- --ignored --nocapture

# every test that needs a testbed, the long ones too
testbed-all *filter: testbed-up openstack-up
    cargo test -- --ignored --test-threads=1 --nocapture {{ filter }}

# kill -9 at every point of a real cluster on this machine (five minutes)
kill-points:
    GPUCL_POINTS=all cargo test --test main crash::real -- --ignored --nocapture

# eight hosts at 40 ms: a playbook of twelve steps, against one plain ssh for each host
fan-out: testbed-up
    cargo test --test main hosts::many -- --ignored --nocapture

# how long the program takes to say anything, and how much memory
bench:
    cargo build --release
    python3 benches/startup.py

# what a newcomer waits for: a release build from nothing
build-time:
    dir=$(mktemp -d) && (time CARGO_TARGET_DIR="$dir" cargo build --release); rm -rf "$dir"

# write the generated files anew
gen:
    cargo run --quiet -- schema > docs/reference/spec.schema.json
    GPUCL_WRITE=1 cargo test --test main cli::reference

# a new provider's folder, from the template
new-provider name:
    cp -r providers/_template providers/{{ name }}
    sed -i 's/^name: _template/name: {{ name }}/' providers/{{ name }}/provider.yaml
    cargo run --quiet -- provider list

# a copy of the template under another name is built, listed and checked (two minutes)
template-provider:
    cargo test --test main template_provider -- --ignored

# a crash at every effect
crash-matrix:
    cargo test --test main crash -- --include-ignored

# `up` and `down` are killed at random moments of a real cluster; what runs after the next `down`?
kill-rounds rounds="8":
    GPUCL_ROUNDS={{ rounds }} cargo test --test main killed_at_random_moments -- --ignored --nocapture

# every call that changes something at Chameleon, in every trouble: on stand-ins, then on the real services (half an hour)
chameleon-matrix:
    testbed/openstack/up
    cargo test --test main chameleon::matrix -- --include-ignored --nocapture --test-threads=1

# every call that changes something at Lambda, in every trouble and all ways on
lambda-matrix:
    cargo test --test main lambda::matrix -- --include-ignored --nocapture

# how many requests and answers the last run of the tests compared with the facts of Lambda's document
lambda-contract:
    @cat target/tmp/lambda-contract.txt

# ten million inputs over all that reads what others wrote: most of an hour on one core. `just fuzz 100000` for a look
fuzz inputs="10000000" round="0":
    cargo test --profile fuzz --lib --no-run
    ulimit -v 8000000; GPUCL_FUZZ_INPUTS={{ inputs }} GPUCL_FUZZ_ROUND={{ round }} nice cargo test --profile fuzz --lib fuzz:: -- --nocapture --test-threads=1

# licences, sources and advisories of what we depend on (needs cargo-deny and, for advisories, the network)
deny:
    cargo deny check
