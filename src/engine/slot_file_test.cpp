// What comes out of a slot file goes on with the bits of what went in; what is damaged or foreign is refused, and
// nothing has changed then.
#include "engine/slot_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"
#include "engine/test_models.h"

namespace sluice {
namespace {

using test::first;
using test::same_bits;
using test::some_tokens;
using ::testing::HasSubstr;
using test::operator+;
using Bytes = std::vector<std::byte>;
using Tokens = std::vector<int32_t>;

// A sequence of an engine, driven by hand.
class Slot {
 public:
  explicit Slot(Engine& engine)
      : engine_(engine), sequence_(engine.pages(), engine.model().layout.recurrent_floats()) {}

  // Computes the tokens and returns the logits after the last.
  std::vector<float> append(std::span<const int32_t> tokens) {
    std::vector<float> logits;
    for (size_t n; !tokens.empty(); tokens = tokens.subspan(n)) {
      n = std::min<size_t>(tokens.size(), engine_.micro_batch());
      model::Batch batch{{&sequence_}, {}, {}, false};
      for (size_t i = 0; i < n; ++i) batch.rows.push_back({0, tokens[i], i + 1 == n, false});
      model::Pass pass = engine_.begin_pass(std::move(batch));
      pass.finish();
      tokens_.insert(tokens_.end(), tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(n));
      logits.assign(pass.logits(0).begin(), pass.logits(0).end());
    }
    return logits;
  }

  SavedState state() const { return {tokens_, sequence_.snapshot()}; }
  void become(const SavedState& state) {
    tokens_ = state.tokens;
    sequence_.restore(state.snapshot);
  }

 private:
  Engine& engine_;
  state::Sequence sequence_;
  Tokens tokens_;
};

uint64_t save(const std::string& path, Engine& engine, const std::vector<SavedState>& states) {
  std::vector<StateToSave> views;
  for (const SavedState& state : states) views.push_back({state.tokens, &state.snapshot});
  return write_slot_file(path, slot_identity(engine), engine.pages(), views);
}

SlotLimits limits_of(const Engine& engine) { return {engine.context_size(), engine.model().hp.n_vocab}; }

std::vector<SavedState> read(const File& file, Engine& engine) {
  return read_slot_file(file, slot_identity(engine), limits_of(engine), engine.pages());
}

std::string message_of(const std::function<void()>& action, ErrorKind kind) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "no error";
}

// A folder that goes away with its files.
class SlotFile : public ::testing::Test {
 protected:
  SlotFile() { std::filesystem::create_directories(folder); }
  ~SlotFile() override { std::filesystem::remove_all(folder); }
  size_t files() const { return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {})); }

  const std::string folder = ::testing::TempDir() + fmt::format("sluice_slot_file_{}", ::getpid());
  const std::string path = folder + "/a.bin";
};

TEST_F(SlotFile, AnotherEngineGoesOnWithTheSameBits) {
  const Tokens system = some_tokens(70, 1), question = some_tokens(30, 2), more = some_tokens(5, 3);
  const Tokens other = some_tokens(80, 4);
  for (const auto cache_type : {ops::cpu::CacheType::kF32, ops::cpu::CacheType::kF16, ops::cpu::CacheType::kBf16}) {
    EngineOptions options = test::micro_options();
    options.cache_type = cache_type;
    options.context = 512;
    std::vector<float> after_question, after_system, after_other;
    {
      Engine engine(options);
      Slot slot(engine);
      std::vector<SavedState> states;
      slot.append(system);
      SavedState at_system = slot.state();
      slot.append(question);
      states.push_back(slot.state());
      after_question = slot.append(more);
      slot.become(at_system);
      after_system = slot.append(more);
      states.push_back(std::move(at_system));
      Slot another(engine);  // nothing in common with the first
      another.append(other);
      states.push_back(another.state());
      after_other = another.append(more);
      const uint64_t written = save(path, engine, states);
      EXPECT_EQ(written, std::filesystem::file_size(path));
    }
    options.micro_batch = 16;  // what is computed differently must not matter
    Engine engine(options);
    const size_t free_pages = engine.pages().free_pages();
    {
      const std::vector<SavedState> states = read(*open_file(path), engine);
      ASSERT_EQ(states.size(), 3u);
      EXPECT_EQ(engine.pages().free_pages(), free_pages - 2 - 1 - 2) << "the first page is shared by the first two";
      EXPECT_EQ(states[0].tokens, system + question);
      EXPECT_EQ(states[1].tokens, system);
      EXPECT_EQ(states[2].tokens, other);
      Slot slot(engine);
      for (const auto& [state, expected] :
           {std::pair(&states[1], &after_system), std::pair(&states[0], &after_question),
            std::pair(&states[2], &after_other)}) {
        slot.become(*state);
        EXPECT_TRUE(same_bits(slot.append(more), *expected));
      }
    }
    EXPECT_EQ(engine.pages().free_pages(), free_pages);
  }
}

TEST_F(SlotFile, PagesSharedBeforeAreWrittenOnce) {
  Engine engine(test::micro_options());
  Slot slot(engine);
  slot.append(some_tokens(64));
  std::vector<SavedState> states;
  states.push_back(slot.state());
  const uint64_t one = save(path, engine, states);
  states.push_back(slot.state());
  const uint64_t two = save(path, engine, states);
  EXPECT_EQ(two - one, 16 + 4 + engine.model().layout.recurrent_floats() * sizeof(float));
}

TEST_F(SlotFile, AnEmptySlotIsAStateToo) {
  Engine engine(test::micro_options());
  std::vector<SavedState> states;
  states.push_back(Slot(engine).state());
  save(path, engine, states);
  const std::vector<SavedState> again = read(*open_file(path), engine);
  ASSERT_EQ(again.size(), 1u);
  Slot slot(engine), fresh(engine);
  slot.append(some_tokens(3, 9));
  slot.become(again[0]);
  EXPECT_TRUE(same_bits(slot.append(some_tokens(4)), fresh.append(some_tokens(4))));
}

TEST_F(SlotFile, AModelWithoutRecurrentStateIsSavedToo) {
  // What a plain transformer saves: pages alone.
  state::PagePool pool(4096, 8);
  state::Sequence sequence(pool, 0);
  sequence.begin_step(100);
  sequence.page_of(99)[7] = std::byte{42};
  sequence.commit_step();
  const state::Snapshot snapshot = sequence.snapshot();
  const SlotIdentity identity{1, ops::cpu::CacheType::kF16, 4096, 0};
  const Tokens tokens = some_tokens(100);
  const StateToSave state{tokens, &snapshot};
  write_slot_file(path, identity, pool, {&state, 1});
  const auto again = read_slot_file(*open_file(path), identity, {256, 640}, pool);
  EXPECT_EQ(again[0].tokens, tokens);
  EXPECT_EQ(pool.data(again[0].snapshot.pages()[1])[7], std::byte{42});
}

// ---- what is refused ----

// A small file of two states, in memory, and an engine to read it.
class DamagedSlotFile : public SlotFile {
 protected:
  DamagedSlotFile() : engine(test::micro_options()), identity(slot_identity(engine)) {
    Slot slot(engine);
    slot.append(some_tokens(65));
    std::vector<SavedState> states;
    SavedState early = slot.state();
    slot.append(some_tokens(3, 1));
    states.push_back(slot.state());
    states.push_back(std::move(early));
    save(path, engine, states);
    const std::string text = read_text_file(path);
    const auto all = std::as_bytes(std::span(text));
    bytes.assign(all.begin(), all.end());
  }

  std::string refusal(Bytes changed, ErrorKind kind = ErrorKind::kFormat) {
    const size_t free_pages = engine.pages().free_pages();
    const std::string message = message_of(
        [&] { read_slot_file(*memory_file("S.bin", std::move(changed)), identity, limits_of(engine), engine.pages()); },
        kind);
    EXPECT_EQ(engine.pages().free_pages(), free_pages);
    EXPECT_THAT(message, ::testing::StartsWith("S.bin: "));
    return message;
  }

  // With a field of the header or tables changed, and a checksum that says so.
  template <typename T>
  Bytes with(size_t offset, T value) const {
    Bytes changed = bytes;
    store(&changed[offset], value);
    store(&changed[24], uint64_t{0});
    store(&changed[24], xxh64(std::span(changed).first(kFront)));
    return changed;
  }

  // Where things lie in this file: two states, 3 pages, 68 tokens, 4 places.
  static constexpr size_t kStates = 128, kPages = kStates + 2 * 16, kTokens = kPages + 3 * 8,
                          kPlaces = kTokens + 68 * 4, kFront = kPlaces + 4 * 4;
  Engine engine;
  const SlotIdentity identity;
  Bytes bytes;
};

TEST_F(DamagedSlotFile, EveryFlippedByteIsNoticed) {
  std::mt19937 random(5);
  std::vector<size_t> places;
  for (size_t i = 0; i < kFront; ++i) places.push_back(i);
  for (int i = 0; i < 300; ++i) places.push_back(kFront + random() % (bytes.size() - kFront));
  places.push_back(bytes.size() - 1);
  for (const size_t place : places) {
    Bytes changed = bytes;
    changed[place] ^= std::byte{static_cast<uint8_t>(1u << random() % 8)};
    const ErrorKind kind = place >= 8 && place < 12 ? ErrorKind::kUnsupported : ErrorKind::kFormat;
    EXPECT_NE(refusal(std::move(changed), kind), "no error") << "byte " << place;
  }
}

TEST_F(DamagedSlotFile, EveryOtherLengthIsNoticed) {
  for (size_t n = 0; n < bytes.size(); n += n < kFront ? 1 : 997)
    EXPECT_NE(refusal({bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n)}), "no error") << n << " bytes";
  Bytes longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_THAT(refusal(longer), HasSubstr("file_bytes"));
  // Also where the header says that length.
  EXPECT_THAT(refusal([&] {
                Bytes told = with(16, uint64_t{longer.size()});
                told.push_back(std::byte{0});
                return told;
              }()),
              HasSubstr("do not end where the file does"));
}

TEST_F(DamagedSlotFile, FieldsThatContradictAreNamed) {
  ASSERT_EQ(load<uint32_t>(&bytes[64]), 68u);
  const auto refused = [&](size_t offset, auto value, const char* word, ErrorKind kind = ErrorKind::kFormat) {
    EXPECT_THAT(refusal(with(offset, value), kind), HasSubstr(word)) << "offset " << offset;
  };
  refused(8, uint32_t{2}, "version is 2", ErrorKind::kUnsupported);
  refused(12, uint32_t{0}, "n_states is 0, not from 1 to 1024");
  refused(12, uint32_t{1025}, "n_states");
  refused(32, uint64_t{7}, "model is 0000000000000007");
  refused(40, uint32_t{0}, "cache_type is f32, but the KV cache is f16");
  refused(40, uint32_t{77}, "cache_type is of the unknown number 77");
  refused(44, uint32_t{32}, "tile is 32");
  refused(48, uint64_t{1} << 63, "page_bytes");
  refused(56, uint64_t{0}, "recurrent_bytes");
  refused(64, uint32_t{1} << 25, "n_tokens");
  refused(68, UINT32_MAX, "n_places");
  refused(72, uint32_t{5}, "n_pages is 5, not from 0 to 4");
  refused(76, uint8_t{1}, "reserved");
  refused(kStates, uint32_t{257}, "length of state 0 is 257, but the context has 256");
  refused(kStates, uint32_t{67}, "n_tokens is 68");
  refused(kStates + 4, uint32_t{1}, "shared of state 0");
  refused(kStates + 16 + 4, uint32_t{66}, "shared of state 1 is 66, more than 65");
  refused(kStates + 8, uint64_t{1}, "checksum of recurrent state 0");
  refused(kPages + 8, uint64_t{1}, "checksum of page 1");
  refused(kTokens + 8, int32_t{-1}, "token -1");
  refused(kTokens + 8, int32_t{640}, "token 640 is none of the vocabulary's 640");
  refused(kPlaces, uint32_t{1}, "place 0 is 1");
  refused(kPlaces + 4, uint32_t{0}, "of positions 0 for one state and 64 for another");
  refused(kPlaces + 12, uint32_t{1}, "n_pages is 3, but the states have 2");
  refused(kPlaces + 12, uint32_t{3}, "place 3 is 3");
}

TEST_F(DamagedSlotFile, AFileOfAnotherModelIsRefused) {
  EngineOptions options = test::micro_options();
  const auto refused_by = [&](const char* word) {
    Engine other(options);
    const size_t free_pages = other.pages().free_pages();
    EXPECT_THAT(message_of([&] { read(*open_file(path), other); }, ErrorKind::kFormat), HasSubstr(word));
    EXPECT_EQ(other.pages().free_pages(), free_pages);
  };
  options.overrides = {"qwen35moe.rope.freq_base=float:20000"};
  refused_by("model is");
  options = test::micro_options();
  options.experts.used = 1;
  refused_by("model is");
  options = test::micro_options();
  options.cache_type = ops::cpu::CacheType::kBf16;
  refused_by("cache_type is f16, but the KV cache is bf16");
}

TEST_F(DamagedSlotFile, AModelWithOneOtherTensorIsAnotherModel) {
  const std::string copy = folder + "/model.gguf";
  std::filesystem::copy_file(test::micro_model(), copy);
  std::filesystem::permissions(copy, std::filesystem::perms::owner_write, std::filesystem::perm_options::add);
  EngineOptions options = test::micro_options();
  options.path = copy;
  EXPECT_EQ(slot_identity(Engine(options)).model, identity.model) << "a copy is the same model, wherever it lies";
  const gguf::Container container = gguf::Container::open(copy);
  const gguf::TensorInfo& tensor = container.get_tensor("blk.2.ffn_gate_inp.weight");
  std::byte byte;
  container.read(tensor, 100, {&byte, 1});
  std::fstream file(copy, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(tensor.offset + 100));
  file.put(static_cast<char>(std::to_integer<int>(byte) ^ 1));
  file.close();
  EXPECT_NE(slot_identity(Engine(options)).model, identity.model);
}

TEST_F(DamagedSlotFile, ASmallerContextOrAFullCacheIsSaid) {
  EngineOptions options = test::micro_options();
  options.context = 64;
  Engine small(options);
  EXPECT_THAT(
      message_of([&] { read(*open_file(path), small); }, ErrorKind::kFormat),
      ::testing::AllOf(HasSubstr("length of state 0 is 68"), HasSubstr("64 positions"), HasSubstr("--ctx-size")));
  std::vector<std::unique_ptr<Slot>> others;
  while (engine.pages().free_pages() > 2) others.emplace_back(new Slot(engine))->append(some_tokens(1));
  EXPECT_THAT(refusal(bytes, ErrorKind::kLimit), HasSubstr("needs 3 pages of 64 positions of the KV cache, 2 of"));
}

TEST_F(DamagedSlotFile, AFailingDiskOrMemoryLeavesThePoolAsItWas) {
  const size_t free_pages = engine.pages().free_pages();
  const auto read_with = [&](ReadFault fault, ErrorKind kind) {
    const auto file = with_faults(memory_file("S.bin", bytes), std::move(fault));
    const std::string message =
        message_of([&] { read_slot_file(*file, identity, limits_of(engine), engine.pages()); }, kind);
    EXPECT_EQ(engine.pages().free_pages(), free_pages);
    return message;
  };
  const auto whole = [](uint64_t, uint64_t, uint64_t length) { return static_cast<int64_t>(length); };
  uint64_t reads = 0;
  read_with([&](uint64_t i, uint64_t, uint64_t length) { return reads = i + 1, static_cast<int64_t>(length); },
            ErrorKind::kIo);
  ASSERT_EQ(reads, 2u + 3 + 2);
  for (uint64_t bad = 0; bad < reads; ++bad) {
    EXPECT_THAT(read_with([&](uint64_t i, uint64_t, uint64_t n) { return i == bad ? -EIO : static_cast<int64_t>(n); },
                          ErrorKind::kIo),
                HasSubstr("Input/output error"));
    EXPECT_THAT(read_with([&](uint64_t i, uint64_t, uint64_t n) { return static_cast<int64_t>(i == bad ? n / 2 : n); },
                          ErrorKind::kIo),
                HasSubstr("ends at"));
  }
  for (int64_t n = 0; n < 2; ++n) {
    fail_allocation_after(n);
    EXPECT_THAT(read_with(whole, ErrorKind::kLimit), HasSubstr("recurrent state"));
  }
  fail_allocation_after(-1);
}

// ---- writing ----

TEST_F(DamagedSlotFile, AFullDiskLeavesTheFileThatWasThere) {
  Slot slot(engine);
  slot.append(some_tokens(90, 7));
  std::vector<SavedState> states;
  states.push_back(slot.state());
  const uint64_t size = save(folder + "/b.bin", engine, states);
  for (uint64_t room = 0; room < size; room += size / 9) {
    fill_disk_after(static_cast<int64_t>(room));
    EXPECT_THAT(message_of([&] { save(path, engine, states); }, ErrorKind::kIo), HasSubstr("No space left on device"));
    fill_disk_after(-1);
    EXPECT_EQ(read(*open_file(path), engine)[0].tokens.size(), 68u) << "the old one";
    EXPECT_EQ(files(), 2u) << "and nothing else";
  }
  save(path, engine, states);
  EXPECT_EQ(read(*open_file(path), engine)[0].tokens.size(), 90u);
}

TEST_F(DamagedSlotFile, AFolderThatIsNotThereIsAnError) {
  Slot slot(engine);
  std::vector<SavedState> states;
  states.push_back(slot.state());
  EXPECT_THAT(message_of([&] { save(folder + "/missing/a.bin", engine, states); }, ErrorKind::kIo),
              HasSubstr("missing"));
}

TEST_F(DamagedSlotFile, NoStatesAndTooManyAreRefused) {
  EXPECT_THAT(message_of([&] { save(path, engine, {}); }, ErrorKind::kLimit), HasSubstr("from 1 to 1024"));
  const Slot empty(engine);
  std::vector<SavedState> states;
  for (uint32_t i = 0; i < kMaxSlotStates; ++i) states.push_back(empty.state());
  const std::string many = folder + "/many.bin";
  save(many, engine, states);
  EXPECT_EQ(read(*open_file(many), engine).size(), kMaxSlotStates);
  states.push_back(empty.state());
  EXPECT_THAT(message_of([&] { save(path, engine, states); }, ErrorKind::kLimit), HasSubstr("from 1 to 1024"));
  EXPECT_EQ(read(*open_file(path), engine).size(), 2u) << "the old file";
}

TEST(SlotFileName, OnlyPlainNamesAreTaken) {
  EXPECT_EQ(slot_file_path("/slots", "chat 1.bin"), "/slots/chat 1.bin");
  EXPECT_EQ(slot_file_path("slots", std::string(200, 'a')), "slots/" + std::string(200, 'a'));
  using namespace std::string_literals;
  for (const std::string& name : {""s, "."s, ".."s, ".hidden"s, "a/b"s, "/etc/passwd"s, "../a"s, "a\\b"s, "a\0b"s,
                                  "a\nb"s, "a\x7F"s, std::string(201, 'a')})
    EXPECT_THAT(message_of([&] { slot_file_path("/slots", name); }, ErrorKind::kUsage), HasSubstr("filename")) << name;
}

}  // namespace
}  // namespace sluice
