//! loom treats sequentially consistent accesses as acquire and release only, so it explores executions that are
//! impossible. These types add a `SeqCst` fence before a `SeqCst` load and after a `SeqCst` store or read-modify-write,
//! as compilers do on most machines. If two threads each write and then read the other's value, at least one sees the
//! other's write.

pub use loom::sync::atomic::{Ordering, fence};

fn before(order: Ordering) -> Ordering {
    if matches!(order, Ordering::SeqCst) {
        fence(Ordering::SeqCst);
    }
    order
}

fn after<T>(order: Ordering, value: T) -> T {
    if matches!(order, Ordering::SeqCst) {
        fence(Ordering::SeqCst);
    }
    value
}

macro_rules! atomics {
    ($($name:ident: $value:ty;)*) => {$(
        #[derive(Debug, Default)]
        pub struct $name(loom::sync::atomic::$name);

        impl $name {
            #[track_caller]
            pub fn new(value: $value) -> Self {
                Self(loom::sync::atomic::$name::new(value))
            }

            #[track_caller]
            pub fn load(&self, order: Ordering) -> $value {
                self.0.load(before(order))
            }

            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                after(order, self.0.store(value, order));
            }

            #[track_caller]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                after(order, self.0.swap(value, order))
            }

            #[track_caller]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                after(success, self.0.compare_exchange(current, new, success, failure))
            }
        }
    )*};
}

macro_rules! integers {
    ($($name:ident: $value:ty;)*) => {
        atomics! { $($name: $value;)* }
        $(impl $name {
            #[track_caller]
            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                after(order, self.0.fetch_add(value, order))
            }

            #[track_caller]
            pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                after(order, self.0.fetch_sub(value, order))
            }

            #[track_caller]
            pub fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                after(order, self.0.fetch_or(value, order))
            }

            #[track_caller]
            pub fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                after(order, self.0.fetch_max(value, order))
            }
        })*
    };
}

atomics! { AtomicBool: bool; }
integers! {
    AtomicU32: u32;
    AtomicU64: u64;
    AtomicUsize: usize;
}
