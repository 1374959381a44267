//! The streams of a connection: requests about leases ([`requests`]), the commands and events of a session ([`lanes`]),
//! and code ([`blob`]). [`replies`] reads what the node answers. `connection` and `submit` open them.

pub(super) mod blob;
pub(super) mod lanes;
pub(super) mod replies;
pub(super) mod requests;
