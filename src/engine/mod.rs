//! Walks a plan.
