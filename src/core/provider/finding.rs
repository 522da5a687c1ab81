//! A provider's findings, which pass through the plan and back to the provider.

use serde::{Deserialize, Serialize};

use crate::error::{Doing as _, ErrorKind, Result};
use crate::money::HourlyPrice;

/// What a provider found for the parts that a spec leaves open; empty if all fields are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The label shown with the price: `gpu_8x_a100`, `lease on liqid01`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The hourly price while the resource exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<HourlyPrice>,
    /// The rest, in the provider's own format: [`Self::of`] writes it, [`Self::read`] reads it.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub data: serde_json::Value,
}

impl Finding {
    /// Creates a finding from data in the provider's own format.
    ///
    /// # Errors
    /// If the data cannot be serialized as JSON.
    pub fn of(data: &impl Serialize) -> Result<Self> {
        let data = serde_json::to_value(data)
            .doing(ErrorKind::Internal, || "write the provider's finding as JSON".to_owned())?;
        Ok(Self { data, ..Self::default() })
    }

    /// The provider's data; `None` if there is none.
    ///
    /// # Errors
    /// If the data has another format: a request must not be made from a finding that cannot be read.
    pub fn read<T: serde::de::DeserializeOwned>(&self) -> Result<Option<T>> {
        match &self.data {
            serde_json::Value::Null => Ok(None),
            data => {
                T::deserialize(data).map(Some).doing(ErrorKind::Internal, || "read the provider's finding".to_owned())
            }
        }
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct Own {
        region: String,
    }

    #[test]
    fn a_finding_is_read_back_and_an_empty_one_is_not_an_error() {
        let found = Finding::of(&Own { region: "south".to_owned() }).unwrap();
        let there_and_back: Finding = serde_json::from_str(&serde_json::to_string(&found).unwrap()).unwrap();
        assert_eq!(there_and_back.read::<Own>().unwrap(), Some(Own { region: "south".to_owned() }));
        assert_eq!(Finding::default().read::<Own>().unwrap(), None);
    }

    /// If it counted as empty, the request could differ from the one whose price was shown.
    #[test]
    fn an_unreadable_finding_is_an_error() {
        for data in [json!({ "region": 7 }), json!({}), json!("south"), json!([])] {
            let error = Finding { data, ..Finding::default() }.read::<Own>().unwrap_err();
            assert!(error.to_string().contains("read the provider's finding"), "{error}");
        }
        assert!(Finding::default().is_empty() && Finding { data: Value::Null, ..Finding::default() }.is_empty());
    }
}
