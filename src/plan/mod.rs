//! From what is desired, known and observed to a plan. Pure.
