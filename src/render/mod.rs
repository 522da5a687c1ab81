//! The layered data files (playbooks, templates) and their rendering.
