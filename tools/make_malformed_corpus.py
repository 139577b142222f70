#!/usr/bin/env python3
"""Writes the corpus of malformed GGUF files, tests/data/malformed/, and its index.

    tools/make_malformed_corpus.py           write the files
    tools/make_malformed_corpus.py --check   exit 1 if the files in the tree are not what this script writes

One function makes one case. `@case(fragment)` states what the error message must hold; the function returns the bytes of
the file, or a dict of several files of which the first is opened. The function's name is the file's. Cases that the
container room accepts and a room above must refuse are marked `refused_by="model"`. Standard library only.
"""

import pathlib
import struct
import sys

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "malformed"
CASES = []  # (refused_by, name, fragment, function)

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
TYPE_F32, TYPE_Q4_0 = 0, 2
MAX_U64 = 2**64 - 1


def case(fragment, refused_by="container"):
    def register(function):
        CASES.append((refused_by, function.__name__, fragment, function))
        return function
    return register


# --- how a file is put together; every part may be replaced by a wrong one ---

def u32(n): return struct.pack("<I", n)
def u64(n): return struct.pack("<Q", n)
def string(b, length=None):
    b = b.encode() if isinstance(b, str) else b
    return u64(len(b) if length is None else length) + b
def entry(key, kind, payload): return string(key) + u32(kind) + payload
def array(kind, count, elements=b""): return u32(kind) + u64(count) + elements
def tensor(name="t", extents=(8,), kind=TYPE_F32, offset=0, dimensions=None):
    count = len(extents) if dimensions is None else dimensions
    return string(name) + u32(count) + b"".join(map(u64, extents)) + u32(kind) + u64(offset)
def header(entries, tensors, version=3): return b"GGUF" + u32(version) + u64(tensors) + u64(entries)


NAME = entry("general.architecture", STRING, string("llama"))


def model(entries=(NAME,), tensors=(tensor(),), data=bytes(32), alignment=32):
    """A whole file; `tensors` are ready-made entries of the tensor list."""
    out = header(len(entries), len(tensors)) + b"".join(entries) + b"".join(tensors)
    return out + bytes(-len(out) % alignment) + data


def with_entry(key, kind, payload): return model(entries=(NAME, entry(key, kind, payload)))


# --- not GGUF at all ---

@case("the file is empty")
def empty(): return b""

@case("the file ends after 1 bytes; it is truncated")
def one_byte(): return b"G"

@case("version of 4 bytes at offset 4 passes the end of the file (4)")
def magic_only(): return b"GGUF"

@case("is of an unknown kind: it begins with \"ELF?\"")
def magic_unknown(): return b"ELF?" + bytes(60)

@case("bytes swapped (big endian)")
def magic_swapped(): return b"FUGG" + bytes(60)

@case("GGML file from before GGUF")
def looks_like_ggml(): return b"tjgg" + bytes(60)

@case("a safetensors file; convert it")
def looks_like_safetensors(): return u64(56) + b'{"__metadata__":{"format":"pt"}}'.ljust(56)

@case("a zip archive, such as a PyTorch checkpoint")
def looks_like_zip(): return b"PK\x03\x04" + bytes(60)

@case("a Python pickle")
def looks_like_pickle(): return b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M"

@case("a Git LFS pointer")
def looks_like_lfs_pointer():
    return b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 1234567\n"

@case("a web page, not a model")
def looks_like_html(): return b"<!DOCTYPE html>\n<html><head><title>404</title></head></html>\n"

@case("JSON text")
def looks_like_json(): return b'{"error":"Entry not found"}'

@case("compressed with gzip")
def looks_like_gzip(): return b"\x1f\x8b\x08\x00" + bytes(60)

@case("compressed with zstd")
def looks_like_zstd(): return b"\x28\xb5\x2f\xfd" + bytes(60)

@case("compressed with xz")
def looks_like_xz(): return b"\xfd7zXZ\x00" + bytes(58)

@case("a download that did not finish")
def zeros(): return bytes(64)


# --- version and counts ---

@case("GGUF version 0 is not read")
def version_0(): return b"GGUF" + u32(0) + bytes(16)

@case("GGUF version 1 is not read, only 2 and 3; convert the original model again")
def version_1(): return b"GGUF" + u32(1) + u32(0) + u32(0)

@case("GGUF version 4 is newer than 3")
def version_future(): return header(0, 0, version=4)

@case("version 0x03000000 shows swapped bytes (big endian)")
def version_swapped(): return b"GGUF" + struct.pack(">IQQ", 3, 0, 0)

@case("number of metadata entries of 8 bytes at offset 16 passes the end of the file (16)")
def counts_missing(): return header(0, 0)[:16]

@case("1000000000 x tensor entries of at least 33 bytes")
def tensor_count_huge(): return header(0, 10**9) + bytes(64)

@case("18446744073709551615 x tensor entries")
def tensor_count_negative(): return header(0, MAX_U64) + bytes(64)

@case("1000000000 x metadata entries of at least 14 bytes")
def entry_count_huge(): return header(10**9, 0) + bytes(64)

@case("18446744073709551615 x metadata entries")
def entry_count_negative(): return header(MAX_U64, 0) + bytes(64)

@case("1317624576693539402 x metadata entries")
def entry_count_product_wraps(): return header(2**64 // 14 + 1, 0) + bytes(64)

@case("metadata entry 2 of 2")
def entry_count_too_large(): return header(2, 0) + NAME

@case("2 x tensor entries of at least 33 bytes at offset 69")
def tensor_count_too_large(): return header(1, 2) + NAME + tensor() + bytes(8)


# --- keys ---

@case("metadata entry 2 of 2: the key is empty")
def key_empty(): return with_entry("", U32, u32(1))

@case("key general.architecture: occurs twice")
def key_twice(): return model(entries=(NAME, NAME))

@case("the key \"general.\N{REPLACEMENT CHARACTER}\" is not UTF-8")
def key_not_utf8(): return with_entry(b"general.\xff", U32, u32(1))

@case("the key \"a\\x1b[31mb\" holds a control character")
def key_with_escape(): return with_entry("a\x1b[31mb", U32, u32(1))

@case("has 65536 bytes, more than the limit of 65535")
def key_too_long(): return with_entry("k" * 65536, U32, u32(1))

@case("key of 4096 bytes at offset 32 passes the end of the file (96)")
def key_past_end(): return header(1, 0) + string("a" * 64, length=4096)

@case("key of 18446744073709551615 bytes at offset 32")
def key_length_negative(): return header(1, 0) + string("a" * 64, length=MAX_U64)


# --- values ---

@case("key x: string of 1000000 bytes at offset")
def string_past_end(): return with_entry("x", STRING, string("abc", length=10**6))

@case("key x: string of 18446744073709551615 bytes")
def string_length_negative(): return with_entry("x", STRING, string("abc", length=MAX_U64))

@case("key x: value type 13 is unknown; 0 to 12 are defined")
def value_type_unknown(): return with_entry("x", 13, u64(0))

@case("key x: value type 4294967295 is unknown")
def value_type_negative(): return with_entry("x", 2**32 - 1, u64(0))

@case("key x: a bool is 2; only 0 and 1 are allowed")
def bool_is_two(): return with_entry("x", BOOL, b"\x02")

@case("key x: a bool is 255")
def bool_in_array_is_255(): return with_entry("x", ARRAY, array(BOOL, 3, b"\x00\x01\xff"))

@case("key x: an array of arrays is not read")
def array_of_arrays(): return with_entry("x", ARRAY, array(ARRAY, 1, array(U8, 1, b"\x01")))

@case("key x: value type 99 is unknown")
def array_type_unknown(): return with_entry("x", ARRAY, array(99, 1, u64(0)))

@case("key x: 1000000000 x array elements of at least 4 bytes")
def array_past_end(): return with_entry("x", ARRAY, array(U32, 10**9, u64(0)))

@case("key x: 4611686018427387904 x array elements of at least 4 bytes")
def array_product_wraps(): return with_entry("x", ARRAY, array(U32, 2**62, u64(0)))

@case("key x: 18446744073709551615 x array elements of at least 1 bytes")
def array_count_negative(): return with_entry("x", ARRAY, array(I8, MAX_U64, u64(0)))

@case("key x: 1000000000 x array elements of at least 8 bytes")
def array_of_strings_past_end(): return with_entry("x", ARRAY, array(STRING, 10**9, string("a")))

@case("key x: string of 281474976710656 bytes")
def string_in_array_past_end(): return with_entry("x", ARRAY, array(STRING, 2, string("a") + string("b", length=2**48)))


# --- alignment ---

@case("key general.alignment: is str \"32\", but an integer")
def alignment_is_string(): return with_entry("general.alignment", STRING, string("32"))

@case("key general.alignment: is i32 -32, but an integer from 0")
def alignment_negative(): return with_entry("general.alignment", I32, struct.pack("<i", -32))

@case("general.alignment is 0; a power of two")
def alignment_zero(): return with_entry("general.alignment", U32, u32(0))

@case("general.alignment is 48; a power of two")
def alignment_not_power_of_two(): return with_entry("general.alignment", U32, u32(48))

@case("general.alignment is 2147483648; a power of two up to 2097152")
def alignment_huge(): return with_entry("general.alignment", U32, u32(2**31))

@case("general.alignment is 9223372036854775808; a power of two up to 2097152")
def alignment_huge_u64(): return with_entry("general.alignment", U64, u64(2**63))


# --- the tensor list ---

@case("tensor 1 of 1: the tensor name is empty")
def tensor_name_empty(): return model(tensors=(tensor(""),))

@case("has 64 bytes, more than the limit of 63")
def tensor_name_too_long(): return model(tensors=(tensor("n" * 64),))

@case("the tensor name \"w\N{REPLACEMENT CHARACTER}\" is not UTF-8")
def tensor_name_not_utf8(): return model(tensors=(tensor(b"w\xc3"),))

@case("tensor t occurs twice")
def tensor_name_twice(): return model(tensors=(tensor(), tensor(offset=32)), data=bytes(64))

@case("tensor 1 of 1: tensor name of 4096 bytes")
def tensor_name_past_end(): return model(tensors=(string("t", length=4096) + bytes(40),))

@case("tensor t: has 0 dimensions; 1 to 4 are allowed")
def dimensions_none(): return model(tensors=(tensor(extents=()) + bytes(8),))

@case("tensor t: has 5 dimensions; 1 to 4 are allowed")
def dimensions_five(): return model(tensors=(tensor(extents=(8, 1, 1, 1, 1)),))

@case("tensor t: has 4294967295 dimensions")
def dimensions_negative(): return model(tensors=(tensor(dimensions=2**32 - 1),))

@case("tensor t: dimension 1 is 0")
def dimension_zero(): return model(tensors=(tensor(extents=(8, 0)),))

@case("tensor t: dimension 0 is -8")
def dimension_negative(): return model(tensors=(tensor(extents=(2**64 - 8,)),))

@case("tensor t: 4294967296 x 4294967296 x 4294967296 weights of F32 do not fit in 63 bits")
def dimensions_product_wraps(): return model(tensors=(tensor(extents=(2**32, 2**32, 2**32)),))

@case("tensor t: 2305843009213693952 weights of F32 do not fit in 63 bits")
def bytes_product_wraps(): return model(tensors=(tensor(extents=(2**61,)),))

@case("tensor t: offset 128 + size 17592186044420 passes the end of the file")
def dimension_far_past_end(): return model(tensors=(tensor(extents=(2**42 + 1,)),))

@case("tensor t: rows of 33 weights are no whole number of Q4_0 blocks of 32")
def row_is_no_whole_number_of_blocks(): return model(tensors=(tensor(extents=(33, 32), kind=TYPE_Q4_0),), data=bytes(1024))

@case("tensor t: type 4 (Q4_2) was removed from GGUF")
def type_removed(): return model(tensors=(tensor(kind=4),))

@case("tensor t: type 31 (Q4_0_4_4) was removed from GGUF")
def type_removed_repacked(): return model(tensors=(tensor(kind=31),))

@case("tensor t: type 26 (I32) is not a format for weights")
def type_integer(): return model(tensors=(tensor(kind=26),))

@case("tensor t: type 15 (Q8_K) is for activations")
def type_for_activations(): return model(tensors=(tensor(extents=(256,), kind=15),))

@case("tensor t: type 9999 is unknown")
def type_unknown(): return model(tensors=(tensor(kind=9999),))


# --- where tensor data lies ---

@case("tensor t: offset 16 is no multiple of the alignment")
def offset_misaligned(): return model(tensors=(tensor(offset=16),), data=bytes(64))

@case("tensor u: offset 0 overlaps the tensor before; 32 is expected")
def offset_overlaps(): return model(tensors=(tensor(), tensor("u")), data=bytes(64))

@case("tensor t: offset 32 leaves a gap; 0 is expected")
def offset_leaves_gap(): return model(tensors=(tensor(offset=32),), data=bytes(64))

@case("tensor t: offset 18446744073709551584 leaves a gap; 0 is expected")
def offset_wraps(): return model(tensors=(tensor(offset=2**64 - 32),))

@case("tensor u: offset 192 + size 32 passes the end of the file (208); the file is truncated, download it again")
def data_truncated(): return model(tensors=(tensor(), tensor("u", offset=32)), data=bytes(48))

@case("tensor t: offset 128 + size 32 passes the end of the file (128)")
def data_missing(): return model(data=b"")

@case("offset 96 + size 32 passes the end of the file (86)")
def padding_missing(): return header(0, 1) + tensor("a name that ends off alignment")

@case("tensor entries of 33 bytes at offset 69 passes the end of the file (78)")
def tensor_list_truncated(): return model(data=b"", alignment=1)[:-24]

@case("string of 5 bytes at offset 64 passes the end of the file (66)")
def metadata_truncated(): return model()[:66]


# --- split models ---

def split_entries(number, count, tensors):
    return (entry("split.no", U16, struct.pack("<H", number)), entry("split.count", U16, struct.pack("<H", count)),
            entry("split.tensors.count", I32, struct.pack("<i", tensors)))

def part(number, count=2, tensors=2, name=None):
    return model(entries=(NAME,) * (number == 0) + split_entries(number, count, tensors),
                 tensors=(tensor(name or "tu"[number % 2]),))

def two_parts(first, second):
    """The files of a split model; names are completed by the name of the case."""
    return {"-00001-of-00002": first, "-00002-of-00002": second}

@case("part 2 of 2 of the model can't be opened")
def split_part_missing(): return {"-00001-of-00002": part(0)}

@case("part 2 of 2 of a split model; open the first part")
def split_second_part_opened(): return {"-00002-of-00002": part(1)}

@case("says that it is part 1 of 2 of a model with 2 tensors, but part 2 of 2 of one with 2 is needed")
def split_number_wrong(): return two_parts(part(0), part(0))

@case("says that it is part 2 of 3 of a model with 2 tensors")
def split_count_mixed(): return two_parts(part(0), part(1, count=3))

@case("says that it is part 2 of 2 of a model with 9 tensors")
def split_tensor_count_mixed(): return two_parts(part(0), part(1, tensors=9))

@case("split.tensors.count is 3, but the 2 parts hold 2 tensors")
def split_tensor_count_wrong(): return two_parts(part(0, tensors=3), part(1, tensors=3))

@case("is not part of a split model, though its name says so")
def split_part_is_whole_model(): return two_parts(part(0), model())

@case("tensor t occurs twice")
def split_tensor_twice(): return two_parts(part(0), part(1, name="t"))

@case("the file is empty")
def split_part_empty(): return two_parts(part(0), b"")

@case("its name does not end in -00001-of-00002.gguf")
def split_renamed(): return part(0)

@case("its name does not end in -00001-of-00003.gguf")
def split_name_contradicts(): return {"-00001-of-00002": part(0, count=3)}

@case("key split.no is missing")
def split_number_missing(): return model(entries=(NAME,) + split_entries(0, 2, 1)[1:])

@case("split.count is 4000000000; up to 99999 files are possible")
def split_count_huge(): return with_entry("split.count", U32, u32(4 * 10**9))

@case("key split.count: is str \"2\", but an integer")
def split_count_is_string(): return with_entry("split.count", STRING, string("2"))

@case("key split.tensors.count: is i32 -1, but an integer from 0")
def split_tensor_count_negative(): return {"-00001-of-00002": part(0, tensors=-1)}


def corpus():
    """File name -> bytes, the index among them."""
    files, index = {}, ["# refused by\tfile to open\tfragment of the error; written by tools/make_malformed_corpus.py"]
    for refused_by, name, fragment, make in CASES:
        made = make()
        parts = made if isinstance(made, dict) else {"": made}
        for suffix, content in parts.items():
            files[f"{name}{suffix}.gguf"] = content
        index.append(f"{refused_by}\t{name}{next(iter(parts))}.gguf\t{fragment}")
    files["index.tsv"] = "\n".join(index + [""]).encode()
    return files


def main():
    files = corpus()
    if sys.argv[1:] == ["--check"]:
        found = {p.name: p.read_bytes() for p in FOLDER.iterdir()}
        wrong = sorted(name for name in files.keys() | found.keys() if files.get(name) != found.get(name))
        if wrong:
            sys.exit("not what tools/make_malformed_corpus.py writes: " + ", ".join(wrong))
        return
    if sys.argv[1:]:
        sys.exit(__doc__)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.iterdir():
        old.unlink()
    for name, content in files.items():
        (FOLDER / name).write_bytes(content)
    print(f"{len(CASES)} cases, {len(files)} files, {sum(map(len, files.values()))} bytes in {FOLDER}")


if __name__ == "__main__":
    main()
