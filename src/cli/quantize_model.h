// A model's weights in other formats: which tensors change, to what, and the new file. The command around it is
// quantize.cpp; how a block is quantized is the quant room's.
#pragma once

#include <cstdint>
#include <functional>
#include <regex>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "gguf/container.h"

namespace sluice::cli {

// "Tensors whose name matches get this format": one --override.
struct FormatRule {
  std::string text;  // as given, for messages
  std::regex pattern;
  const quant::Format* format;
};

// What becomes of one tensor.
struct FormatChoice {
  const gguf::TensorInfo* tensor;
  const quant::Format* format;  // the tensor's own: its bytes are copied
  const quant::Format* wanted;  // what was asked for: another than `format` where a row is no whole number of blocks
};

// The format of that name, if Sluice can write it. Throws Error(kUsage) with the list of those that it can.
const quant::Format& writable_format(const std::string& name);

// Reads "REGEX=TYPE", split at the last "=" (ECMAScript syntax, found anywhere in a name). Throws Error(kUsage).
FormatRule parse_format_rule(const std::string& text);

// Whether conversions touch the tensor: a weight matrix or a stack of them. Not norms, biases and other vectors, the
// experts' routers and the short convolutions, which are small and decide much: they stay as they are stored.
bool is_converted(const gguf::TensorInfo& tensor);

// A choice for each tensor of the file, in its order: the format of the first rule that matches, else `format`; for
// rows that are no whole number of its blocks, the format with smaller ones that llama.cpp takes (Q4_K: Q5_0, Q5_K:
// Q5_1, Q6_K: Q8_0, else F16). Throws Error(kUsage) for a rule that matches no tensor that is converted.
std::vector<FormatChoice> choose_formats(const gguf::Container& file, const quant::Format& format,
                                         std::span<const FormatRule> rules);

// Writes the model with `choices` (one for each tensor, in the order of the file) to `path`, as one file. Metadata stay
// but for general.file_type, which becomes `format`'s, general.quantization_version, and split.*, which goes. Tensors
// are streamed, a few megabytes at a time; the bytes do not depend on the number of threads. `progress` hears the bytes
// read so far. Throws Error(kIo), and Error(kUnsupported) naming file, tensor and row for values that a format can't
// hold; `path` is then as it was.
void write_converted(const gguf::Container& file, std::span<const FormatChoice> choices, const quant::Format& format,
                     const std::string& path, ThreadPool& pool, const std::function<void(uint64_t)>& progress);

}  // namespace sluice::cli
