//! PTX of compilers other than NVIDIA's (Triton and GCC), which NVIDIA's assembler accepts.

use crate::args;
use crate::host::Host;

fn kernel(statements: &str) -> Host {
    Host::new(&format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 a) {{
            .reg .pred %p; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %a, %d<9>;
            ld.param.u64 %a, [a];
            {statements}
            ret;
        }}"
    ))
}

#[test]
fn one_value_in_braces() {
    let h = kernel(
        "mov.u32 %r1, %tid.x; setp.lt.u32 %p, %r1, 2;
         mul.wide.u32 %d1, %r1, 8; add.u64 %d1, %a, %d1;
         mov.b32 %r2, 9;
         @%p ld.global.b32 { %r2 }, [ %d1 + 0 ];
         mov.b32 {%r3}, %r2; mov.b32 %r4, {%r3};
         st.global.b32 [ %d1 + 4 ], { %r4 };",
    );
    let a = h.upload(&[5u32, 0, 6, 0, 7, 0]);
    h.run("k", 1, 3, args![a]);
    assert_eq!(h.download::<u32>(a, 6), [5, 5, 6, 6, 7, 9]);
}

#[test]
fn vector_registers() {
    let h = kernel(
        ".reg .v4 .f32 %v, %w<3>; .reg .v2 .u64 %q; .reg .v2 .b32 %s;
         ld.global.v4.f32 %v, [%a];
         mov.v4.f32 %w2, %v;
         mov.v4.f32 %v, { %v.y, %v.x, 0f40000000, %v.z };
         add.f32 %v.z, %v.b, %w2.w;
         st.global.v4.f32 [%a], %v;
         mov.v2.u64 %q, { 1, 2 }; mov.u64 %q.x, %q.y; st.global.v2.u64 [%a+16], %q;
         mov.v2.b32 %s, { 3, 4 }; mov.v2.b32 {%s.x, %s.y}, {%s.y, %s.x};
         setp.eq.u32 %p, %s.x, 3; @%p mov.v2.b32 %s, { 0, 0 };
         mov.v2.b32 {_, %r1}, %s; st.global.v2.b32 [%a+32], {%s.x, %r1};",
    );
    let a = h.upload(&[1f32, 2.0, 4.0, 8.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    h.run("k", 1, 1, args![a]);
    assert_eq!(h.download::<f32>(a, 4), [2.0, 1.0, 10.0, 4.0]);
    assert_eq!(h.download::<u64>(a + 16, 2), [2, 2]);
    assert_eq!(h.download::<u32>(a + 32, 2), [4, 3]);
}

#[test]
fn vectors_of_another_size_are_refused() {
    for wrong in [
        "mov.v2.b32 {%r1, %r2}, %r3;",
        "mov.v2.b32 {%r1, %r2}, {%r3, %r4, %r5, %r6};",
        "mov.v2.pred {%p, %p}, {%p, %p};",
        "ld.global.v2.b32 { %r1 }, [%a];",
        "ld.global.b32 { %r1, %r2 }, [%a];",
        ".reg .v2 .b32 %s; add.u32 %r1, %s, 1;",
        ".reg .v2 .b32 %s; ld.global.v4.b32 %s, [%a];",
    ] {
        let text = format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.entry k(.param .u64 a) {{
                .reg .pred %p; .reg .b32 %r<9>; .reg .b64 %a; {wrong} ret; }}"
        );
        let error = Host::try_new(&text).err().unwrap_or_default();
        assert!(error.contains("a vector of ") || error.contains("no such"), "{wrong}: {error}");
    }
}

#[test]
fn halves_of_the_global_timer() {
    let h = kernel(
        "mov.u32 %r1, %globaltimer_hi; mov.u64 %d1, %globaltimer; mov.u32 %r2, %globaltimer_lo;
         st.global.u64 [%a], %d1; st.global.u32 [%a+8], %r2; st.global.u32 [%a+12], %r1;
         mov.u64 %d2, %current_graph_exec; st.global.u64 [%a+16], %d2;",
    );
    let a = h.upload(&[7u64; 3]);
    h.run("k", 1, 1, args![a]);
    let all = h.download::<u64>(a, 3);
    let low = (all[1] as u32).wrapping_sub(all[0] as u32);
    assert!(low < 1_000_000_000, "{low} ns later");
    let high = (all[0] >> 32).wrapping_sub(all[1] >> 32);
    assert!(high <= 1, "{high}");
    assert_eq!(all[2], 0);
}

/// Before sm_70, the executing lanes are the members of a collective.
#[test]
fn collectives_without_members() {
    let text = |sm: u32| {
        format!(
            ".version 6.3\n.target sm_{sm}\n.address_size 64\n.visible .entry k(.param .u64 a) {{
                .reg .pred %p, %q; .reg .b32 %r<9>; .reg .b64 %a, %d;
                ld.param.u64 %a, [a];
                mov.u32 %r1, %tid.x; mul.wide.u32 %d, %r1, 16; add.u64 %d, %a, %d;
                setp.lt.u32 %p, %r1, 5;
                vote.ballot.b32 %r2, %p;
                setp.ge.u32 %q, %r1, 8;
                mov.b32 %r3, 77; mov.b32 %r4, 78;
                @%q vote.ballot.b32 %r3, !%p;
                @%q bra Odd;
                shfl.bfly.b32 %r4|%p, %r1, 1, 31;
            Odd:
                mov.u32 %r5, %envreg3;
                st.global.v4.b32 [%d], {{%r2, %r3, %r4, %r5}};
                ret;
            }}"
        )
    };
    for sm in [61, 70] {
        let h = Host::new(&text(sm));
        let a = h.upload(&[9u32; 128]);
        h.run("k", 1, 32, args![a]);
        for (lane, found) in h.download::<u32>(a, 128).chunks(4).enumerate() {
            let late = lane >= 8;
            let shuffled = if late { 78 } else { lane as u32 ^ 1 };
            assert_eq!(found, [0x1F, if late { 0xFFFF_FF00 } else { 77 }, shuffled, 0], "{lane}");
        }
    }
}

/// Each element is a separate atomic, but all sources are read before the first result is written.
#[test]
fn vector_atomic_may_swap_registers() {
    let h = Host::new(
        ".version 8.1\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 a) {
            .reg .f32 %f<3>; .reg .b64 %a;
            ld.param.u64 %a, [a];
            mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f40000000;
            atom.global.add.v2.f32 {%f2, %f1}, [%a], {%f1, %f2};
            st.global.v2.f32 [%a+8], {%f1, %f2};
            ret;
        }",
    );
    let a = h.upload(&[4f32, 8.0, 0.0, 0.0]);
    h.run("k", 1, 1, args![a]);
    assert_eq!(h.download::<f32>(a, 4), [5.0, 10.0, 8.0, 4.0]);
}

/// The address must be a multiple of the vector's size, and the whole vector must be in bounds, as on an H200.
#[test]
fn vector_atomic_is_checked_as_one_access() {
    let h = Host::new(
        ".version 8.1\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 a) {
            .reg .f32 %f<3>; .reg .b64 %a;
            ld.param.u64 %a, [a];
            mov.f32 %f1, 0f3F800000;
            red.global.add.v4.f32 [%a], {%f1, %f1, %f1, %f1};
            ret;
        }",
    );
    let a = h.zeros::<f32>(6);
    for (at, found) in
        [(a + 4, "misaligned write of 16 bytes"), (a + 16, "write of 16 bytes out of bounds")]
    {
        let error = h.launch("k", 1, 1, args![at]).unwrap_err().to_string();
        assert!(error.contains(found), "{error}");
    }
    assert_eq!(h.download::<f32>(a, 6), [0.0; 6]);
}

/// The arguments of a call must match the function's parameters.
#[test]
fn call_must_match_the_function() {
    let text = |call: &str| {
        format!(
            ".version 8.1\n.target sm_90\n.address_size 64
            .func (.param .b32 r) f(.param .b32 x) {{ .reg .b32 %r; ld.param.b32 %r, [x]; st.param.b32 [r], %r; ret; }}
            .visible .entry other() {{ ret; }}
            .visible .entry k() {{ .param .b32 a; .param .b64 b; .param .b32 r; .reg .b64 %f;
            st.param.b32 [a], 1; st.param.b64 [b], 1; {call} ret; }}"
        )
    };
    Host::new(&text("call (r), f, (a);")).run("k", 1, 1, &[]);
    for call in ["call (r), f, (b);", "call (r), f;", "call f, (a);", "call (r), f, (a, a);"] {
        let error = Host::try_new(&text(call)).err().unwrap_or_default();
        assert!(error.contains("as the function declares them"), "{call}: {error}");
    }
    // Values in registers must have the width that the function declares, or be constants.
    let in_registers = |call: &str| {
        Host::try_new(&format!(
            ".version 8.1\n.target sm_90\n.address_size 64
            .func (.reg .b64 r) g(.reg .b64 x, .reg .f32 f) {{ mov.b64 r, x; ret; }}
            .visible .entry k() {{ .reg .b32 %r; .reg .b64 %d; .reg .f32 %f; {call} ret; }}"
        ))
    };
    for fine in ["call (%d), g, (%d, %f);", "call (%d), g, (5, 0f3F800000);"] {
        in_registers(fine).unwrap_or_else(|error| panic!("{fine}: {error}")).run("k", 1, 1, &[]);
    }
    for bad in ["call (%d), g, (%r, %f);", "call (%r), g, (%d, %f);", "call (%d), g, (%d, %d);"] {
        assert!(in_registers(bad).is_err(), "{bad}");
    }
    let error = Host::try_new(&text("call other;")).err().unwrap_or_default();
    assert!(error.contains("write a device function"), "{error}");
    let indirect = |address: &str, call: &str| {
        let call = format!(
            "mov.u64 %f, {address}; P: .callprototype (.param .b32 _) _ (.param .b32 _);
             Q: .callprototype (.param .b32 _) _; V: .callprototype _ (.param .b32 _);
             W: .callprototype (.param .b32 _) _ (.param .b64 _); {call}"
        );
        Host::new(&text(&call)).launch("k", 1, 1, &[])
    };
    // Extra arguments and an unused result are permitted.
    for fine in ["call (r), %f, (a), P;", "call %f, (a), V;", "call (r), %f, (b), W;"] {
        indirect("f", fine).unwrap_or_else(|error| panic!("{fine}: {error}"));
    }
    for (address, call, found) in [
        ("f", "call (r), %f, Q;", "call of f with too few or too small arguments"),
        ("other", "call (r), %f, (a), P;", "which is not the address of a device function"),
    ] {
        let error = indirect(address, call).unwrap_err().to_string();
        assert!(error.contains(found), "{call}: {error}");
    }
}

#[test]
fn functions_take_and_return_predicates() {
    let h = Host::new(
        ".version 8.0\n.target sm_80\n.address_size 64
        .func (.reg .pred %o) both(.reg .pred %a, .reg .pred %b) { and.pred %o, %a, %b; ret; }
        .visible .entry k(.param .u64 a) {
            .reg .b64 %a; .reg .b32 %t, %r; .reg .pred %q, %p<4>;
            ld.param.u64 %a, [a]; mov.u32 %t, %tid.x; mov.b32 %r, 0;
            setp.lt.u32 %p0, %t, 60; setp.gt.u32 %p1, %t, 1; setp.eq.u32 %q, %t, 5;
            mov.pred %p2, 0; mov.pred %p3, 1;
            @%q bra L;
            call (%p2), both, (%p0, %p1);
            @%p3 call (%p3), both, (%p2, 1);
            L: @%p2 or.b32 %r, %r, 1; @%p3 or.b32 %r, %r, 2; @%p1 or.b32 %r, %r, 4;
            mad.wide.u32 %a, %t, 4, %a; st.global.b32 [%a], %r;
            ret;
        }",
    );
    let a = h.zeros::<u32>(64);
    h.run("k", 1, 64, args![a]);
    let wanted = (0..64).map(|t| match t {
        5 => 6,
        0 | 1 => 0,
        60.. => 4,
        _ => 7,
    });
    assert_eq!(h.download::<u32>(a, 64), wanted.collect::<Vec<_>>());
}
