#include "engine/slot_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <utility>

#include "base/bytes.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"

namespace sluice {

namespace {

constexpr std::string_view kMagic = "SLUICESL";
constexpr uint32_t kVersion = 1;
constexpr uint32_t kTile = ops::cpu::kTile;
constexpr uint32_t kMaxTokens = 1u << 24, kMaxPlaces = 1u << 24;  // of all states; some 200 MB of tables
constexpr size_t kMaxNameBytes = 200;  // leaves room for what the temporary file's name adds, of 255
constexpr const char* kRemedy = "the file is damaged; delete it and save the slot again";

// ---- as it lies in the file ----

struct RawHeader {
  char magic[8];
  uint32_t version, n_states;
  uint64_t file_bytes;
  uint64_t checksum;  // of all before the pages, with 0 here
  uint64_t model;
  uint32_t cache_type, tile;
  uint64_t page_bytes, recurrent_bytes;
  uint32_t n_tokens, n_places, n_pages;
  char reserved[52];
};
struct RawState {
  uint32_t length, shared;
  uint64_t checksum;  // of the recurrent state
};
static_assert(sizeof(RawHeader) == 128 && sizeof(RawState) == 16);

// What stands between header and pages, in this order.
struct Tables {
  std::vector<RawState> states;
  std::vector<uint64_t> pages;   // their checksums
  std::vector<int32_t> tokens;   // of each state those that it doesn't share with the first
  std::vector<uint32_t> places;  // of each state the numbers of its pages in the file, by position / kTile

  uint64_t bytes() const {
    return states.size() * sizeof(RawState) + pages.size() * sizeof(uint64_t) + tokens.size() * sizeof(int32_t) +
           places.size() * sizeof(uint32_t);
  }

  // Calls act(pointer, bytes) for each table.
  void each(const auto& act) {
    const auto one = [&](auto& table) { act(table.data(), table.size() * sizeof(table[0])); };
    one(states), one(pages), one(tokens), one(places);
  }
};

// GGUF's number of the format.
uint32_t code_of(ops::cpu::CacheType type) {
  switch (type) {
    case ops::cpu::CacheType::kF32:
      return 0;
    case ops::cpu::CacheType::kF16:
      return 1;
    case ops::cpu::CacheType::kBf16:
      return 30;
  }
  return UINT32_MAX;
}

std::string name_of_code(uint32_t code) {
  return code == 0 ? "f32" : code == 1 ? "f16" : code == 30 ? "bf16" : fmt::format("of the unknown number {}", code);
}

uint64_t places_of(uint64_t length) { return (length + kTile - 1) / kTile; }

uint64_t checksum_of_front(std::vector<std::byte>& front) {
  const auto checksum = load<uint64_t>(&front[offsetof(RawHeader, checksum)]);
  store(&front[offsetof(RawHeader, checksum)], uint64_t{0});
  const uint64_t computed = xxh64(front);
  store(&front[offsetof(RawHeader, checksum)], checksum);
  return computed;
}

size_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

// ---- writing ----

// The pages of states, each once, in the order in which they are met.
class PageNumbers {
 public:
  uint32_t number_of(state::PageId page) {
    const auto [at, is_new] = numbers_.try_emplace(page, static_cast<uint32_t>(pages_.size()));
    if (is_new) pages_.push_back(page);
    return at->second;
  }
  const std::vector<state::PageId>& pages() const { return pages_; }

 private:
  std::map<state::PageId, uint32_t> numbers_;
  std::vector<state::PageId> pages_;
};

Tables tables_of(std::span<const StateToSave> states, const SlotIdentity& identity, PageNumbers& numbers) {
  Tables tables;
  for (const StateToSave& state : states) {
    const state::Snapshot& snapshot = *state.snapshot;
    if (state.tokens.size() != snapshot.length() || snapshot.recurrent().size() != identity.recurrent_bytes)
      fail(ErrorKind::kInternal, "slot to be saved: {} tokens and {} bytes, but a state of {} positions and {} bytes",
           state.tokens.size(), identity.recurrent_bytes, snapshot.length(), snapshot.recurrent().size());
    const size_t shared = &state == states.data() ? 0 : common_prefix(state.tokens, states[0].tokens);
    tables.states.push_back(
        {static_cast<uint32_t>(snapshot.length()), static_cast<uint32_t>(shared), xxh64(snapshot.recurrent())});
    const auto own = state.tokens.subspan(shared);
    tables.tokens.insert(tables.tokens.end(), own.begin(), own.end());
    for (const state::PageId page : snapshot.pages()) tables.places.push_back(numbers.number_of(page));
  }
  return tables;
}

void check_counts(std::span<const StateToSave> states, const Tables& tables) {
  if (states.empty() || states.size() > kMaxSlotStates)
    fail(ErrorKind::kLimit, "slot to be saved: {} states are not from 1 to {}", states.size(), kMaxSlotStates);
  if (tables.tokens.size() > kMaxTokens || tables.places.size() > kMaxPlaces)
    fail(ErrorKind::kLimit, "slot to be saved: {} tokens or {} pages are more than {}; keep fewer states of a prompt",
         tables.tokens.size(), tables.places.size(), kMaxTokens);
}

// Header and tables.
std::vector<std::byte> front_of(const SlotIdentity& identity, Tables& tables) {
  RawHeader header{};
  std::ranges::copy(kMagic, header.magic);
  header.version = kVersion;
  header.n_states = static_cast<uint32_t>(tables.states.size());
  header.model = identity.model;
  header.cache_type = code_of(identity.cache_type);
  header.tile = kTile;
  header.page_bytes = identity.page_bytes;
  header.recurrent_bytes = identity.recurrent_bytes;
  header.n_tokens = static_cast<uint32_t>(tables.tokens.size());
  header.n_places = static_cast<uint32_t>(tables.places.size());
  header.n_pages = static_cast<uint32_t>(tables.pages.size());
  std::vector<std::byte> front(sizeof(header) + tables.bytes());
  header.file_bytes =
      front.size() + tables.pages.size() * identity.page_bytes + tables.states.size() * identity.recurrent_bytes;
  store(front.data(), header);
  std::byte* at = front.data() + sizeof(header);
  tables.each([&](const void* table, size_t bytes) {
    if (bytes > 0) std::memcpy(at, table, bytes);
    at += bytes;
  });
  store(&front[offsetof(RawHeader, checksum)], checksum_of_front(front));
  return front;
}

}  // namespace

std::string slot_file_path(const std::string& folder, std::string_view name) {
  const auto refuse = [](const std::string& why) {
    fail(ErrorKind::kUsage, "filename: {}; give a plain name of 1 to {} bytes, such as chat.bin", why, kMaxNameBytes);
  };
  if (name.empty()) refuse("is empty");
  if (name.size() > kMaxNameBytes) refuse(fmt::format("has {} bytes", name.size()));
  if (name.front() == '.') refuse("begins with a dot");
  for (const char c : name) {
    if (c == '/' || c == '\\') refuse("names a folder");
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) refuse("has a control character");
  }
  return fmt::format("{}/{}", folder, name);
}

uint64_t write_slot_file(const std::string& path, const SlotIdentity& identity, const state::PagePool& pool,
                         std::span<const StateToSave> states) {
  PageNumbers numbers;
  Tables tables = tables_of(states, identity, numbers);
  check_counts(states, tables);
  const auto bytes_of = [&](state::PageId page) { return std::span(pool.data(page), identity.page_bytes); };
  for (const state::PageId page : numbers.pages()) tables.pages.push_back(xxh64(bytes_of(page)));
  AtomicFileWriter out(path);
  out.write(front_of(identity, tables));
  for (const state::PageId page : numbers.pages()) out.write(bytes_of(page));
  for (const StateToSave& state : states) out.write(state.snapshot->recurrent());
  out.commit();
  return out.offset();
}

// ---- reading -------------------------------------------------------------------------------------------------------

namespace {

// Pages that go back to the pool with it, but for those that others hold as well by then.
class HeldPages {
 public:
  // The pool has so many free.
  HeldPages(state::PagePool& pool, size_t n) : pool_(pool), pages_(n) {
    for (state::PageId& page : pages_) page = pool_.acquire();
  }
  ~HeldPages() {
    for (const state::PageId page : pages_) pool_.release(page);
  }
  HeldPages(const HeldPages&) = delete;
  HeldPages& operator=(const HeldPages&) = delete;

  state::PageId operator[](size_t i) const { return pages_[i]; }

 private:
  state::PagePool& pool_;
  std::vector<state::PageId> pages_;
};

// Of one file; refuses what can't be.
class Reader {
 public:
  Reader(const File& file, const SlotIdentity& identity, const SlotLimits& limits)
      : file_(file), identity_(identity), limits_(limits) {}

  std::vector<SavedState> read(state::PagePool& pool) {
    read_header();
    read_tables();
    check_identity();
    check_size();
    check_states();
    check_tokens();
    check_places();
    check_room(pool);
    const HeldPages pages(pool, header_.n_pages);
    for (uint32_t i = 0; i < header_.n_pages; ++i) read_page(i, pool.data(pages[i]));
    std::vector<SavedState> states;
    std::span<const int32_t> tokens(tables_.tokens);
    std::span<const uint32_t> places(tables_.places);
    for (const RawState& raw : tables_.states) {
      SavedState& state = states.emplace_back();
      const size_t own = raw.length - raw.shared, n_places = places_of(raw.length);
      const auto shared = std::span<const int32_t>(states[0].tokens).first(raw.shared);
      state.tokens.assign(shared.begin(), shared.end());
      state.tokens.insert(state.tokens.end(), tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(own));
      std::vector<state::PageId> its_pages;
      for (const uint32_t place : places.first(n_places)) its_pages.push_back(pages[place]);
      state.snapshot = {pool, its_pages, raw.length, read_recurrent(raw, states.size() - 1)};
      tokens = tokens.subspan(own);
      places = places.subspan(n_places);
    }
    return states;
  }

 private:
  template <typename... Args>
  [[noreturn]] void refuse(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) const {
    fail(kind, "{}: {}", file_.path(), fmt::format(format, std::forward<Args>(args)...));
  }

  void check_count(const char* field, uint64_t value, uint64_t least, uint64_t most) const {
    if (value < least || value > most)
      refuse(ErrorKind::kFormat, "{} is {}, not from {} to {}; {}", field, value, least, most, kRemedy);
  }

  void read_header() {
    if (file_.size() < sizeof(RawHeader))
      refuse(ErrorKind::kFormat,
             "has {} bytes, but a slot file begins with {} of header; it was cut short, save the slot again",
             file_.size(), sizeof(RawHeader));
    file_.read_at(0, std::as_writable_bytes(std::span(&header_, 1)));
    if (std::string_view(header_.magic, sizeof(header_.magic)) != kMagic)
      refuse(ErrorKind::kFormat, "does not begin as a slot file of Sluice; save the slot with this program");
    if (header_.version != kVersion)
      refuse(ErrorKind::kUnsupported, "version is {}; Sluice reads version {}, save the slot again", header_.version,
             kVersion);
    if (header_.file_bytes != file_.size())
      refuse(ErrorKind::kFormat,
             "has {} bytes, but file_bytes is {}; it was cut short or added to, save the slot again", file_.size(),
             header_.file_bytes);
    check_count("n_states", header_.n_states, 1, kMaxSlotStates);
    check_count("n_tokens", header_.n_tokens, 0, kMaxTokens);
    check_count("n_places", header_.n_places, 0, kMaxPlaces);
    check_count("n_pages", header_.n_pages, 0, header_.n_places);
  }

  void read_tables() {
    const uint64_t bytes = sizeof(RawHeader) + header_.n_states * sizeof(RawState) +
                           header_.n_pages * sizeof(uint64_t) + header_.n_tokens * sizeof(int32_t) +
                           header_.n_places * sizeof(uint32_t);
    if (bytes > file_.size())
      refuse(ErrorKind::kFormat, "header and tables have {} bytes, but the file {}; {}", bytes, file_.size(), kRemedy);
    std::vector<std::byte> front(bytes);
    file_.read_at(0, front);
    if (const uint64_t found = checksum_of_front(front); found != header_.checksum)
      refuse(ErrorKind::kFormat, "checksum is {:016x}, but that of header and tables is {:016x}; {}", header_.checksum,
             found, kRemedy);
    if (std::ranges::any_of(header_.reserved, [](char c) { return c != 0; }))
      refuse(ErrorKind::kFormat, "reserved bytes of the header are not 0; {}", kRemedy);
    tables_.states.resize(header_.n_states);
    tables_.pages.resize(header_.n_pages);
    tables_.tokens.resize(header_.n_tokens);
    tables_.places.resize(header_.n_places);
    const std::byte* at = front.data() + sizeof(RawHeader);
    tables_.each([&](void* table, size_t n) {
      if (n > 0) std::memcpy(table, at, n);
      at += n;
    });
    data_ = bytes;
  }

  void check_identity() const {
    if (header_.model != identity_.model)
      refuse(ErrorKind::kFormat,
             "model is {:016x}, but the one that is loaded is {:016x}; restore it with the model and the "
             "--override-kv that it was saved with",
             header_.model, identity_.model);
    if (header_.cache_type != code_of(identity_.cache_type))
      refuse(ErrorKind::kFormat,
             "cache_type is {}, but the KV cache is {}; start with the --cache-type-k and -v that "
             "it was saved with",
             name_of_code(header_.cache_type), name_of_code(code_of(identity_.cache_type)));
    const auto check = [&](const char* field, uint64_t value, uint64_t own) {
      if (value != own)
        refuse(ErrorKind::kFormat, "{} is {}, but this program's state has {}; save the slot again", field, value, own);
    };
    check("tile", header_.tile, kTile);
    check("page_bytes", header_.page_bytes, identity_.page_bytes);
    check("recurrent_bytes", header_.recurrent_bytes, identity_.recurrent_bytes);
  }

  void check_size() const {
    const auto pages = try_mul<uint64_t>(header_.n_pages, header_.page_bytes);
    const auto states = try_mul<uint64_t>(header_.n_states, header_.recurrent_bytes);
    const auto behind = pages && states ? try_add(*pages, *states) : std::nullopt;
    const auto end = behind ? try_add(data_, *behind) : std::nullopt;
    if (end != file_.size())
      refuse(ErrorKind::kFormat,
             "{} pages and {} states behind {} bytes of tables do not end where the file does ({}); "
             "{}",
             header_.n_pages, header_.n_states, data_, file_.size(), kRemedy);
  }

  void check_states() const {
    uint64_t tokens = 0, places = 0;
    for (size_t i = 0; i < tables_.states.size(); ++i) {
      const RawState& state = tables_.states[i];
      if (state.length > limits_.context)
        refuse(ErrorKind::kFormat,
               "length of state {} is {}, but the context has {} positions; start with a larger "
               "--ctx-size",
               i, state.length, limits_.context);
      const uint32_t most = i == 0 ? 0 : std::min(state.length, tables_.states[0].length);
      if (state.shared > most)
        refuse(ErrorKind::kFormat, "shared of state {} is {}, more than {}; {}", i, state.shared, most, kRemedy);
      tokens += state.length - state.shared;
      places += places_of(state.length);
    }
    if (tokens != header_.n_tokens || places != header_.n_places)
      refuse(ErrorKind::kFormat, "the states have {} tokens and {} pages, but n_tokens is {} and n_places {}; {}",
             tokens, places, header_.n_tokens, header_.n_places, kRemedy);
  }

  void check_tokens() const {
    for (const int32_t token : tables_.tokens)
      if (token < 0 || static_cast<uint32_t>(token) >= limits_.n_vocab)
        refuse(ErrorKind::kFormat, "token {} is none of the vocabulary's {}; {}", token, limits_.n_vocab, kRemedy);
  }

  // Pages are numbered as they are met, so that each has a state; and one holds the same positions for all.
  void check_places() const {
    std::vector<size_t> position_of;  // by number, / kTile
    size_t at = 0;
    for (const RawState& state : tables_.states) {
      for (size_t position = 0; position < places_of(state.length); ++position, ++at) {
        const uint32_t place = tables_.places[at];
        if (place > position_of.size() || place >= header_.n_pages)
          refuse(ErrorKind::kFormat, "place {} is {}, but {} of {} pages are before it; {}", at, place,
                 position_of.size(), header_.n_pages, kRemedy);
        if (place == position_of.size()) position_of.push_back(position);
        if (position_of[place] != position)
          refuse(ErrorKind::kFormat, "place {} is page {}, of positions {} for one state and {} for another; {}", at,
                 place, position_of[place] * kTile, position * kTile, kRemedy);
      }
    }
    if (position_of.size() != header_.n_pages)
      refuse(ErrorKind::kFormat, "n_pages is {}, but the states have {}; {}", header_.n_pages, position_of.size(),
             kRemedy);
  }

  void check_room(const state::PagePool& pool) const {
    if (header_.n_pages > pool.free_pages())
      refuse(ErrorKind::kLimit,
             "needs {} pages of {} positions of the KV cache, {} of {} are free; erase other slots, or start with a "
             "larger --ctx-size",
             header_.n_pages, kTile, pool.free_pages(), pool.size());
  }

  void read_page(uint32_t i, std::byte* to) const {
    const std::span<std::byte> page(to, header_.page_bytes);
    file_.read_at(data_ + i * header_.page_bytes, page);
    check_sum("page", i, tables_.pages[i], page);
  }

  Buffer read_recurrent(const RawState& raw, size_t i) const {
    Buffer state(header_.recurrent_bytes, "recurrent state of a slot file");
    file_.read_at(data_ + header_.n_pages * header_.page_bytes + i * header_.recurrent_bytes, state.bytes());
    check_sum("recurrent state", i, raw.checksum, state.bytes());
    return state;
  }

  void check_sum(const char* what, size_t i, uint64_t expected, std::span<const std::byte> bytes) const {
    if (const uint64_t found = xxh64(bytes); found != expected)
      refuse(ErrorKind::kFormat, "the checksum of {} {} is {:016x}, not {:016x} as the file says; {}", what, i, found,
             expected, kRemedy);
  }

  const File& file_;
  const SlotIdentity& identity_;
  const SlotLimits& limits_;
  RawHeader header_{};
  Tables tables_;
  uint64_t data_ = 0;  // where the pages begin
};

}  // namespace

std::vector<SavedState> read_slot_file(const File& file, const SlotIdentity& identity, const SlotLimits& limits,
                                       state::PagePool& pool) {
  return Reader(file, identity, limits).read(pool);
}

}  // namespace sluice
