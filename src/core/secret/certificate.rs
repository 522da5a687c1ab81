//! The certificate with which the parts of a cluster's object store know each other, and nobody else.
//!
//! One Ed25519 key is authority, server and client at once: every port accepts this certificate alone. All fields have
//! fixed lengths, so the encoding (RFC 5280, RFC 8410) is a few nested values; a crate for any certificate would take
//! nine seconds of the first build.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use sha2::{Digest as _, Sha256};

use crate::error::{Error, ErrorKind, Result};

/// A certificate and its key, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

/// The algorithm identifier of Ed25519.
const ED25519: &[u8] = &[0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70];

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OBJECT: u8 = 0x06;
const UTF8: u8 = 0x0c;
const TIME: u8 = 0x18;

/// Makes the certificate of this secret; the same secret makes the same certificate.
///
/// # Errors
/// When the key cannot be made.
pub fn certificate(secret: &str) -> Result<Certificate> {
    let seed = Sha256::digest(format!("identity of an object store\n{secret}"));
    let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|error| {
        Error::new(ErrorKind::Internal, "make the object store's certificate").because(error.to_string())
    })?;
    let public = pair.public_key().as_ref();
    let mut serial = Sha256::digest(public)[..16].to_vec();
    // A positive number without leading zeros.
    serial[0] = serial[0] & 0x7f | 0x40;
    let name =
        sequence(&[&value(SET, &sequence(&[&object(&[0x55, 4, 3]), &value(UTF8, b"object store of a cluster")]))]);
    // The second time stands for "no expiry" (RFC 5280, 4.1.2.5).
    let validity = sequence(&[&value(TIME, b"20200101000000Z"), &value(TIME, b"99991231235959Z")]);
    let purposes = [1, 2].map(|purpose| object(&[0x2b, 6, 1, 5, 5, 7, 3, purpose]));
    let extension = |id: u8, inner: &[u8]| sequence(&[&object(&[0x55, 0x1d, id]), &value(OCTET_STRING, inner)]);
    let extensions = sequence(&[
        // Key usage: digital signatures.
        &extension(15, &value(BIT_STRING, &[7, 0x80])),
        // For servers and clients.
        &extension(37, &sequence(&[&purposes[0], &purposes[1]])),
        // For 127.0.0.1.
        &extension(17, &sequence(&[&value(0x87, &[127, 0, 0, 1])])),
    ]);
    let body = sequence(&[
        // Version 3.
        &value(0xa0, &value(INTEGER, &[2])),
        &value(INTEGER, &serial),
        ED25519,
        &name,
        &validity,
        &name,
        &sequence(&[ED25519, &bits(public)]),
        &value(0xa3, &extensions),
    ]);
    let signature = pair.sign(&body);
    let whole = sequence(&[&body, ED25519, &bits(signature.as_ref())]);
    let key = sequence(&[&value(INTEGER, &[0]), ED25519, &value(OCTET_STRING, &value(OCTET_STRING, &seed))]);
    Ok(Certificate { certificate: pem("CERTIFICATE", &whole), key: pem("PRIVATE KEY", &key) })
}

/// A value with its tag and length.
fn value(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let mut all = vec![tag];
    match u8::try_from(length) {
        Ok(short @ 0..=0x7f) => all.push(short),
        Ok(byte) => all.extend([0x81, byte]),
        Err(_) => all.extend([0x82, (length >> 8) as u8, length as u8]),
    }
    all.extend(content);
    all
}

fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    value(SEQUENCE, &parts.concat())
}

fn object(id: &[u8]) -> Vec<u8> {
    value(OBJECT, id)
}

/// Bits, all of which are used.
fn bits(content: &[u8]) -> Vec<u8> {
    value(BIT_STRING, &[&[0], content].concat())
}

fn pem(what: &str, bytes: &[u8]) -> String {
    let text = STANDARD.encode(bytes);
    let mut lines = format!("-----BEGIN {what}-----\n");
    for line in text.as_bytes().chunks(64) {
        lines.extend(line.iter().copied().map(char::from));
        lines.push('\n');
    }
    lines.push_str(&format!("-----END {what}-----\n"));
    lines
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::server::WebPkiClientVerifier;
    use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

    use super::*;

    /// Whether a client with the second certificate is let in by a server of the first.
    fn is_admitted(server: &Certificate, client: &Certificate) -> bool {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let der = |one: &Certificate| {
            let certificate = CertificateDer::from_pem_slice(one.certificate.as_bytes()).unwrap();
            (certificate, PrivateKeyDer::from_pem_slice(one.key.as_bytes()).unwrap())
        };
        let mut roots = RootCertStore::empty();
        roots.add(der(server).0).unwrap();
        let roots = Arc::new(roots);
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        let (certificate, key) = der(server);
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let mut there = ServerConnection::new(Arc::new(config)).unwrap();
        let (certificate, key) = der(client);
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![certificate], key)
            .unwrap();
        let mut here = ClientConnection::new(Arc::new(config), "127.0.0.1".try_into().unwrap()).unwrap();
        for _ in 0..4 {
            let mut bytes = Vec::new();
            here.write_tls(&mut bytes).unwrap();
            there.read_tls(&mut bytes.as_slice()).unwrap();
            if there.process_new_packets().is_err() {
                return false;
            }
            let mut bytes = Vec::new();
            there.write_tls(&mut bytes).unwrap();
            here.read_tls(&mut bytes.as_slice()).unwrap();
            here.process_new_packets().unwrap();
        }
        !there.is_handshaking()
    }

    #[test]
    fn a_certificate_admits_its_own_key_and_no_other() {
        let (own, other) = (certificate("one").unwrap(), certificate("two").unwrap());
        assert_eq!(own, certificate("one").unwrap());
        assert!(is_admitted(&own, &own));
        assert!(!is_admitted(&own, &other));
    }
}
