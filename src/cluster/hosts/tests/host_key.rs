//! Whose host keys are replaced, and what is said when one cannot be.

use super::*;

/// Brings up one host, whose next calls for a key of its own fail; returns the calls and what was said about it.
async fn up(sends_host_keys: bool, fails: usize) -> (usize, Vec<String>) {
    let home = Home::new(Cloud::new(1));
    home.cloud.state().sends_host_keys = sends_host_keys;
    home.hosts.fails_own_keys(fails);
    let went = home.up(&spec(1, ""), None).await;
    went.result.unwrap();
    let said = went.events.into_iter().filter_map(|event| match event {
        EventKind::Warning { message, .. } if message.contains("host key") => Some(message),
        _ => None,
    });
    (home.hosts.own_keys(), said.collect())
}

#[tokio::test(start_paused = true)]
async fn a_host_whose_key_others_can_read_makes_its_own_and_no_other_host_does() {
    assert_eq!(up(true, 0).await, (1, Vec::new()));
    assert_eq!(up(false, 0).await, (0, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_host_key_that_was_not_replaced_is_tried_again_and_then_said() {
    assert_eq!(up(true, 1).await, (2, Vec::new()), "the stage may have restarted the host");
    let (calls, said) = up(true, 2).await;
    let expected = "host-0 keeps the host key from its user data, which programs on it can read: it is restarting. The \
                    next `gpucl up` tries again";
    assert_eq!((calls, said), (2, vec![expected.to_owned()]));
}
