// Traces: which experts each token of a text used, recorded by `sluice trace` and replayed by `sluice simulate`. No
// model is needed to replay one.
//
// A trace file begins with one line of JSON:
//
//   {"sluice_trace":1,"architecture":"qwen35moe","n_layers":40,"n_experts":256,"experts_used":8,"tokens":2000,
//    "expert_bytes":[1769472,...],"form":"lines"}
//
// n_layers counts the layers that have experts, which are numbered from 0. expert_bytes, which may be missing, has one
// expert's bytes for each of them. What follows is in one of three forms:
//
//   lines    a line {"pos":0,"layer":0,"experts":[3,17,...]} for each token and, within it, each layer; best expert
//   first u8, u16  only the experts' numbers, in the same order, one byte each, or two with the lower first
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"

namespace sluice::experts {

struct Trace {
  std::string architecture;
  uint32_t n_layers = 0, n_experts = 0, top_k = 0;
  std::vector<uint64_t> expert_bytes;  // [n_layers]; empty: not known
  std::vector<uint16_t> experts;       // [tokens, n_layers, top_k]

  size_t tokens() const { return n_layers == 0 ? 0 : experts.size() / (size_t{n_layers} * top_k); }
  // The experts of a token in a layer, [top_k].
  std::span<const uint16_t> at(size_t token, uint32_t layer) const {
    return std::span(experts).subspan((token * n_layers + layer) * top_k, top_k);
  }
  // The tokens [first, end) as a trace of their own.
  Trace part(size_t first, size_t end) const;
};

enum class TraceForm { kLines, kBinary };

// Throws Error(kFormat) that names file, line and field, for anything that is not as above: a field that is missing,
// unknown, of another type or out of range, an expert twice, a line out of order, too much or too little of anything.
// Error(kIo).
Trace read_trace(const File& file);

// Writes and commits `out`. Throws Error(kIo), leaving what was at its path. kBinary takes one byte an expert where
// that is enough.
void write_trace(AtomicFileWriter& out, const Trace& trace, TraceForm form);

}  // namespace sluice::experts
