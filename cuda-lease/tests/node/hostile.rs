//! Clients that break the rules.
