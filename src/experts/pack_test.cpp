#include "experts/pack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"
#include "experts/bank.h"
#include "gguf/writer.h"
#include "support/reference.h"

namespace sluice::experts {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

constexpr uint32_t kExperts = 6;

void fill_all(Bank& bank, const Bank::Progress& progress) {
  bank.reserve(bank.every_unit());
  bank.fill(progress);
}

// A folder that goes away with its files.
struct Folder {
  std::filesystem::path path;
  Folder() {
    static std::atomic<int> counter{0};
    path = std::filesystem::path(::testing::TempDir()) / fmt::format("sluice_pack_{}_{}", ::getpid(), counter++);
    std::filesystem::create_directories(path);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string operator/(const std::string& name) const { return (path / name).string(); }
};

void write_bytes(const std::string& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
}

Bytes bytes_of_file(const std::string& path) {
  const std::string text = read_text_file(path);
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

gguf::TensorInfo stack(uint32_t layer, const char* family, quant::Type type, uint64_t n_in, uint64_t n_out,
                       uint64_t n_experts = kExperts) {
  gguf::TensorInfo tensor;
  tensor.name = fmt::format("blk.{}.{}.weight", layer, family);
  tensor.extents = {n_in, n_out, n_experts};
  tensor.format = &quant::format(type);
  return tensor;
}

gguf::TensorInfo router(uint32_t layer) {
  gguf::TensorInfo tensor = stack(layer, "ffn_gate_inp", quant::Type::kF32, 32, kExperts);
  tensor.extents.pop_back();
  return tensor;
}

// Layers of other formats and shapes each, with gaps in their numbers; parts of odd sizes, one layer fused.
std::vector<gguf::TensorInfo> mixed_tensors() {
  return {stack(0, "ffn_down_exps", quant::Type::kF32, 7, 3),
          router(0),
          stack(0, "ffn_gate_exps", quant::Type::kMXFP4, 32, 5),
          stack(0, "ffn_up_exps", quant::Type::kQ8_0, 64, 3),
          router(1),
          stack(1, "ffn_gate_up_exps", quant::Type::kQ4_0, 32, 33),
          stack(1, "ffn_down_exps", quant::Type::kMXFP4, 32, 301),
          stack(4, "ffn_up_exps", quant::Type::kQ6_K, 256, 20),
          stack(4, "ffn_gate_exps", quant::Type::kQ4_K, 256, 20),
          stack(4, "ffn_down_exps", quant::Type::kBF16, 1, 1),
          router(4)};
}

// A model of random bytes, in `parts` files.
gguf::Container make_model(const Folder& folder, std::vector<gguf::TensorInfo> tensors, int32_t parts = 1,
                           unsigned seed = 1) {
  std::mt19937 random(seed);
  std::string first;
  const auto n = static_cast<int32_t>(tensors.size());
  for (int32_t part = 0; part < parts; ++part) {
    gguf::Metadata metadata;
    metadata.add("general.architecture", "testmoe");
    if (parts > 1) {
      metadata.add("split.no", part);
      metadata.add("split.count", parts);
      metadata.add("split.tensors.count", n);
    }
    gguf::Writer writer(std::move(metadata));
    for (int32_t i = part * n / parts; i < (part + 1) * n / parts; ++i)
      writer.add_tensor(tensors[static_cast<size_t>(i)], [&](const gguf::TensorInfo& tensor, const gguf::Sink& sink) {
        Bytes bytes(tensor.bytes);
        for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
        sink(bytes);
      });
    const std::string path =
        folder / (parts == 1 ? "model.gguf" : fmt::format("model-{:05}-of-{:05}.gguf", part + 1, parts));
    writer.write(path);
    if (first.empty()) first = path;
  }
  return gguf::Container::open(first);
}

std::string pack(const Folder& folder, const gguf::Container& model) {
  const PackWriter writer(model);
  uint64_t read = 0;
  writer.write(folder / "packed", [&](uint64_t done) { read = done; });
  EXPECT_EQ(read, writer.expert_bytes());
  EXPECT_EQ(std::filesystem::file_size(folder / "packed"), writer.file_bytes());
  return folder / "packed";
}

bool is_of_experts(const gguf::TensorInfo& tensor) { return tensor.name.ends_with("_exps.weight"); }

std::pair<uint32_t, std::string> layer_and_family(const gguf::TensorInfo& tensor) {
  const std::string rest = tensor.name.substr(4);  // behind "blk."
  const size_t dot = rest.find('.');
  return {static_cast<uint32_t>(std::stoul(rest)), rest.substr(dot + 1, rest.rfind('.') - dot - 1)};
}

Bytes expert_of(const gguf::Container& model, const gguf::TensorInfo& tensor, uint64_t expert) {
  Bytes bytes(tensor.bytes / tensor.extents[2]);
  model.read(tensor, expert * bytes.size(), bytes);
  return bytes;
}

// The sidecar holds the model's experts, all of them, and nothing else.
void expect_experts_of(const Sidecar& sidecar, const gguf::Container& model) {
  size_t n = 0;
  for (const gguf::TensorInfo& tensor : model.tensors()) {
    if (!is_of_experts(tensor)) continue;
    SCOPED_TRACE(tensor.name);
    ++n;
    const auto [layer, family] = layer_and_family(tensor);
    const SidecarTensor* packed = sidecar.find(layer, family);
    ASSERT_NE(packed, nullptr);
    EXPECT_EQ(packed->format, tensor.format);
    EXPECT_EQ(packed->shape, tensor.extents);
    EXPECT_EQ(packed->offset % 64, 0u);
    EXPECT_EQ(packed->stride % 4096, 0u);
    for (uint64_t e = 0; e < tensor.extents[2]; ++e) {
      Bytes bytes(packed->bytes);
      packed->file->read_at(packed->offset_of(e), bytes);
      ASSERT_EQ(bytes, expert_of(model, tensor, e)) << "expert " << e;
    }
    ASSERT_NE(sidecar.seal(layer), nullptr);
    EXPECT_EQ(sidecar.seal(layer)->router, router_mark(model, layer));
    EXPECT_EQ(sidecar.seal(layer)->checksums.size(), tensor.extents[2]);
  }
  EXPECT_EQ(sidecar.tensors().size(), n);
}

template <typename Action>
void expect_error(const Action& action, ErrorKind kind, const std::vector<std::string>& words) {
  try {
    action();
    ADD_FAILURE() << "no error, wanted: " << words.at(0);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    for (const std::string& word : words) EXPECT_THAT(error.what(), HasSubstr(word));
  }
}

Sidecar open_bytes(const Bytes& bytes) { return open_pack(memory_file("P", bytes)); }

// Sources as the model room makes them, with all parts of a layer.
std::vector<LayerSource> sources_of(const Sidecar& sidecar) {
  std::vector<LayerSource> out;
  for (const uint32_t layer : {0u, 1u, 4u}) {
    std::vector<Part> parts;
    for (const char* family : {"ffn_gate_up_exps", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"})
      if (const SidecarTensor* t = sidecar.find(layer, family))
        parts.push_back({t->file, t->offset, t->bytes, t->stride});
    out.emplace_back(kExperts, std::move(parts), sidecar.seal(layer)->checksums);
  }
  return out;
}

// ---- what is packed is what was there

TEST(Pack, EveryExpertIsThatOfTheModelWhateverItsFormatsAndFiles) {
  for (const int32_t parts : {1, 2, 3}) {
    SCOPED_TRACE(parts);
    const Folder folder;
    const gguf::Container model = make_model(folder, mixed_tensors(), parts);
    const Sidecar sidecar = Sidecar::open(pack(folder, model));
    EXPECT_EQ(sidecar.layout(), "pack");
    EXPECT_EQ(sidecar.architecture(), "testmoe");
    EXPECT_EQ(sidecar.expert_count(), kExperts);
    expect_experts_of(sidecar, model);
    EXPECT_EQ(sidecar.find(2, "ffn_up_exps"), nullptr);
    EXPECT_EQ(sidecar.seal(2), nullptr);
  }
}

TEST(Pack, EveryExpertOfAModelOfSeveralFormats) {
  const Folder folder;
  const auto model = gguf::Container::open(test::test_data_dir() + "/models/qwen35moe-micro/model.gguf");
  expect_experts_of(Sidecar::open(pack(folder, model)), model);
}

TEST(Pack, EveryExpertWhereSeveralReadsMakeALayer) {
  const Folder folder;
  constexpr uint64_t kMany = 1100;
  const gguf::Container model =
      make_model(folder, {router(0), stack(0, "ffn_gate_exps", quant::Type::kF32, 7, 3, kMany),
                          stack(0, "ffn_up_exps", quant::Type::kQ8_0, 32, 2, kMany),
                          stack(0, "ffn_down_exps", quant::Type::kMXFP4, 32, 5, kMany)});
  expect_experts_of(Sidecar::open(pack(folder, model)), model);
}

TEST(Pack, EveryExpertOfTheReferenceModels) {
  const auto root = test::reference_root();
  if (!root) GTEST_SKIP() << test::kNoReference;
  for (const char* name : {"qwen35moe-micro-fused/model.gguf", "qwen35moe-tiny-ud-q4_k_xl/model.gguf",
                           "qwen35moe-tiny-mtp/model.gguf", "qwen3moe-tiny/model.gguf"}) {
    SCOPED_TRACE(name);
    const Folder folder;
    const auto model = gguf::Container::open(*root + "/models/" + name);
    expect_experts_of(Sidecar::open(pack(folder, model)), model);
  }
}

TEST(Pack, AnExpertIsOneReadOfWholeBlocksAndItsChecksumThatOfWhatIsRead) {
  const Folder folder;
  const Sidecar sidecar = Sidecar::open(pack(folder, make_model(folder, mixed_tensors())));
  for (const LayerSource& source : sources_of(sidecar)) {
    ASSERT_EQ(source.extents().size(), 1u);
    const LayerSource::Extent& extent = source.extents()[0];
    for (uint32_t e = 0; e < kExperts; ++e) {
      EXPECT_EQ(extent.offset_of(e) % 4096, 0u);
      for (size_t p = 0; p < source.parts().size(); ++p) EXPECT_EQ(source.part_offset(p, e) % 64, 0u);
      Bytes bytes(extent.bytes);
      extent.file->read_at(extent.offset_of(e), bytes);
      EXPECT_EQ(xxh64(bytes), source.checksums()[e]);
    }
  }
}

TEST(Pack, BytesDependOnNothingButTheModel) {
  const Folder one, other;
  const Bytes whole = bytes_of_file(pack(one, make_model(one, mixed_tensors())));
  EXPECT_EQ(bytes_of_file(pack(one, make_model(one, mixed_tensors()))), whole);
  EXPECT_EQ(bytes_of_file(pack(other, make_model(other, mixed_tensors(), 3))), whole) << "split";
}

// ---- what can't be packed

TEST(Pack, ModelsThatCannotBePackedAreRefusedByName) {
  const Folder folder;
  const auto refusal = [&](std::vector<gguf::TensorInfo> tensors, ErrorKind kind, std::vector<std::string> words) {
    const gguf::Container model = make_model(folder, std::move(tensors));
    expect_error([&] { pack(folder, model); }, kind, words);
    EXPECT_FALSE(std::filesystem::exists(folder / "packed"));
  };
  refusal({router(0)}, ErrorKind::kUnsupported, {"model.gguf: has no experts to pack"});
  auto tensors = mixed_tensors();
  tensors.erase(tensors.begin());
  refusal(tensors, ErrorKind::kFormat, {"blk.0.ffn_down_exps.weight"});
  tensors = mixed_tensors();
  tensors[1].name = "other.weight";
  refusal(tensors, ErrorKind::kFormat, {"blk.0.ffn_gate_inp.weight"});
  tensors = mixed_tensors();
  tensors[6].extents[2] = kExperts + 1;
  refusal(tensors, ErrorKind::kFormat,
          {"blk.1.ffn_down_exps.weight has 7 experts, but blk.0.ffn_gate_exps.weight has 6"});
  tensors = mixed_tensors();
  tensors[6].extents.pop_back();
  refusal(tensors, ErrorKind::kFormat, {"blk.1.ffn_down_exps.weight is no stack"});
}

TEST(Pack, AFailedReadLeavesWhatWasThere) {
  const Folder folder;
  make_model(folder, mixed_tensors());
  uint64_t broken = UINT64_MAX, reads = 0;
  gguf::OpenOptions options;
  options.opener = [&](const std::string& path) {
    return with_faults(open_file(path), [&](uint64_t, uint64_t, uint64_t length) {
      return reads++ == broken ? int64_t{-EIO} : static_cast<int64_t>(length);
    });
  };
  const auto model = gguf::Container::open(folder / "model.gguf", options);
  write_bytes(folder / "packed", Bytes(3));
  for (uint64_t i = 0; i < 8 + 3; ++i) {  // parts of all layers, and their routers
    reads = 0, broken = i;
    expect_error([&] { PackWriter(model).write(folder / "packed", [](uint64_t) {}); }, ErrorKind::kIo, {"model.gguf"});
    EXPECT_EQ(bytes_of_file(folder / "packed"), Bytes(3));
    EXPECT_EQ(std::ranges::distance(std::filesystem::directory_iterator(folder.path)), 2) << "nothing else is left";
  }
  broken = UINT64_MAX;
  expect_experts_of(Sidecar::open(pack(folder, model)), model);
}

TEST(Pack, AModelThatChangesMeanwhileIsNotPacked) {
  const Folder folder;
  const gguf::Container model = make_model(folder, mixed_tensors());
  const auto change = [&](uint64_t) { std::ofstream(folder / "model.gguf", std::ios::app) << "x"; };
  expect_error([&] { PackWriter(model).write(folder / "packed", change); }, ErrorKind::kIo,
               {"model.gguf: the file was changed while it was packed"});
  EXPECT_FALSE(std::filesystem::exists(folder / "packed"));
}

// ---- damage

class DamagedPack : public ::testing::Test {
 protected:
  // Offsets that docs/pack-format.md gives.
  static constexpr size_t kVersion = 8, kLayers = 12, kNumber = 16, kReserved = 20, kFileBytes = 24, kChecksum = 32,
                          kArchitecture = 40, kReservedToo = 104, kEntries = 128, kEntryBytes = 128;
  static constexpr size_t kPartCount = 4, kOffset = 8, kStride = 16, kParts = 32;  // of an entry
  static constexpr size_t kFamily = 0, kFormat = 4, kIn = 8, kOut = 16, kPartOffset = 24, kPartBytes = 32;  // of a part

  static size_t entry(size_t i, size_t field) { return kEntries + i * kEntryBytes + field; }
  static size_t part(size_t i, size_t p, size_t field) { return entry(i, kParts + p * kPartBytes + field); }

  template <typename T>
  T get(size_t at) const {
    return load<T>(&bytes_[at]);
  }
  // A file with another value there, and a checksum that says it is right.
  template <typename T>
  Bytes with(size_t at, T value) const {
    Bytes bytes = bytes_;
    store(&bytes[at], value);
    return sealed(std::move(bytes));
  }
  static Bytes sealed(Bytes bytes) {
    store(&bytes[kChecksum], uint64_t{0});
    const size_t front = kEntries + 3 * (kEntryBytes + kExperts * 8);
    store(&bytes[kChecksum], xxh64(std::span(bytes).first(front)));
    return bytes;
  }
  void refuses(const Bytes& bytes, ErrorKind kind, std::vector<std::string> words) const {
    words.push_back("P: ");
    expect_error([&] { open_bytes(bytes); }, kind, words);
  }

  const Folder folder_;
  const gguf::Container model_ = make_model(folder_, mixed_tensors());
  const Bytes bytes_ = bytes_of_file(pack(folder_, model_));
};

TEST_F(DamagedPack, IsRefusedByEveryField) {
  EXPECT_NO_THROW(open_bytes(sealed(bytes_)));
  EXPECT_EQ(sealed(bytes_), bytes_);
  const auto format = ErrorKind::kFormat, unsupported = ErrorKind::kUnsupported;
  refuses(with<char>(0, 'X'), format, {"does not begin as"});
  refuses(with<uint32_t>(kVersion, 2), unsupported, {"version is 2; Sluice reads version 1"});
  refuses(with<uint32_t>(kLayers, 0), format, {"n_layers is 0, not from 1 to 4096"});
  refuses(with<uint32_t>(kLayers, 4097), format, {"n_layers is 4097"});
  refuses(with<uint32_t>(kNumber, 0), format, {"n_experts is 0, not from 1 to 65536"});
  refuses(with<uint32_t>(kNumber, 65537), format, {"n_experts is 65537"});
  refuses(with<uint32_t>(kNumber, 65536), format, {"of 3 layers with 65536 experts have 1573376 bytes, but the file"});
  refuses(with<uint32_t>(kReserved, 1), format, {"reserved bytes of the header are not 0"});
  refuses(with<char>(kReservedToo + 23, 1), format, {"reserved bytes of the header are not 0"});
  refuses(with<uint64_t>(kFileBytes, bytes_.size() - 1), format, {fmt::format("file_bytes is {}", bytes_.size() - 1)});
  refuses(with<char>(kArchitecture, '\0'), format, {"architecture is no name"});
  refuses(with<char>(kArchitecture + 2, '\n'), format, {"architecture is no name"});
  refuses(with<char>(kArchitecture + 63, 'x'), format, {"architecture is no name"});

  refuses(with<uint32_t>(entry(0, 0), 4096), format, {"layer entry 0: number is 4096"});
  refuses(with<uint32_t>(entry(1, 0), 0), format, {"layer entry 1: number is 0, which is not above"});
  refuses(with<uint32_t>(entry(0, kPartCount), 2), format, {"layer entry 0: has 2 parts of the families 0, 1,"});
  refuses(with<uint32_t>(entry(0, kPartCount), 4), format, {"has 4 parts"});
  refuses(with<uint32_t>(entry(0, kPartCount), 0), format, {"has 0 parts"});
  const auto offset = get<uint64_t>(entry(1, kOffset)), stride = get<uint64_t>(entry(1, kStride));
  refuses(with(entry(1, kOffset), offset - 4096), format,
          {fmt::format("layer entry 1: offset is {}, but what lies before ends at {}", offset - 4096, offset)});
  refuses(with(entry(0, kOffset), uint64_t{0}), format, {"layer entry 0: offset is 0, but what lies before"});
  refuses(with(entry(1, kOffset), offset + 1), format, {"offset is", "no multiple of 4096"});
  refuses(with(entry(1, kOffset), ~uint64_t{4095}), format, {"pass the end of the file"});
  refuses(with(entry(2, kOffset), get<uint64_t>(entry(2, kOffset)) + 4096), format, {"pass the end of the file"});
  refuses(with(entry(1, kStride), stride - 4096), format, {"stride is", "but what lies before ends at"});
  refuses(with(entry(1, kStride), stride + 8), format, {"stride is", "no multiple of 4096"});
  refuses(with(entry(1, kStride), uint64_t{1} << 62), format, {"pass the end of the file"});

  refuses(with<uint32_t>(part(0, 0, kFamily), 1), format, {"has 3 parts of the families 1, 1, 2, not 0, 1, 2 or 3, 2"});
  refuses(with<uint32_t>(part(1, 0, kFamily), 4000), format, {"families 4000, 2,"});
  refuses(with<uint32_t>(part(0, 1, kFormat), 999), unsupported, {"layer entry 0: format of ffn_up_exps is 999"});
  refuses(with<uint64_t>(part(0, 1, kIn), 0), format, {"n_in is 0"});
  refuses(with<uint64_t>(part(0, 1, kIn), 65), format, {"n_in of ffn_up_exps is 65", "blocks of 32 (Q8_0)"});
  refuses(with<uint64_t>(part(0, 1, kOut), uint64_t{1} << 32), format, {"n_out is 4294967296"});
  Bytes huge = with<uint64_t>(part(0, 2, kIn), UINT32_MAX);
  store(&huge[part(0, 2, kOut)], uint64_t{UINT32_MAX});
  refuses(sealed(huge), format, {"ffn_down_exps of 4294967295 x 4294967295 weights does not fit"});
  refuses(with<uint64_t>(part(0, 1, kPartOffset), 64), format,
          {"offset of a part is 64, but what lies before ends at 85"});
  refuses(with<uint64_t>(part(0, 1, kPartOffset), 129), format,
          {"offset of a part is 129, which is no multiple of 64"});
  refuses(with<uint64_t>(part(0, 1, kPartOffset), 8192), format,
          {"offset of ffn_up_exps is 8192, more than 4095 bytes"});
  refuses(with<uint64_t>(part(1, 1, kOut), 100000), format, {"layer entry 1: stride is"});
}

TEST_F(DamagedPack, IsRefusedForEveryBitBeforeTheRecords) {
  const size_t front = kEntries + 3 * (kEntryBytes + kExperts * 8);
  for (size_t bit = 0; bit < 8 * front; bit += 5) {
    Bytes bytes = bytes_;
    bytes[bit / 8] ^= std::byte{1} << bit % 8;
    EXPECT_THROW(open_bytes(bytes), Error) << bit;
  }
  Bytes bytes = bytes_;
  bytes[front - 1] ^= std::byte{1};
  refuses(bytes, ErrorKind::kFormat, {"checksum is", "but that of header and tables is"});
}

TEST_F(DamagedPack, IsRefusedWhenItIsCutShortOrAddedTo) {
  for (size_t size = 0; size < bytes_.size(); size += 1 + size / 7) {
    Bytes bytes = bytes_;
    bytes.resize(size);
    refuses(bytes, ErrorKind::kFormat, {fmt::format("{} bytes", size), "copy it again"});
  }
  Bytes longer = bytes_;
  longer.push_back({});
  refuses(longer, ErrorKind::kFormat, {"cut short or added to"});
}

TEST_F(DamagedPack, AFlippedBitIsFoundWithVerifyAndOnlyWithIt) {
  const Sidecar whole = open_bytes(bytes_);
  const LayerSource::Extent damaged = sources_of(whole)[1].extents()[0];
  Bytes bytes = bytes_;
  bytes[damaged.offset_of(3) + damaged.bytes - 1] ^= std::byte{1};
  write_bytes(folder_ / "damaged", bytes);
  const Sidecar sidecar = Sidecar::open(folder_ / "damaged");
  const std::vector<LayerSource> sources = sources_of(sidecar);
  const std::vector<uint32_t> all = {0, 1, 2, 3, 4, 5}, others = {0, 1, 2, 4, 5}, uses(6, 1);
  const auto ask = [&](Bank& bank, const std::vector<uint32_t>& experts) {
    Bank::Request request = bank.request(1, experts, std::span(uses).first(experts.size()));
    size_t n = 0;
    for (auto ready = request.next(); !ready.empty(); ready = request.next()) n += ready.size();
    return n;
  };
  const std::vector<std::string> words = {"damaged: layer 1, expert 3: what was read at offset",
                                          "pack the model again"};
  for (const ReadEngine engine : {ReadEngine::kAuto, ReadEngine::kThreads}) {
    for (const bool verify : {false, true}) {
      BankOptions options;
      options.engine = engine, options.verify = verify;
      Bank some(sources, SlotPlan(sources, BankSize::per_layer(4)), options);
      Bank full(sources, SlotPlan(sources, BankSize::all()), options);
      EXPECT_EQ(some.verifies(), verify);
      const auto fill = [&] { fill_all(full, [](uint64_t) {}); };
      if (verify) {
        expect_error([&] { ask(some, all); }, ErrorKind::kFormat, words);
        expect_error([&] { ask(some, {3}); }, ErrorKind::kFormat, words);
        EXPECT_EQ(ask(some, others), 5u) << "the others are as good as before";
        expect_error(fill, ErrorKind::kFormat, words);
        EXPECT_GT(some.verified().bytes, 5 * damaged.bytes);
      } else {
        EXPECT_EQ(ask(some, all), 6u);
        EXPECT_NO_THROW(fill());
        EXPECT_EQ(some.verified().bytes, 0u);
      }
    }
  }
}

TEST(Pack, ABankOfAPackedFileHoldsWhatTheModelHolds) {
  const Folder folder;
  const gguf::Container model = make_model(folder, mixed_tensors());
  const Sidecar sidecar = Sidecar::open(pack(folder, model));
  const std::vector<LayerSource> sources = sources_of(sidecar);
  BankOptions options;
  options.verify = true;
  for (const uint32_t slots : {1u, 2u, kExperts}) {
    Bank bank(sources, SlotPlan(sources, BankSize::per_layer(slots)), options);
    uint64_t read = 0;
    fill_all(bank, [&](uint64_t bytes) { read += bytes; });
    EXPECT_EQ(read, bank.bytes_of(bank.resident()));
    for (uint32_t layer = 0; layer < 3; ++layer) {
      const std::vector<uint32_t> experts = {5, 0, 3}, uses(3, 1);
      const bool fused = layer == 1;
      Bank::Request request = bank.request(layer, experts, uses);
      for (auto ready = request.next(); !ready.empty(); ready = request.next()) {
        for (const Bank::Ready& r : ready) {
          const std::vector<const char*> families = fused
                                                        ? std::vector{"ffn_gate_up_exps", "ffn_down_exps"}
                                                        : std::vector{"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"};
          for (size_t p = 0; p < families.size(); ++p) {
            const auto& tensor =
                model.get_tensor(fmt::format("blk.{}.{}.weight", std::array{0, 1, 4}[layer], families[p]));
            const Bytes wanted = expert_of(model, tensor, experts[r.index]);
            EXPECT_EQ(std::memcmp(r.parts[p], wanted.data(), wanted.size()), 0) << tensor.name;
          }
        }
      }
    }
    EXPECT_GT(bank.verified().bytes, 0u);
  }
}

// Other writers may leave out what would pad the last record.
TEST(Pack, RecordsMayEndWithTheFile) {
  constexpr uint64_t kBytes = 5000, kStride = 8192;
  Bytes bytes(2 * kStride + kBytes);
  std::mt19937 random(5);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  const auto file = memory_file("P", bytes);
  const std::vector<LayerSource> sources = {LayerSource(3, {{file.get(), 0, kBytes, kStride}})};
  Bank bank(sources, SlotPlan(sources, BankSize::all()), {});
  fill_all(bank, [](uint64_t) {});
  Bank::Request request = bank.request(0, std::array<uint32_t, 3>{0, 1, 2}, std::array<uint32_t, 3>{1, 1, 1});
  for (const Bank::Ready& r : request.next())
    EXPECT_EQ(std::memcmp(r.parts[0], &bytes[r.index * kStride], kBytes), 0) << r.index;
}

TEST(Pack, AnotherModelHasAnotherMark) {
  const Folder one, other;
  const gguf::Container a = make_model(one, mixed_tensors()), b = make_model(other, mixed_tensors(), 1, 2);
  EXPECT_NE(router_mark(a, 0), router_mark(b, 0));
  EXPECT_NE(router_mark(a, 0), router_mark(a, 1));
}

}  // namespace
}  // namespace sluice::experts
