//! The memory charge: a request that is refused takes nothing from others, not even for a moment.

use std::sync::Arc;

use ::loom::thread;

use super::check;
use crate::runtime::MemoryCharge;

#[test]
fn refused_charge_does_not_refuse_a_charge_that_fits() {
    check(None, || {
        let charge = Arc::new(MemoryCharge::new(2));
        let greedy = thread::spawn({
            let charge = charge.clone();
            move || assert!(charge.charge(u64::MAX).is_err() && charge.charge(3).is_err())
        });
        charge.charge(1).unwrap();
        charge.charge(1).unwrap();
        greedy.join().unwrap();
        assert!(charge.charge(1).is_err());
        charge.refund(2);
        charge.charge(2).unwrap();
    });
}
