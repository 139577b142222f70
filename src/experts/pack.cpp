#include "experts/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"
#include "experts/source.h"

namespace sluice::experts {

namespace {

constexpr uint32_t kVersion = 1;
constexpr uint64_t kRecordAlignment = 4096;  // of direct reads, on every disk
constexpr uint64_t kPartAlignment = 64;      // a cache line
constexpr uint32_t kMaxLayers = 4096, kMaxExperts = 65536;
constexpr size_t kMaxParts = 3;
constexpr uint64_t kRouterBytes = 4096;  // of a router that mark it
constexpr const char* kRemedy = "the file is damaged: pack the model again (`sluice pack`)";

// By code. Parts of a record stand in this order.
constexpr std::array<const char*, 4> kFamilies = {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps", "ffn_gate_up_exps"};
constexpr uint32_t kGate = 0, kUp = 1, kDown = 2, kGateUp = 3;
const std::vector<uint32_t> kApart = {kGate, kUp, kDown}, kFused = {kGateUp, kDown};

// ---- as it lies in the file ----

struct RawHeader {
  char magic[8];
  uint32_t version, n_layers, n_experts, reserved;
  uint64_t file_bytes;
  uint64_t checksum;      // of all before the records, with 0 here
  char architecture[64];  // ends with zeros
  char reserved_too[24];
};
struct RawPart {
  uint32_t family, format;
  uint64_t n_in, n_out, offset;
};
struct RawLayer {
  uint32_t number, n_parts;
  uint64_t offset, stride, router;
  RawPart parts[kMaxParts];
};
static_assert(sizeof(RawHeader) == 128 && sizeof(RawPart) == 32 && sizeof(RawLayer) == 128);

// Header, layers and checksums.
constexpr uint64_t front_bytes(uint64_t n_layers, uint64_t n_experts) {
  return sizeof(RawHeader) + n_layers * (sizeof(RawLayer) + n_experts * sizeof(uint64_t));
}

uint64_t checksum_of_front(std::span<const std::byte> front) {
  std::vector<std::byte> copy(front.begin(), front.end());
  store(&copy[offsetof(RawHeader, checksum)], uint64_t{0});
  return xxh64(copy);
}

// ---- reading ----

// Of one file; refuses what can't be.
class Reader {
 public:
  explicit Reader(const File& file) : file_(file) {}

  void read(Sidecar::Contents& out) {
    read_front();
    out.path = file_.path();
    out.layout = "pack";
    out.architecture = architecture();
    out.expert_count = header_.n_experts;
    end_ = front_.size();
    for (uint32_t i = 0; i < header_.n_layers; ++i) {
      place_ = fmt::format("{}: layer entry {}", file_.path(), i);
      read_layer(load<RawLayer>(&front_[sizeof(RawHeader) + i * sizeof(RawLayer)]), out);
      out.seals.rbegin()->second.checksums = checksums(i);
    }
  }

 private:
  template <typename... Args>
  [[noreturn]] void refuse(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) const {
    fail(kind, "{}: {}", place_, fmt::format(format, std::forward<Args>(args)...));
  }

  void check_count(const char* field, uint64_t value, uint64_t max) const {
    if (value < 1 || value > max)
      refuse(ErrorKind::kFormat, "{} is {}, not from 1 to {}; {}", field, value, max, kRemedy);
  }

  // From `least` on and a multiple of `alignment`.
  void check_place(const char* field, uint64_t value, uint64_t least, uint64_t alignment) const {
    if (value < least)
      refuse(ErrorKind::kFormat, "{} is {}, but what lies before ends at {}; {}", field, value, least, kRemedy);
    if (value % alignment != 0)
      refuse(ErrorKind::kFormat, "{} is {}, which is no multiple of {}; {}", field, value, alignment, kRemedy);
  }

  void read_front() {
    if (file_.size() < sizeof(RawHeader))
      refuse(ErrorKind::kFormat,
             "has {} bytes, but a packed file begins with {} of header; it was cut short, copy it again", file_.size(),
             sizeof(RawHeader));
    file_.read_at(0, std::as_writable_bytes(std::span(&header_, 1)));
    if (std::string_view(header_.magic, sizeof(header_.magic)) != kPackMagic)
      refuse(ErrorKind::kFormat, "does not begin as a file that `sluice pack` wrote");
    if (header_.version != kVersion)
      refuse(ErrorKind::kUnsupported, "version is {}; Sluice reads version {}, pack the model again (`sluice pack`)",
             header_.version, kVersion);
    if (header_.file_bytes != file_.size())
      refuse(ErrorKind::kFormat, "has {} bytes, but file_bytes is {}; it was cut short or added to, copy it again",
             file_.size(), header_.file_bytes);
    check_count("n_layers", header_.n_layers, kMaxLayers);
    check_count("n_experts", header_.n_experts, kMaxExperts);
    const uint64_t bytes = front_bytes(header_.n_layers, header_.n_experts);
    if (bytes > file_.size())
      refuse(ErrorKind::kFormat, "header and tables of {} layers with {} experts have {} bytes, but the file {}; {}",
             header_.n_layers, header_.n_experts, bytes, file_.size(), kRemedy);
    front_.resize(bytes);
    file_.read_at(0, front_);
    const uint64_t found = checksum_of_front(front_);
    if (found != header_.checksum)
      refuse(ErrorKind::kFormat, "checksum is {:016x}, but that of header and tables is {:016x}; {}", header_.checksum,
             found, kRemedy);
    if (header_.reserved != 0 || std::ranges::any_of(header_.reserved_too, [](char c) { return c != 0; }))
      refuse(ErrorKind::kFormat, "reserved bytes of the header are not 0; {}", kRemedy);
  }

  std::string architecture() const {
    const std::string_view field(header_.architecture, sizeof(header_.architecture));
    const std::string_view text = field.substr(0, field.find('\0'));
    const auto is_plain = [](char c) { return c > ' ' && c < 0x7F; };
    if (text.empty() || !std::ranges::all_of(text, is_plain) ||
        field.find_first_not_of('\0', text.size()) != std::string_view::npos)
      refuse(ErrorKind::kFormat, "architecture is no name of 1 to {} printable characters; {}", field.size(), kRemedy);
    return std::string(text);
  }

  void read_layer(const RawLayer& raw, Sidecar::Contents& out) {
    if (raw.number >= kMaxLayers || (!out.seals.empty() && raw.number <= out.seals.rbegin()->first))
      refuse(ErrorKind::kFormat, "number is {}, which is not above that of the entry before and below {}; {}",
             raw.number, kMaxLayers, kRemedy);
    out.seals[raw.number].router = raw.router;
    const auto parts = std::span(raw.parts).first(std::min<size_t>(raw.n_parts, kMaxParts));
    std::vector<uint32_t> families;
    for (const RawPart& part : parts) families.push_back(part.family);
    if (raw.n_parts > kMaxParts || (families != kApart && families != kFused))
      refuse(ErrorKind::kFormat, "has {} parts of the families {}, not {} or {}; {}", raw.n_parts,
             fmt::join(families, ", "), fmt::join(kApart, ", "), fmt::join(kFused, ", "), kRemedy);
    const size_t first = out.tensors.size();
    uint64_t record_bytes = 0;
    for (const RawPart& part : parts) out.tensors.push_back(read_part(part, record_bytes));
    check_place("stride", raw.stride, record_bytes, kRecordAlignment);
    check_place("offset", raw.offset, end_, kRecordAlignment);
    const auto all = try_mul(raw.stride, uint64_t{header_.n_experts});
    const auto end = all ? try_add(raw.offset, *all) : std::nullopt;
    if (!end || *end > file_.size())
      refuse(ErrorKind::kFormat, "{} records of {} bytes from offset {} on pass the end of the file ({} bytes); {}",
             header_.n_experts, raw.stride, raw.offset, file_.size(), kRemedy);
    end_ = *end;
    for (SidecarTensor& tensor : std::span(out.tensors).subspan(first)) {
      tensor.layer = raw.number;
      tensor.offset += raw.offset;
      tensor.stride = raw.stride;
    }
  }

  // A tensor whose offset is that in the record, which ended at `record_bytes`.
  SidecarTensor read_part(const RawPart& raw, uint64_t& record_bytes) const {
    const char* family = kFamilies[raw.family];
    const quant::Format* format = quant::find_format(raw.format);
    if (format == nullptr)
      refuse(ErrorKind::kUnsupported, "format of {} is {}, which is no weight format that Sluice knows; {}", family,
             raw.format, kRemedy);
    check_count("n_in", raw.n_in, UINT32_MAX);
    check_count("n_out", raw.n_out, UINT32_MAX);
    if (raw.n_in % format->block_weights != 0)
      refuse(ErrorKind::kFormat, "n_in of {} is {}, which is no whole number of blocks of {} ({}); {}", family,
             raw.n_in, format->block_weights, format->name, kRemedy);
    check_place("offset of a part", raw.offset, record_bytes, kPartAlignment);
    if (raw.offset - record_bytes >= kReadThrough)
      refuse(ErrorKind::kFormat, "offset of {} is {}, more than {} bytes behind what lies before; {}", family,
             raw.offset, kReadThrough - 1, kRemedy);
    const auto bytes = try_mul(raw.n_out, quant::row_bytes(*format, raw.n_in));
    const auto end = bytes ? try_add(raw.offset, *bytes) : std::nullopt;
    if (!end)
      refuse(ErrorKind::kFormat, "{} of {} x {} weights does not fit in 64 bits; {}", family, raw.n_in, raw.n_out,
             kRemedy);
    record_bytes = *end;
    SidecarTensor tensor;
    tensor.family = family;
    tensor.format = format;
    tensor.shape = {raw.n_in, raw.n_out, header_.n_experts};
    tensor.file = &file_;
    tensor.offset = raw.offset;
    tensor.bytes = *bytes;
    return tensor;
  }

  // Of the experts of the layer in entry `i`.
  std::vector<uint64_t> checksums(uint32_t i) const {
    std::vector<uint64_t> out(header_.n_experts);
    const size_t bytes = out.size() * sizeof(uint64_t);
    std::memcpy(out.data(), &front_[sizeof(RawHeader) + header_.n_layers * sizeof(RawLayer) + i * bytes], bytes);
    return out;
  }

  const File& file_;
  std::string place_ = file_.path();  // in messages
  RawHeader header_{};
  std::vector<std::byte> front_;
  uint64_t end_ = 0;  // of what has been placed
};

}  // namespace

Sidecar open_pack(std::unique_ptr<File> file) {
  Sidecar::Contents out;
  Reader(*file).read(out);
  out.files.push_back(std::move(file));
  return Sidecar(std::move(out));
}

// ---- writing -------------------------------------------------------------------------------------------------------

uint64_t router_mark(const gguf::Container& model, uint32_t layer) {
  const gguf::TensorInfo& router = model.get_tensor(fmt::format("blk.{}.ffn_gate_inp.weight", layer));
  std::vector<std::byte> bytes(std::min(router.bytes, kRouterBytes));
  model.read(router, 0, bytes);
  return xxh64(bytes);
}

namespace {

std::string tensor_name(uint32_t layer, uint32_t family) {
  return fmt::format("blk.{}.{}.weight", layer, kFamilies[family]);
}

bool has_experts(const gguf::Container& model, uint32_t layer) {
  return std::ranges::any_of(std::array{kGate, kUp, kDown, kGateUp},
                             [&](uint32_t family) { return model.find_tensor(tensor_name(layer, family)) != nullptr; });
}

}  // namespace

PackWriter::PackWriter(const gguf::Container& model) : model_(model) {
  for (uint32_t number = 0; number < kMaxLayers; ++number)
    if (has_experts(model, number)) layers_.push_back(layer_of(number));
  if (layers_.empty())
    fail(ErrorKind::kUnsupported, "{}: has no experts to pack; a model without is read from its own file",
         model.path());
  n_experts_ = static_cast<uint32_t>(layers_[0].parts[0].tensor->extents[2]);
  uint64_t end = front_bytes(layers_.size(), n_experts_);
  for (Layer& layer : layers_) {
    for (const Part& part : layer.parts)
      if (part.tensor->extents[2] != n_experts_)
        fail(ErrorKind::kFormat, "{}: tensor {} has {} experts, but {} has {}; the file was converted wrongly",
             model.path(), part.tensor->name, part.tensor->extents[2], layers_[0].parts[0].tensor->name, n_experts_);
    layer.offset = align_up(end, kRecordAlignment);
    end = layer.offset + layer.stride * n_experts_;
  }
}

PackWriter::Layer PackWriter::layer_of(uint32_t number) const {
  const bool fused = model_.find_tensor(tensor_name(number, kGateUp)) != nullptr;
  Layer layer{number, {}, 0, 0, 0};
  for (const uint32_t family : fused ? kFused : kApart) {
    const gguf::TensorInfo& tensor = model_.get_tensor(tensor_name(number, family));
    if (tensor.extents.size() != 3 || tensor.extents[2] > kMaxExperts)
      fail(ErrorKind::kFormat,
           "{}: tensor {} is no stack [n_in, n_out, n_experts] of at most {} experts; the file was "
           "converted wrongly",
           model_.path(), tensor.name, kMaxExperts);
    const uint64_t offset = align_up(layer.record_bytes, kPartAlignment), bytes = tensor.bytes / tensor.extents[2];
    layer.parts.push_back({family, &tensor, offset, bytes});
    layer.record_bytes = offset + bytes;
  }
  layer.stride = align_up(layer.record_bytes, kRecordAlignment);
  return layer;
}

uint64_t PackWriter::expert_bytes() const {
  uint64_t total = 0;
  for (const Layer& layer : layers_)
    for (const Part& part : layer.parts) total += part.tensor->bytes;
  return total;
}

uint64_t PackWriter::file_bytes() const { return layers_.back().offset + layers_.back().stride * n_experts_; }

// Header and tables, and the zeros up to the first record.
std::string PackWriter::header(const std::vector<uint64_t>& checksums) const {
  RawHeader header{};
  std::ranges::copy(kPackMagic, header.magic);
  header.version = kVersion;
  header.n_layers = n_layers();
  header.n_experts = n_experts_;
  header.file_bytes = file_bytes();
  const auto architecture = model_.metadata().find<std::string>("general.architecture").value_or("unknown");
  std::ranges::copy(architecture.substr(0, sizeof(header.architecture)), header.architecture);
  std::string out(layers_[0].offset, '\0');
  char* at = out.data() + sizeof(header);
  for (const Layer& layer : layers_) {
    RawLayer raw{layer.number, static_cast<uint32_t>(layer.parts.size()), layer.offset,
                 layer.stride, router_mark(model_, layer.number),         {}};
    for (size_t i = 0; i < layer.parts.size(); ++i) {
      const gguf::TensorInfo& tensor = *layer.parts[i].tensor;
      raw.parts[i] = {layer.parts[i].family, static_cast<uint32_t>(tensor.format->type), tensor.extents[0],
                      tensor.extents[1], layer.parts[i].offset};
    }
    store(at, raw);
    at += sizeof(raw);
  }
  std::memcpy(at, checksums.data(), checksums.size() * sizeof(uint64_t));
  store(out.data(), header);
  header.checksum = checksum_of_front(std::as_bytes(std::span(out)).first(front_bytes(n_layers(), n_experts_)));
  store(out.data(), header);
  return out;
}

void PackWriter::write(const std::string& path, const std::function<void(uint64_t done)>& progress) const {
  constexpr uint64_t kChunk = uint64_t{64} << 20;  // large enough for the disk's full speed
  constexpr uint64_t kMaxPieces = 512;             // of one read
  AtomicFileWriter out(path);
  std::vector<uint64_t> checksums;
  out.write(std::string(layers_[0].offset, '\0'));
  uint64_t done = 0;
  for (const Layer& layer : layers_) {
    const uint64_t at_once = std::clamp<uint64_t>(kChunk / layer.stride, 1, std::min<uint64_t>(n_experts_, kMaxPieces));
    Buffer records(at_once * layer.stride, "experts to pack");  // zeros, which stay where no part lies
    for (uint64_t first = 0; first < n_experts_; first += at_once) {
      const uint64_t n = std::min(at_once, n_experts_ - first);
      for (const Part& part : layer.parts) {
        std::vector<iovec> pieces;
        for (uint64_t i = 0; i < n; ++i)
          pieces.push_back({&records.data()[i * layer.stride + part.offset], part.bytes});
        const File& file = *model_.shards()[part.tensor->shard].file;
        file.read_scattered(part.tensor->offset + first * part.bytes, pieces);
        progress(done += n * part.bytes);
      }
      for (uint64_t i = 0; i < n; ++i)
        checksums.push_back(xxh64(records.bytes().subspan(i * layer.stride, layer.record_bytes)));
      out.write(records.bytes().first(n * layer.stride));
    }
  }
  for (const auto& shard : model_.shards())
    if (shard.file->changed())
      fail(ErrorKind::kIo, "{}: the file was changed while it was packed; pack it again", shard.file->path());
  const std::string front = header(checksums);
  out.overwrite(0, std::as_bytes(std::span(front)));
  out.commit();
}

}  // namespace sluice::experts
