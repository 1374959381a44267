//! Sessions of leases: frames between the connections of a client, which come and go, and the worker of the lease.
//!
//! A [`session::Session`] has two lanes ([`lane`]). It fetches the code that its worker needs ([`module_code`]), and
//! waits for its turn if the leases of the device take turns ([`turns`]). `leases` creates sessions, and `connection`
//! attaches streams to them.

pub(super) mod lane;
pub(super) mod module_code;
pub(super) mod session;
pub(super) mod turns;
