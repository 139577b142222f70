#include "cli/quantize_model.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "gguf/writer.h"

namespace sluice::cli {
namespace {

constexpr uint64_t kBatchWeights = uint64_t{4} << 20;  // at a time: 16 MiB as f32, enough for every thread
constexpr uint64_t kGrainWeights = uint64_t{1} << 14;  // handed to a thread together
constexpr size_t kCopyBytes = size_t{8} << 20;

// Values of general.file_type (llama.cpp's LLAMA_FTYPE_*; for Q4_K and Q5_K the "small" ones, which mix least), and
// with these the formats that can be asked for.
struct FileType {
  quant::Type format;
  uint32_t value;
};
constexpr FileType kFileTypes[] = {
    {quant::Type::kF32, 0},   {quant::Type::kF16, 1},   {quant::Type::kBF16, 32}, {quant::Type::kQ4_0, 2},
    {quant::Type::kQ4_1, 3},  {quant::Type::kQ5_0, 8},  {quant::Type::kQ5_1, 9},  {quant::Type::kQ8_0, 7},
    {quant::Type::kQ4_K, 14}, {quant::Type::kQ5_K, 16}, {quant::Type::kQ6_K, 18},
};
constexpr uint32_t kQuantizationVersion = 2;  // of the block layouts, since May 2023

const FileType* file_type_of(const quant::Format& format) {
  const auto* found = std::ranges::find(kFileTypes, format.type, &FileType::format);
  return found == std::end(kFileTypes) || format.quantize == nullptr ? nullptr : found;
}

const quant::Format& smaller_blocks(const quant::Format& wanted) {
  switch (wanted.type) {
    case quant::Type::kQ4_K:
      return quant::format(quant::Type::kQ5_0);
    case quant::Type::kQ5_K:
      return quant::format(quant::Type::kQ5_1);
    case quant::Type::kQ6_K:
      return quant::format(quant::Type::kQ8_0);
    default:
      return quant::format(quant::Type::kF16);
  }
}

const quant::Format& fitting(const quant::Format& wanted, uint64_t row_weights) {
  const quant::Format* format = &wanted;
  while (row_weights % format->block_weights != 0) format = &smaller_blocks(*format);
  return *format;
}

gguf::Metadata converted_metadata(const gguf::Metadata& from, const quant::Format& format) {
  gguf::Metadata out(from.source());
  for (const auto& [key, value] : from.entries())
    if (!key.starts_with("split.")) out.add(key, value);
  out.set("general.quantization_version", kQuantizationVersion);
  out.set("general.file_type", file_type_of(format)->value);
  return out;
}

void copy_tensor(const gguf::Container& file, const gguf::TensorInfo& tensor, const gguf::Sink& sink,
                 const std::function<void(uint64_t)>& count) {
  std::vector<std::byte> buffer(std::min<uint64_t>(kCopyBytes, tensor.bytes));
  for (uint64_t at = 0; at < tensor.bytes; at += buffer.size()) {
    const auto piece = std::span(buffer).first(std::min<uint64_t>(buffer.size(), tensor.bytes - at));
    file.read(tensor, at, piece);
    sink(piece);
    count(piece.size());
  }
}

// The block formats refuse infinities and NaN themselves; F16 would make infinities of large values.
void check_range(const quant::Format& format, std::span<const float> row) {
  constexpr float kFirstInfinite = 65520.0f;  // rounds to infinity in f16
  if (format.type != quant::Type::kF16) return;
  for (const float x : row)
    if (std::isfinite(x) && std::fabs(x) >= kFirstInfinite)
      fail(ErrorKind::kUnsupported, "F16: {} is above the largest f16 (65504); keep this tensor in F32 or BF16", x);
}

// Rows of one tensor from one format to another.
class RowConverter {
 public:
  RowConverter(const gguf::Container& file, const gguf::TensorInfo& from, const quant::Format& to)
      : file_(file), from_(from), to_(to), weights_(from.extents[0]), out_bytes_(quant::row_bytes(to, weights_)) {}

  void convert(const gguf::Sink& sink, ThreadPool& pool, const std::function<void(uint64_t)>& count) const {
    const uint64_t batch = std::min(from_.rows, std::max<uint64_t>(1, kBatchWeights / weights_));
    const uint64_t grain = std::max<uint64_t>(1, kGrainWeights / weights_);
    std::vector<std::byte> in(batch * from_.row_bytes), out(batch * out_bytes_);
    for (uint64_t first = 0; first < from_.rows; first += batch) {
      const uint64_t rows = std::min(batch, from_.rows - first);
      const auto piece = std::span(in).first(rows * from_.row_bytes);
      file_.read(from_, first * from_.row_bytes, piece);
      pool.run(rows, grain, [&](size_t begin, size_t end) {
        std::vector<float> row(weights_);
        for (size_t r = begin; r < end; ++r)
          convert_row(first + r, &in[r * from_.row_bytes], row, &out[r * out_bytes_]);
      });
      sink(std::span(out).first(rows * out_bytes_));
      count(piece.size());
    }
  }

 private:
  void convert_row(uint64_t number, const std::byte* in, std::span<float> row, std::byte* out) const {
    from_.format->dequantize(in, weights_ / from_.format->block_weights, row.data());
    try {
      check_range(to_, row);
      to_.quantize(row.data(), weights_ / to_.block_weights, out);
    } catch (const Error& error) {
      fail(error.kind(), "{}: tensor {}, row {}: {}", file_.path(), from_.name, number, error.what());
    }
  }

  const gguf::Container& file_;
  const gguf::TensorInfo& from_;
  const quant::Format& to_;
  const uint64_t weights_, out_bytes_;  // of a row
};

}  // namespace

const quant::Format& writable_format(const std::string& name) {
  const quant::Format* format = quant::find_format(name);
  if (format != nullptr && file_type_of(*format) != nullptr) return *format;
  std::string known;
  for (const FileType& type : kFileTypes)
    known += (known.empty() ? "" : ", ") + std::string(quant::format(type.format).name);
  fail(ErrorKind::kUsage, "{} is {}; Sluice writes {}", gguf::printable(name),
       format == nullptr ? "no weight format" : "a format that Sluice only reads", known);
}

FormatRule parse_format_rule(const std::string& text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0)
    fail(ErrorKind::kUsage, "--override {}: write REGEX=TYPE, such as ffn_down=Q6_K", text);
  try {
    return {text, std::regex(text.substr(0, equals)), &writable_format(text.substr(equals + 1))};
  } catch (const std::regex_error& error) {
    fail(ErrorKind::kUsage, "--override {}: not a regular expression ({})", text, error.what());
  }
}

bool is_converted(const gguf::TensorInfo& tensor) {
  const auto dimensions = std::ranges::count_if(tensor.extents, [](uint64_t n) { return n > 1; });
  const auto has = [&](const char* part) { return tensor.name.find(part) != std::string::npos; };
  return dimensions >= 2 && tensor.name.ends_with(".weight") && !has("_norm.") && !has("ffn_gate_inp") &&
         !has("ssm_conv1d");
}

std::vector<FormatChoice> choose_formats(const gguf::Container& file, const quant::Format& format,
                                         std::span<const FormatRule> rules) {
  std::vector<bool> used(rules.size());
  std::vector<FormatChoice> choices;
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    const quant::Format* wanted = tensor.format;
    if (is_converted(tensor)) {
      wanted = &format;
      // A rule that stands behind a broader one matches too, though it decides nothing.
      for (size_t i = rules.size(); i-- > 0;) {
        if (!std::regex_search(tensor.name, rules[i].pattern)) continue;
        used[i] = true;
        wanted = rules[i].format;
      }
    }
    choices.push_back({&tensor, &fitting(*wanted, tensor.extents[0]), wanted});
  }
  for (size_t i = 0; i < rules.size(); ++i)
    if (!used[i])
      fail(
          ErrorKind::kUsage,
          "--override {}: matches none of the weight matrices that are converted; `sluice info {} --tensors` lists the "
          "names, and norms, routers and other small tensors always stay as they are",
          rules[i].text, file.path());
  return choices;
}

void write_converted(const gguf::Container& file, std::span<const FormatChoice> choices, const quant::Format& format,
                     const std::string& path, ThreadPool& pool, const std::function<void(uint64_t)>& progress) {
  uint64_t done = 0;
  const auto count = [&](uint64_t bytes) { progress(done += bytes); };
  gguf::Writer writer(converted_metadata(file.metadata(), format));
  for (const FormatChoice& choice : choices) {
    gguf::TensorInfo to = *choice.tensor;
    to.format = choice.format;
    writer.add_tensor(std::move(to), [&](const gguf::TensorInfo&, const gguf::Sink& sink) {
      if (choice.format == choice.tensor->format)
        copy_tensor(file, *choice.tensor, sink, count);
      else
        RowConverter(file, *choice.tensor, *choice.format).convert(sink, pool, count);
    });
  }
  writer.write(path);
}

}  // namespace sluice::cli
