#!/usr/bin/env python3
"""Lists the instructions of the sweep: instructions.py PTXAS >instructions.txt

They are all approximate functions, divisions and roots, and all forms of `cvt` that ptxas accepts for sm_90.
"""
import itertools
import re
import subprocess
import sys
import tempfile

INTS = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"]
FLOATS = ["f16", "bf16", "f32", "f64"]
WIDTH = {"8": "r", "16": "h", "32": "r", "64": "d"}
WIDTHS = {"f16x2": "r", "bf16x2": "r", "tf32": "r", "e4m3x2": "h", "e5m2x2": "h"}


def functions():
    for ftz in ("", ".ftz"):
        for name in ("rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos"):
            yield f"{name}.approx{ftz}.f32", "f32"
        for how in (".approx", ".full", ".rn", ".rz", ".rm", ".rp"):
            yield f"div{how}{ftz}.f32", "f32 f32"
        for name, how in itertools.product(("rcp", "sqrt"), (".rn", ".rz", ".rm", ".rp")):
            yield f"{name}{how}{ftz}.f32", "f32"
    for how in (".rn", ".rz", ".rm", ".rp"):
        yield f"div{how}.f64", "f64 f64"
        yield f"rcp{how}.f64", "f64"
        yield f"sqrt{how}.f64", "f64"
    # Divisions, in all rounding modes.
    for how, sources in itertools.product((".rn", ".rz", ".rm", ".rp"), (("mul", 2), ("add", 2), ("fma", 3))):
        name, count = sources
        yield f"{name}{how}.f64", " ".join(["f64"] * count)
        for ftz, sat in itertools.product(("", ".ftz"), ("", ".sat")):
            yield f"{name}{how}{ftz}{sat}.f32", " ".join(["f32"] * count)
    yield from (("rcp.approx.ftz.f64", "f64"), ("rsqrt.approx.ftz.f64", "f64"), ("rsqrt.approx.f64", "f64"))
    yield "tanh.approx.f32", "f32"
    for ty in ("f16", "f16x2", "bf16", "bf16x2"):
        yield f"tanh.approx.{ty}", ty
        yield f"ex2.approx{'.ftz' if ty[0] == 'b' else ''}.{ty}", ty


def conversions():
    rounds = ["", ".rn", ".rz", ".rm", ".rp", ".rni", ".rzi", ".rmi", ".rpi", ".rna"]
    ways = [f"{a}{b}{c}{d}" for a, b, c, d in itertools.product(
        rounds, ("", ".ftz"), ("", ".sat", ".satfinite"), ("", ".relu"))]
    for way, to, ty in itertools.product(ways, INTS + FLOATS + ["tf32"], INTS + FLOATS):
        yield f"cvt{way}.{to}.{ty}", ty
    for way, to in itertools.product(ways, ("f16x2", "bf16x2", "e4m3x2", "e5m2x2")):
        yield f"cvt{way}.{to}.f32", "f32 f32"
    for way, f8, two in itertools.product(ways, ("e4m3x2", "e5m2x2"), ("f16x2", "bf16x2")):
        yield f"cvt{way}.{f8}.{two}", two
        yield f"cvt{way}.{two}.{f8}", f8
    for to, ty in itertools.product(("u2", "s2", "u4", "s4", "u8", "s8", "u16", "s16"), ("s32", "u32")):
        yield f"cvt.pack.sat.{to}.{ty}", f"{ty} {ty}"
        yield f"cvt.pack.sat.{to}.{ty}.b32", f"{ty} {ty} b32"


def register(ty):
    return WIDTHS.get(ty) or WIDTH[re.sub(r"\D*", "", ty)]


def line(name, sources):
    to = "b32" if ".pack." in name else re.search(r"\.((?:tf|e\dm|[usbf]|bf)\d+(?:x2)?)", name).group(1)
    operands = [f"{register(ty)}{i}" for i, ty in enumerate([to, *sources.split()])]
    return f"{name} {', '.join(operands)};"


def accepted(ptxas, forms):
    registers = " ".join(f".reg .b{n} {c}0, {c}1, {c}2, {c}3;" for c, n in (("h", 16), ("r", 32), ("d", 64)))
    head = f".version 8.4\n.target sm_90\n.address_size 64\n.entry k() {{ {registers}\n"
    while True:
        with tempfile.NamedTemporaryFile("w", suffix=".ptx") as f:
            f.write(head + "\n".join(line(*form) for form in forms) + "\nret; }\n")
            f.flush()
            run = subprocess.run([ptxas, "-arch=sm_90", f.name, "-o", "/dev/null"], capture_output=True, text=True)
        bad = {int(n) - 5 for n in re.findall(r"line (\d+)", run.stderr)}
        if not bad:
            return forms
        forms = [form for i, form in enumerate(forms) if i not in bad]


for form in accepted(sys.argv[1], [*functions(), *conversions()]):
    print(*form)
