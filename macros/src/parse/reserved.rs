//! Names of the generated struct's own items.

/// The field that holds the module, if variables are declared.
pub(crate) const MODULE_FIELD: &str = "module_of_variables";

/// Names of the generated struct's own items, which no kernel and no variable may have.
pub(crate) const RESERVED: [&str; 10] = [
    "load",
    "for_device",
    "loaded",
    "warm_up",
    "modules",
    "of_module",
    "clone",
    "PTX",
    "SOURCE",
    MODULE_FIELD,
];
