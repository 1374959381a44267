//! Modules, and the limits that their kernels declare.

use cuda_core::protocol::Occupancy;

use super::*;

/// Asks for the occupancy of a kernel with these directives.
fn occupancy(directives: &str) -> Occupancy {
    let d = Device::new(1);
    let header = ".version 7.0\n.target sm_70\n.address_size 64\n";
    d.client.load(ModuleId(2), &format!("{header}.visible .entry k() {directives} {{ ret; }}"));
    let function = FunctionId { module: ModuleId(2), entry: 0 };
    let config = LaunchConfig::new(1, 32);
    match d.client.ask(Request::Occupancy { function, config }).unwrap() {
        Reply::Occupancy(occupancy) => occupancy,
        other => panic!("{other:?}"),
    }
}

#[test]
fn occupancy_is_limited_by_the_declared_block() {
    let limits = |directives| {
        let found = occupancy(directives);
        (found.kernel.max_threads, found.suggested_block)
    };
    assert_eq!(limits(""), (1024, LaunchConfig::DEFAULT_BLOCK));
    assert_eq!(limits(".maxntid 16, 4"), (64, 64));
    assert_eq!(limits(".reqntid 512"), (512, 512));
    // Their products do not fit 32 bits, or not even 64.
    for directives in [".maxntid 65536, 65536", ".maxntid 4294967295, 4294967295, 4294967295"] {
        assert_eq!(limits(directives), (1024, LaunchConfig::DEFAULT_BLOCK), "{directives}");
    }
    assert_eq!(limits(".reqntid 65536, 65536"), (1024, 1024));
    assert_eq!(limits(".maxntid 0"), (1, 1));
}

/// A quadratic search for the kernels would take minutes.
#[test]
fn module_of_many_kernels_is_loaded() {
    let d = Device::new(1);
    let kernels: String = (0..200_000).map(|i| format!(".entry k{i:06}() {{ ret; }}\n")).collect();
    let header = ".version 7.0\n.target sm_70\n.address_size 64\n";
    d.client.load(ModuleId(2), &format!("{header}{kernels}"));
    let function = FunctionId { module: ModuleId(2), entry: 199_999 };
    let asked = Request::Occupancy { function, config: LaunchConfig::new(1, 32) };
    assert!(d.client.ask(asked).is_ok());
}
