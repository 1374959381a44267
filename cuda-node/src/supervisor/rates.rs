//! Limits on the rates of tenants.

use std::num::NonZeroU32;

use cuda_lease::authority::Tenant;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use rustc_hash::FxHashMap;

/// The rates of the stateless submits of tenants. A tenant may submit as many at once as it may in one second.
#[derive(Default)]
pub(super) struct Rates(FxHashMap<Tenant, (u32, DefaultDirectRateLimiter)>);

impl Rates {
    /// Counts a submit of a tenant that has `limit` per second. Returns `false` if it is one too many. A change of the
    /// limit begins a new second.
    pub(super) fn admit(&mut self, tenant: &Tenant, limit: u32) -> bool {
        if limit == u32::MAX {
            return true;
        }
        let Some(allowed) = NonZeroU32::new(limit) else { return false };
        let fresh = || (limit, RateLimiter::direct(Quota::per_second(allowed)));
        let (of, limiter) = self.0.entry(tenant.clone()).or_insert_with(fresh);
        if *of != limit {
            (*of, *limiter) = fresh();
        }
        limiter.check().is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenant_has_its_own_rate() {
        let mut rates = Rates::default();
        let (a, b) = (Tenant::new("a").unwrap(), Tenant::new("b").unwrap());
        // The next one is allowed after half a second.
        assert!(rates.admit(&a, 2) && rates.admit(&a, 2) && !rates.admit(&a, 2));
        assert!(rates.admit(&b, 2));
        assert!((0..1000).all(|_| rates.admit(&a, u32::MAX)));
        assert!(!rates.admit(&b, 0));
        assert!(rates.admit(&a, 3));
    }
}
