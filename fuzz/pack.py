"""Packs the corpus of a fuzz target: `python3 fuzz/pack.py parse fuzz/corpus/parse` writes `fuzz/corpora/parse.gz`.

Each text follows its length in bytes and a newline. The targets of `lease_` get any bytes. The others get UTF-8: a text
that is not UTF-8 is truncated at the first invalid byte. `python3 fuzz/pack.py --unpack parse folder` writes the files again.
"""

import gzip
import hashlib
import pathlib
import sys

CORPORA = pathlib.Path(__file__).parent / "corpora"


def seen(name: str, raw: bytes) -> bytes:
    if name.startswith("lease_"):
        return raw
    try:
        raw.decode()
        return raw
    except UnicodeDecodeError as error:
        return raw[: error.start]


def pack(name: str, folder: pathlib.Path) -> None:
    texts = sorted({seen(name, path.read_bytes()) for path in folder.iterdir()}, key=lambda text: (len(text), text))
    packed = b"".join(b"%d\n%s" % (len(text), text) for text in texts)
    CORPORA.mkdir(exist_ok=True)
    with open(CORPORA / f"{name}.gz", "wb") as file:
        file.write(gzip.compress(packed, 9, mtime=0))
    print(f"{name}: {len(texts)} texts of {len(packed)} bytes")


def unpack(name: str, folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rest = gzip.decompress((CORPORA / f"{name}.gz").read_bytes())
    while rest:
        length, rest = rest.split(b"\n", 1)
        text, rest = rest[: int(length)], rest[int(length) :]
        (folder / hashlib.sha1(text).hexdigest()).write_bytes(text)


if sys.argv[1] == "--unpack":
    unpack(sys.argv[2], pathlib.Path(sys.argv[3]))
else:
    pack(sys.argv[1], pathlib.Path(sys.argv[2]))
