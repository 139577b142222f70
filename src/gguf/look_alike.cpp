#include "gguf/look_alike.h"

#include "gguf/value.h"

namespace sluice::gguf {

using namespace std::string_view_literals;

namespace {

struct LookAlike {
  std::string_view start;
  std::string_view explanation;
};

// The first match counts.
constexpr LookAlike kLookAlikes[] = {
    {"FUGG"sv, "a GGUF file with its bytes swapped (big endian); get the little-endian file"sv},
    {"lmgg"sv, "a GGML file from before GGUF (2023); convert the original model to GGUF"sv},
    {"fmgg"sv, "a GGML file from before GGUF (2023); convert the original model to GGUF"sv},
    {"tjgg"sv, "a GGML file from before GGUF (2023); convert the original model to GGUF"sv},
    {"algg"sv, "a GGML adapter from before GGUF (2023); convert the original to GGUF"sv},
    {"PK\x03\x04"sv, "a zip archive, such as a PyTorch checkpoint; convert it to GGUF"sv},
    {"\x80\x02"sv, "a Python pickle, such as an old PyTorch checkpoint; convert it to GGUF"sv},
    {"version https://git-lfs"sv, "a Git LFS pointer, not the model itself; run git lfs pull, or download the file"sv},
    {"<"sv, "a web page, not a model; the download got a page in its place, use the link of the file itself"sv},
    {"{"sv, "JSON text, such as a config or an error message; name the .gguf file"sv},
    {"\x1F\x8B"sv, "compressed with gzip; decompress it first"sv},
    {"\x28\xB5\x2F\xFD"sv, "compressed with zstd; decompress it first"sv},
    {"\xFD\x37zXZ"sv, "compressed with xz; decompress it first"sv},
    {"\0\0\0\0\0\0\0\0"sv, "empty space reserved by a download that did not finish; download it again"sv},
};

// A u64 length below 4 GiB, then a JSON object.
bool looks_like_safetensors(std::string_view head) {
  return head.size() > 8 && head.substr(4, 4) == "\0\0\0\0"sv && head.substr(8, 1) == "{"sv;
}

}  // namespace

std::string explain_not_gguf(std::string_view head) {
  if (looks_like_safetensors(head)) return "a safetensors file; convert it to GGUF";
  for (const auto& [start, explanation] : kLookAlikes) {
    if (head.starts_with(start)) return std::string(explanation);
  }
  return "of an unknown kind: it begins with \"" + printable(head.substr(0, 4)) + "\", not \"GGUF\"; name a .gguf file";
}

}  // namespace sluice::gguf
