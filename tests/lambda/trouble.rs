//! Failures of an account and its instances: exit code, message, hint, and the account's resources afterwards.

use std::time::Duration;

use gpucl::sandbox::lambda::{Account, Config, Outcome, Rule, User};

use super::site::{Site, spec_into};

#[test]
fn a_missing_key_is_reported_with_a_hint() {
    let mut site = Site::prompt();
    site.env.set("LAMBDA_API_KEY", "");
    let spec = site.spec(1, "");
    for arguments in [&["up", "--yes", &spec][..], &["offers", "--provider", "lambda"]] {
        site.run(arguments).exits(2).says("there is no API key").says("hint: gpucl login lambda");
    }
    site.run(&["offers"]).exits(2).says("not logged in to any provider").says("hint: gpucl login lambda");
    assert_eq!(site.sandbox.log().len(), 0);
}

#[test]
fn a_wrong_key_is_reported_and_never_as_no_offers() {
    let mut site = Site::prompt();
    site.env.set("LAMBDA_API_KEY", "");
    site.env.set("LAMBDALABS_API_KEY", "secret_wrong_0123");
    let spec = site.spec(1, "");
    for arguments in [&["up", "--yes", &spec][..], &["offers"], &["plan", &spec]] {
        let outcome = site.run(arguments).exits(1);
        let outcome =
            outcome.says("the key from LAMBDALABS_API_KEY is refused").says("https://cloud.lambda.ai/api-keys");
        assert!(!outcome.stderr.contains("secret_wrong"), "{}", outcome.stderr);
    }
    assert_eq!(site.counts(), [0; 4]);
}

#[test]
fn a_revoked_key_keeps_the_state_and_another_key_can_run_down() {
    let mut site = Site::prompt();
    let spec = site.spec(1, "");
    site.up_to_ssh(&spec);
    site.sandbox.revoke(User::Alice);
    site.run(&["down", "--yes", "-c", "demo"]).exits(1).says("the key from LAMBDA_API_KEY is refused");
    assert_eq!(site.counts(), [1, 1, 0, 0]);
    site.env.set("LAMBDA_API_KEY", &site.sandbox.key(User::Bob));
    site.down();
}

#[test]
fn an_inactive_account_is_reported() {
    let mut site = Site::prompt();
    site.env.set("LAMBDA_API_KEY", &site.sandbox.key(User::Carol));
    site.run(&["offers"]).exits(1).says("global/account-inactive").says("payment method");
    let spec = site.spec(1, "");
    site.run(&["up", "--yes", &spec]).exits(1).says("global/account-inactive");
    assert_eq!(site.counts(), [0; 4]);
}

#[test]
fn an_account_without_a_billing_address_launches_nothing() {
    let site = Site::with(Config { account: Account::NoAddress, ..Config::prompt() });
    let spec = site.spec(1, "");
    site.run(&["up", "--yes", &spec]).exits(1).says("global/invalid-address").says("billing address");
    assert_eq!(site.counts()[0], 0);
    site.down();
}

#[test]
fn no_capacity_anywhere_lists_the_accepted_choices() {
    let site = Site::with(Config::prompt().without_capacity());
    let spec = spec_into(&site.env, 1, "gpus: { model: a100, count: 8 }", "regions: [us-east-1, us-west-1]");
    site.run(&["up", "--yes", &spec])
        .exits(8)
        .says(
            "none is free now; acceptable: gpu_8x_a100 (15.92 USD an hour), gpu_8x_a100_80gb_sxm4 (22.32 USD an hour)",
        )
        .says("in us-east-1, us-west-1")
        .says("--wait-capacity");
    assert_eq!(site.counts(), [0; 4], "nothing was made");
    site.others_are_untouched();
}

#[test]
fn capacity_that_is_gone_between_list_and_launch_has_its_own_exit_code() {
    let site = Site::prompt();
    assert!(site.sandbox.vanish("gpu_1x_a10", "us-east-1"));
    let spec = site.spec(1, "regions: [us-east-1]");
    site.run(&["up", "--yes", &spec])
        .exits(8)
        .says("instance-operations/launch/insufficient-capacity")
        .says("it went to somebody else");
    assert_eq!(site.counts()[0], 0);
    // Once more, as for every host that did not come, and not for ever.
    assert!((1..=2).contains(&site.asked("POST", "/launch")));
    site.down();
}

#[test]
fn an_exhausted_quota_is_reported() {
    let site = Site::with(Config { instance_quota: 0, ..Config::prompt() });
    let spec = site.spec(1, "");
    site.run(&["up", "--yes", &spec]).exits(1).says("global/quota-exceeded").says("gpucl list");
    assert_eq!(site.counts()[0], 0);
    site.down();
}

#[test]
fn three_of_four_hosts_are_kept_when_capacity_ends_and_down_gives_them_back() {
    let site = Site::with(Config::prompt().without_capacity().with_capacity("gpu_1x_a10", "us-east-1", 3));
    let spec = site.spec(4, "regions: [us-east-1]");
    // The three are prepared first, as far as that goes with machines that nobody can log in to.
    site.up_to_ssh(&spec).says("insufficient-capacity");
    assert_eq!(site.counts(), [3, 1, 0, 1]);
    // The three stay in their region: the fourth is requested there only.
    site.sandbox.capacity("gpu_1x_a10", "us-west-1", 9);
    site.run(&["up", "--yes", &site.spec(4, "")]).exits(8).says("us-east-1, where one of its hosts is");
    site.sandbox.capacity("gpu_1x_a10", "us-east-1", 1);
    site.up_to_ssh(&spec);
    assert_eq!(site.counts(), [4, 1, 0, 1]);
    site.down();
}

#[test]
fn an_unhealthy_instance_is_released_and_replaced() {
    let site = Site::prompt();
    site.sandbox.next(Outcome::Unhealthy);
    let spec = site.spec(1, "");
    site.up_to_ssh(&spec);
    assert_eq!(site.asked("POST", "/launch"), 2);
    assert_eq!(site.counts(), [1, 1, 0, 0], "the unhealthy one is terminated");
    site.down();
}

#[test]
fn repeatedly_unhealthy_or_preempted_instances_end_up() {
    for (outcome, says) in [(Outcome::Unhealthy, "it is unhealthy"), (Outcome::Preempted, "it was preempted")] {
        let site = Site::prompt();
        for _ in 0..4 {
            site.sandbox.next(outcome);
        }
        let spec = site.spec(1, "");
        site.run(&["up", "--yes", &spec]).exits(1).says("failed to boot host-0").says(says);
        assert!(site.counts()[0] <= 1);
        site.down();
    }
}

#[test]
fn an_address_that_never_comes_ends_at_a_limit_and_says_what_is_billed() {
    let site = Site::prompt();
    site.sandbox.next(Outcome::NoAddress);
    let spec = site.spec(1, "");
    site.run(&["up", "--yes", &spec]).says("no address yet").says("gpucl down -c demo").exits(7);
    assert_eq!(site.counts(), [1, 1, 0, 0]);
    site.down();
}

#[test]
fn an_ssh_timeout_leaves_instances_that_down_removes() {
    let site = Site::prompt();
    let spec = site.spec(1, "");
    site.up_to_ssh(&spec).says("Permission denied");
    assert_eq!(site.counts(), [1, 1, 0, 0]);
    site.down();
}

#[test]
fn a_refused_termination_is_reported_with_its_costs() {
    let site = Site::prompt();
    let spec = site.spec(1, "");
    site.up_to_ssh(&spec);
    let id = site.instance();
    site.sandbox.refuse_terminate(&id, u32::MAX);
    site.run(&["down", "--yes", "-c", "demo"])
        .exits(1)
        .says("cannot be terminated now")
        .says(&format!("{id} is billed until it is terminated"));
    assert_eq!(site.counts()[0], 1);
    site.sandbox.refuse_terminate(&id, 0);
    site.down();
}

#[test]
fn a_termination_whose_answer_is_lost_is_checked() {
    let site = Site::with(Config { terminating: Duration::from_millis(300), ..Config::prompt() });
    let spec = site.spec(1, "");
    site.up_to_ssh(&spec);
    site.faults(vec![Rule::new("POST", "/instance-operations/terminate$", "cut-after")]);
    site.down();
    assert_eq!(site.asked("POST", "/terminate"), 1, "what is terminating is not terminated again");
}

#[test]
fn an_instance_terminated_by_others_is_noticed_and_replaced() {
    let site = Site::prompt();
    let spec = site.spec(1, "");
    site.up_to_ssh(&spec);
    let id = site.instance();
    assert!(site.sandbox.terminate_behind_our_back(&id));
    site.up_to_ssh(&spec);
    assert_ne!(site.instance(), id);
    assert!(site.sandbox.terminate_behind_our_back(&site.instance()));
    site.down();
}

#[test]
fn an_unknown_status_terminates_nothing() {
    let site = Site::prompt();
    let spec = site.spec(1, "");
    site.up_to_ssh(&spec);
    let id = site.instance();
    assert!(site.sandbox.make_strange(&id));
    site.run(&["up", "--yes", &spec]);
    assert_eq!(site.instance(), id);
    site.sandbox.forget_violations();
    site.down();
}

#[test]
fn two_concurrent_commands_launch_one_instance() {
    let site = Site::prompt();
    let spec = site.spec(1, "");
    site.faults(vec![Rule::new("POST", "/instance-operations/launch$", "delay:1.5")]);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| site.up_to_ssh(&spec));
        let begun = std::time::Instant::now();
        while site.asked("GET", "/instance-types") == 0 && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(20));
        }
        site.run(&["up", "--yes", &spec]).exits(4).says("demo");
        first.join().unwrap();
    });
    assert_eq!(site.counts(), [1, 1, 0, 0]);
    site.down();
}

#[test]
fn another_user_of_the_account_with_a_cluster_of_the_same_name_is_not_touched() {
    let site = Site::prompt();
    let bob = site.user(User::Bob);
    let spec = site.spec(1, "");
    site.up_to_ssh(&spec);
    let mine = site.instance();
    let his = spec_into(&bob, 1, "type: gpu_1x_a10", "");
    bob.run(&["up", "--yes", &his]).exits(1).says("failed to connect to host-0");
    assert_eq!(site.counts(), [2, 2, 0, 0], "each has an instance and a key");
    site.run(&["down", "--yes", "-c", "demo"]).exits(0);
    assert_eq!(site.counts(), [1, 1, 0, 0]);
    assert_ne!(site.instance(), mine);
    site.run(&["gc", "--provider", "lambda", "--yes"]).exits(0);
    assert_eq!(site.counts(), [1, 1, 0, 0]);
    bob.run(&["down", "--yes", "-c", "demo"]).exits(0);
    assert_eq!(site.counts(), [0; 4]);
    site.others_are_untouched();
}

#[test]
fn a_clock_that_is_off_by_hours_changes_nothing() {
    let site = Site::with(Config { clock_offset: jiff::SignedDuration::from_hours(-5), ..Config::prompt() });
    let spec = site.spec(1, "");
    site.up_to_ssh(&spec);
    site.down();
}

#[test]
fn instances_that_lists_show_late_are_launched_once() {
    let site = Site::with(Config { late: Duration::from_millis(300), ..Config::prompt() });
    let spec = site.spec(1, "");
    site.faults(vec![Rule::new("POST", "/instance-operations/launch$", "cut-after")]);
    site.run(&["up", "--yes", &spec]);
    site.run(&["up", "--yes", &spec]);
    assert_eq!(site.sandbox.snapshot().ours().instances.len(), 1, "it was launched once");
    site.down();
}

#[test]
fn gc_finds_what_a_lost_machine_left() {
    let site = Site::prompt();
    let spec = site.spec(2, "file_systems: [{ name: data, create: true }]");
    site.env.accept(&spec);
    site.up_to_ssh(&spec);
    assert_eq!(site.counts(), [2, 1, 1, 1]);
    std::fs::remove_dir_all(site.env.home().join(".local/state/gpucl/clusters/demo")).unwrap();
    site.run(&["gc", "--provider", "lambda", "--yes"]).exits(0);
    assert_eq!(site.counts(), [0; 4], "{:?}", site.ours());
    site.others_are_untouched();
}

/// A host costs money, and may be the last of its kind: nobody gives it back to correct how it is reached.
#[test]
fn a_corrected_login_is_used_for_hosts_that_are_there() {
    let site = Site::prompt();
    let spec = site.spec(1, "user: root\nssh_port: 2222");
    site.up_to_ssh(&spec);
    let of = || site.ours().alive().next().unwrap().id.clone();
    let before = of();
    let config = || {
        let folder = site.env.paths().cluster(&"demo".parse().unwrap());
        let files = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
        let texts = files.filter_map(|file| std::fs::read_to_string(file).ok());
        texts.collect::<String>().replace(char::is_whitespace, "")
    };
    assert!(config().contains("\"port\":2222"), "{}", config());
    let spec = site.spec(1, "user: admin");
    let says = "host-0: reached as admin at port 22, as the spec says now; before: root at port 2222";
    let plan = site.run(&["plan", &spec]).exits(0);
    assert!(format!("{}{}", plan.stdout, plan.stderr).contains(says), "{plan:?}");
    site.up_to_ssh(&spec);
    assert!(config().contains("\"user\":\"admin\""), "{}", config());
    let again = site.run(&["plan", &spec]).exits(0);
    assert!(!format!("{}{}", again.stdout, again.stderr).contains("as the spec says now"), "{again:?}");
    assert_eq!(before, of(), "the host is the same");
    site.down();
}

/// Everybody in the account can give a machine another name; what was written at its launch stays.
#[test]
fn a_foreign_instance_renamed_to_our_name_is_left_alone() {
    let site = Site::prompt();
    let bob = site.user(User::Bob);
    bob.run(&["up", "--yes", &spec_into(&bob, 1, "type: gpu_1x_a10", "")]).exits(1);
    let his = site.instance();
    site.run(&["gc", "--provider", "lambda", "--yes"]);
    std::fs::create_dir_all(site.env.home().join(".config/gpucl")).unwrap();
    std::fs::write(site.env.home().join(".config/gpucl/owner"), "abcd1234\n").unwrap();
    let foreign = site.sandbox.snapshot().alive().find(|one| one.is_foreign).unwrap().id.clone();
    for id in [&his, &foreign] {
        site.rename(id, "gpucl-abcd1234-demo-host0");
    }
    site.run(&["gc", "--provider", "lambda", "--yes"]).exits(0);
    let alive: Vec<String> = site.sandbox.snapshot().alive().map(|one| one.id.clone()).collect();
    assert!(alive.contains(&his) && alive.contains(&foreign), "a machine of another's was terminated for its name");
    site.up_to_ssh(&site.spec(1, ""));
    assert_eq!(site.counts()[0], 2, "the cluster has a machine of its own");
    bob.run(&["down", "--yes", "-c", "demo"]).exits(0);
    site.down();
}
