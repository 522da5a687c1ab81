//! An amount of memory in a spec.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An amount of memory: a number of bytes, or text such as `512MiB` or `2GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(into = "String")]
pub struct Memory(pub u64);

impl std::str::FromStr for Memory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not an amount of memory: use a form such as `512MiB` or `2GiB`");
        let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
        let number: f64 = text[..digits].parse().map_err(|_| wrong())?;
        let factor: u64 = match text[digits..].trim() {
            "" | "B" => 1,
            "KiB" | "Ki" => 1 << 10,
            "MiB" | "Mi" => 1 << 20,
            "GiB" | "Gi" => 1 << 30,
            "TiB" | "Ti" => 1 << 40,
            "kB" | "KB" | "K" => 1_000,
            "MB" | "M" => 1_000_000,
            "GB" | "G" => 1_000_000_000,
            "TB" | "T" => 1_000_000_000_000,
            _ => return Err(wrong()),
        };
        let bytes = number * factor as f64;
        if (1.0..1e18).contains(&bytes) { Ok(Self(bytes as u64)) } else { Err(wrong()) }
    }
}

impl From<Memory> for String {
    fn from(memory: Memory) -> String {
        memory.0.to_string()
    }
}

impl<'de> Deserialize<'de> for Memory {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Amount;
        impl serde::de::Visitor<'_> for Amount {
            type Value = Memory;

            fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str("an amount of memory such as `2GiB`")
            }

            fn visit_u64<E: serde::de::Error>(self, bytes: u64) -> Result<Memory, E> {
                self.visit_str(&bytes.to_string())
            }

            fn visit_i64<E: serde::de::Error>(self, bytes: i64) -> Result<Memory, E> {
                self.visit_str(&bytes.to_string())
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Memory, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Amount)
    }
}

impl JsonSchema for Memory {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Memory".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": ["string", "integer"], "examples": ["512MiB", "2GiB"] })
    }
}
