//! Playbooks: data that brings a host to a state, compiled into one shell program per stage.
