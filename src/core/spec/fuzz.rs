//! Fuzzing of compose files from untrusted sources: each is either read or refused.

use gpucl_fuzz::{Target, demand};

use super::compose::beyond;

#[test]
fn fuzz_compose_files() {
    let seeds = [
        "services:\n  web: {image: nginx, ports: ['127.0.0.1:80:80']}\nvolumes: {data: {}}\n",
        "x-common: &common {restart: always}\nservices:\n  a: {<<: *common}\n  b: !reset null\nconfigs: {c: {file: ./c}}\n",
        "services:\n  head: {volumes: !override ['/:/host'], privileged: '${X}', ports: [80]}\nnetworks: {x: {internal: true}}\n",
    ];
    Target::of_text("compose", &seeds).with_words(&["services:", "&a ", "*a", "!override "]).with_inputs(300, 40).run(
        |input| match beyond(&String::from_utf8_lossy(input)) {
            Ok(_) => Ok(()),
            Err(why) => {
                demand(!why.is_empty() && why.len() < 100_000, || format!("the reason has {} bytes", why.len()))
            }
        },
    );
}
