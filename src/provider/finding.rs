//! What a provider found, on its way through the plan and back to it.

use serde::{Deserialize, Serialize};

use crate::error::{Doing as _, ErrorKind, Result};
use crate::money::HourlyPrice;

/// What a provider found for what a spec leaves open. Nothing when all of it is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What a person calls it when its price is told: `gpu_8x_a100`, `lease on liqid01`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// What it costs for as long as it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<HourlyPrice>,
    /// The rest, in the provider's own form: [`Self::of`] writes it, [`Self::read`] reads it.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub data: serde_json::Value,
}

impl Finding {
    /// What was found, in the provider's own form.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn of(data: &impl Serialize) -> Result<Self> {
        let data = serde_json::to_value(data).doing(ErrorKind::Internal, || "write down what was found".to_owned())?;
        Ok(Self { data, ..Self::default() })
    }

    /// What was found; `None` when nothing was.
    ///
    /// # Errors
    /// When it is not of this form: what was asked for by other words than these is not asked for at all.
    pub fn read<T: serde::de::DeserializeOwned>(&self) -> Result<Option<T>> {
        match &self.data {
            serde_json::Value::Null => Ok(None),
            data => T::deserialize(data).map(Some).doing(ErrorKind::Internal, || "read what was found".to_owned()),
        }
    }

    /// Nothing was found.
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
    fn who_wrote_it_reads_it_and_nothing_found_is_no_error() {
        let found = Finding::of(&Own { region: "south".to_owned() }).unwrap();
        let there_and_back: Finding = serde_json::from_str(&serde_json::to_string(&found).unwrap()).unwrap();
        assert_eq!(there_and_back.read::<Own>().unwrap(), Some(Own { region: "south".to_owned() }));
        assert_eq!(Finding::default().read::<Own>().unwrap(), None);
    }

    /// Taken for nothing, another thing would be asked for than what somebody was told the price of.
    #[test]
    fn what_cannot_be_read_is_an_error() {
        for data in [json!({ "region": 7 }), json!({}), json!("south"), json!([])] {
            let error = Finding { data, ..Finding::default() }.read::<Own>().unwrap_err();
            assert!(error.to_string().contains("read what was found"), "{error}");
        }
        assert!(Finding::default().is_empty() && Finding { data: Value::Null, ..Finding::default() }.is_empty());
    }
}
