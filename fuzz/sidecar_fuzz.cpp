// A manifest of any content ends in an Error or in a sidecar whose every expert can be read, lies in a file of its own
// or apart from all others, and is found by its name. The files that a manifest names are there, all of one size.
//
// Random changes seldom leave a manifest that is JSON, so most changes put a value at the edge of what is legal, or
// that of another place, where a value stands.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "experts/sidecar.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

using sluice::experts::Sidecar;
using sluice::experts::SidecarTensor;

constexpr size_t kFileBytes = 4096;

Sidecar open_text(std::string_view text) {
  return Sidecar::open("S/manifest.json", [&](const std::string& path) {
    const auto bytes = std::as_bytes(std::span(text));
    if (path == "S/manifest.json") return sluice::memory_file(path, {bytes.begin(), bytes.end()});
    if (path.substr(0, 2) != "S/" || path.find('/', 2) != std::string::npos) std::abort();
    return sluice::memory_file(path, std::vector<std::byte>(kFileBytes));
  });
}

// Reads every expert, and claims each of its bytes once.
void read_all(const Sidecar& sidecar) {
  std::map<const sluice::File*, std::vector<bool>> claimed;
  for (const SidecarTensor& tensor : sidecar.tensors()) {
    if (sidecar.find(tensor.layer, tensor.family) != &tensor) std::abort();
    if (tensor.bytes != tensor.shape[1] * sluice::quant::row_bytes(*tensor.format, tensor.shape[0])) std::abort();
    auto& bytes = claimed[tensor.file];
    bytes.resize(kFileBytes);
    std::vector<std::byte> expert(tensor.bytes);
    for (uint64_t e = 0; e < tensor.shape[2]; ++e) {
      const uint64_t offset = tensor.offset_of(e);
      tensor.file->read_at(offset, expert);
      for (uint64_t i = offset; i < offset + tensor.bytes; ++i) {
        if (bytes[i]) std::abort();
        bytes[i] = true;
      }
    }
  }
}

// The values of a JSON text, as far as the eye can tell: what follows a colon, a bracket or a comma.
struct Span {
  size_t begin, end;
};

std::vector<Span> values_of(std::string_view text) {
  std::vector<Span> out;
  for (size_t at = 0; (at = text.find_first_of(":[,", at)) != std::string_view::npos;) {
    const size_t begin = text.find_first_not_of(" \n", ++at);
    if (begin == std::string_view::npos) break;
    const size_t end = std::min(text.find_first_of(",]}\n", begin), text.size());
    if (end > begin) out.push_back({begin, end});
  }
  return out;
}

// Values at the edge of what is legal.
std::vector<std::string> edge_values() {
  std::istringstream words(
      "0 1 2 8 31 32 4095 4096 -1 1.5 1e400 4294967295 4294967296 18446744073709551615 18446744073709551616 null true "
      "false {} [] [32,1,4] \"\" \"..\" \"a/b\" \"layer_1.bin\" \"expert-major\" \"layer_major\" \"q4_0\" \"BF16\" "
      "\"ffn_up_exps\" \"ffn_gate_up_exps\"");
  return {std::istream_iterator<std::string>(words), {}};
}

// For the value at `place`: a number one off, another place's value, or one at the edge.
std::string other_value(std::minstd_rand& random, std::string_view text, const std::vector<Span>& values, Span place) {
  static const std::vector<std::string> kEdges = edge_values();
  const std::string old(text.substr(place.begin, place.end - place.begin));
  int32_t number = 0;
  if (random() % 2 == 0 && std::from_chars(old.data(), old.data() + old.size(), number).ec == std::errc{})
    return std::to_string(int64_t{number} + (random() % 2 == 0 ? 1 : -1));
  if (random() % 2 == 0) return kEdges[random() % kEdges.size()];
  const Span other = values[random() % values.size()];
  return std::string(text.substr(other.begin, other.end - other.begin));
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  std::minstd_rand random(seed);
  std::string text(reinterpret_cast<const char*>(data), size);
  const auto values = values_of(text);
  if (values.empty() || random() % 8 == 0) return LLVMFuzzerMutate(data, size, max_size);
  const Span span = values[random() % values.size()];
  text.replace(span.begin, span.end - span.begin, other_value(random, text, values, span));
  size = std::min(text.size(), max_size);
  std::copy_n(text.begin(), size, data);
  return size;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    read_all(open_text({reinterpret_cast<const char*>(data), size}));
  } catch (const sluice::Error& error) {
    if (error.kind() == sluice::ErrorKind::kInternal) std::abort();
  }
  return 0;
}
