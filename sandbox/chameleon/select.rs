//! Host selection of a reservation: the expression language of `resource_properties`.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::super::answer::Answer;

/// One clause: `["==", "$node_name", "liqid01"]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Clause {
    operator: String,
    property: String,
    value: String,
}

/// Parses `resource_properties` or `hypervisor_properties`; an empty text selects every host.
pub(super) fn read(text: &str) -> Result<Vec<Clause>, Answer> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let malformed = |shown: &str| Answer::blazar(400, format!("Malformed requirements {shown}"));
    let value: Value = serde_json::from_str(text).map_err(|_| malformed(text))?;
    clauses(&value).map_err(|part| malformed(&python(part)))
}

/// Keeps only the first clause of nested lists, as the real service does.
fn clauses(value: &Value) -> Result<Vec<Clause>, &Value> {
    let Value::Array(parts) = value else { return Err(value) };
    if parts.is_empty() {
        return Ok(Vec::new());
    }
    if let Some(clause) = clause(parts) {
        return Ok(vec![clause]);
    }
    if parts.len() < 2 || parts[0] != "and" {
        return Err(value);
    }
    let mut all = Vec::new();
    for part in &parts[1..] {
        all.push(clauses(part)?.into_iter().next().ok_or(value)?);
    }
    Ok(all)
}

fn clause(parts: &[Value]) -> Option<Clause> {
    let [operator, property, value] = parts else { return None };
    let (operator, property, value) = (operator.as_str()?, property.as_str()?, value.as_str()?);
    let known = ["==", "=", "!=", ">=", "<=", ">", "<"].contains(&operator);
    let property = property.strip_prefix('$').filter(|name| !name.is_empty())?;
    (known && !value.is_empty()).then(|| Clause {
        operator: if operator == "=" { "==".to_owned() } else { operator.to_owned() },
        property: property.to_owned(),
        value: value.to_owned(),
    })
}

/// Whether any host has the clause's property.
pub(super) fn is_known(clause: &Clause, hosts: &[Map<String, Value>]) -> bool {
    hosts.iter().any(|host| host.contains_key(&clause.property))
}

/// Whether a host matches the clause; strings are compared as strings, so "10" is less than "9".
pub(super) fn holds(clause: &Clause, host: &Map<String, Value>) -> bool {
    let Some(value) = host.get(&clause.property) else { return false };
    let order = match value {
        Value::Number(number) => {
            let asked: f64 = clause.value.parse().unwrap_or(0.0);
            number.as_f64().unwrap_or(0.0).partial_cmp(&asked).unwrap_or(Ordering::Equal)
        }
        Value::String(text) => text.as_str().cmp(&clause.value),
        other => other.to_string().as_str().cmp(&clause.value),
    };
    match clause.operator.as_str() {
        "==" => order.is_eq(),
        "!=" => order.is_ne(),
        ">=" => order.is_ge(),
        "<=" => order.is_le(),
        ">" => order.is_gt(),
        _ => order.is_lt(),
    }
}

/// Formats a value as Python's `repr` does.
fn python(value: &Value) -> String {
    match value {
        Value::String(text) => format!("'{text}'"),
        Value::Array(parts) => format!("[{}]", parts.iter().map(python).collect::<Vec<_>>().join(", ")),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Null => "None".to_owned(),
        other => other.to_string(),
    }
}
