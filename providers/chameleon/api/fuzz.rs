//! Fuzzes the responses of a site's services: each is parsed, or refused as malformed.

use reqwest::{Method, StatusCode};
use secrecy::SecretString;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::call::{below, decode, next_page};
use super::failure::classify;
use super::machine::{FloatingIp, Image, KeyPair, Network, Server};
use super::session::{Body, Session};
use super::{Allocation, Host, Lease};
use crate::error::Error;
use gpucl_fuzz::{Target, demand};

/// The response bodies recorded from a site.
fn recorded() -> Vec<Value> {
    let texts = [
        include_str!("../fixtures/blazar-create-lease.json"),
        include_str!("../fixtures/blazar-get-prolong-delete.json"),
        include_str!("../fixtures/blazar-hosts-allocations-properties.json"),
        include_str!("../fixtures/keystone-application-credential.json"),
        include_str!("../fixtures/nova-create-server.json"),
    ];
    let calls = texts.iter().flat_map(|text| match serde_json::from_str(text).unwrap() {
        Value::Array(calls) => calls,
        call => vec![call],
    });
    let bodies = calls.map(|call| call["response"]["body"].clone());
    bodies.filter(Value::is_object).collect()
}

fn built() -> Vec<Value> {
    vec![
        json!({"hosts": [{"id": "1", "hypervisor_hostname": "u", "node_name": "liqid01", "node_type": "compute_liqid", "reservable": true,
            "gpu.gpu": "True", "gpu.gpu_count": "2", "gpu.gpu_model": "A100", "su_factor": "4.0", "main_memory.ram_size": 270000000000_u64}]}),
        json!({"allocations": [{"resource_id": "1", "reservations": [{"id": "r", "lease_id": "l",
            "start_date": "2026-11-21T20:00:00.000000", "end_date": "2026-11-22 20:00:00", "extras": {"user_name": "ada"}}]}]}),
        json!({"leases": [{"id": "l", "name": "n gpucl-abcd1234-demo-lease", "user_id": "u", "start_date": "2026-11-21T20:00:00.000000",
            "end_date": "2026-11-22T20:00:00.000000", "status": "ACTIVE", "degraded": false, "reservations": [{"id": "r",
            "resource_type": "physical:host", "resource_properties": "[\"and\", [\"=\", \"$node_name\", \"x\"], [\"==\", \"$a\", 1]]"}]}]}),
        json!({"server": {"id": "s", "name": "n", "status": "ERROR", "fault": {"message": "x"}, "metadata": {"gpucl": "t"}, "user_id": "u",
            "addresses": {"sharednet1": [{"addr": "10.0.0.1", "version": 4, "OS-EXT-IPS:type": "fixed"}]}}}),
        json!({"floatingips": [{"id": "f", "floating_ip_address": "1.2.3.4", "description": "d", "port_id": null, "status": "DOWN"}],
            "floatingips_links": [{"rel": "next", "href": "http://x/v2.0/floatingips?marker=1"}]}),
        json!({"images": [{"id": "i", "name": "CC-Ubuntu24.04-CUDA", "status": "active", "created_at": "2026-01-01T00:00:00Z"}], "next": "/v2/images?marker=i"}),
        json!({"networks": [{"id": "n", "name": "public", "router:external": true, "subnets": ["a"]}]}),
        json!({"keypairs": [{"keypair": {"name": "gpucl-x", "public_key": "ssh-ed25519 AAAA", "fingerprint": "x"}}]}),
        json!({"token": {"user": {"id": "u", "name": "ada"}, "project": {"id": "p", "name": "CHI-1"}, "roles": [{"id": "r", "name": "member"}],
            "expires_at": "2026-11-22T20:00:00.000000Z", "issued_at": "2026-11-21T20:00:00.000000Z", "catalog": [{"type": "reservation",
            "endpoints": [{"interface": "public", "region": "CHI@TACC", "url": "https://chi.tacc.example:5000/v1"}]}]}}),
        json!({"error": {"code": 409, "message": "Not enough hosts available", "title": "Conflict"}}),
        json!({"conflictingRequest": {"code": 409, "message": "Quota exceeded"}}),
        json!({"error_code": 400, "error_message": "Lease duration of 9 must be less than or equal to 7"}),
    ]
}

fn each<T: DeserializeOwned>(value: &Value, key: &str, visit: impl Fn(&T)) {
    let found: Vec<T> = decode(below(value.clone(), key), "list", &Method::GET).unwrap_or_default();
    found.iter().for_each(visit);
}

#[test]
fn fuzz_answers_of_chameleon() {
    let seeds: Vec<Value> = recorded().into_iter().chain(built()).collect();
    let words = [
        "not enough hosts available",
        "quota exceeded",
        "<html>",
        "reservation",
        "physical:host",
        "[\"and\", ",
        "$node_name",
        "?marker=",
    ];
    Target::of_json("chameleon", &seeds).with_words(&words).with_inputs(600, 100).run(|input| {
        for status in [400, 401, 404, 409, 500, 502] {
            let failure = classify("make a lease", &Method::POST, StatusCode::from_u16(status).unwrap(), input);
            let error = Error::from(failure);
            let length: usize = error.causes().iter().map(String::len).sum();
            demand(length < 20_000, || format!("an error of {length} bytes"))?;
        }
        let Ok(value) = serde_json::from_slice::<Value>(input) else { return Ok(()) };
        for key in ["leases", "floatingips", "images"] {
            if let Some(next) = next_page(&value, key, "/leases?limit=1") {
                demand(next.starts_with("/leases?"), || format!("the next page is {next}"))?;
            }
        }
        each::<Host>(&value, "hosts", |host| {
            drop((host.name().to_owned(), host.property("gpu.gpu").map(str::to_owned)))
        });
        each::<Allocation>(&value, "allocations", |_| {});
        let visit =
            |lease: &Lease| lease.reservations.iter().for_each(|one| drop((one.is_host(), one.asked("node_name"))));
        each::<Lease>(&value, "leases", visit);
        let one: Option<Lease> = decode(below(value.clone(), "lease"), "read", &Method::GET).ok();
        one.iter().for_each(visit);
        each::<Server>(&value, "servers", |_| {});
        let _: Option<Server> = decode(below(value.clone(), "server"), "read", &Method::GET).ok();
        each::<FloatingIp>(&value, "floatingips", |_| {});
        each::<Image>(&value, "images", |_| {});
        each::<Network>(&value, "networks", |_| {});
        let _: Option<KeyPair> = decode(below(value.clone(), "keypair"), "read", &Method::GET).ok();
        if let Ok(body) = decode::<Body>(below(value, "token"), "authenticate", &Method::POST) {
            let session = Session::new(SecretString::from("t"), body, true);
            let _ = (session.is_fresh(), session.who(), session.reads(), session.regions());
            for region in session.regions().iter().take(3) {
                let _ = session.endpoint("reservation", region, "publicURL", "reserve").map_err(Error::from);
            }
        }
        Ok(())
    });
}
