//! Errors for misuse that would otherwise hang or abort. The lowest layer: it uses `cuda-core` only.

use cuda_core::Error;

#[cold]
pub(crate) fn too_many_nested_boxes(limit: usize) -> Error {
    let detail = format!(
        "more than {limit} boxes are nested in one operation; use `iterate`, `in_order` or `script` for loops and \
         long chains"
    );
    Error::Misuse { what: "nested `boxed` operations".into(), detail }
}

#[cold]
pub(crate) fn shared_awaits_itself() -> Error {
    let detail = "it waits for its own result, which never comes; remove the clone of the operation from its own steps";
    Error::Misuse { what: "a `shared` operation".into(), detail: detail.into() }
}

#[cold]
pub(crate) fn policy_requests_itself(address: &str) -> Error {
    let detail = format!(
        "it was requested by its own constructor; use the streams of `{address}` in the closure of \
         `set_device_policy`, not its policy"
    );
    Error::Misuse { what: "a device policy".into(), detail }
}

#[cold]
pub(crate) fn blocks_in_waker() -> Error {
    let detail = "it runs in a waker, on the thread that would have to wake it; wake a task and run the operation there";
    Error::Misuse { what: "a blocking run".into(), detail: detail.into() }
}
