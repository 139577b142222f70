#include "experts/bank.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "base/system.h"

namespace sluice::experts {

namespace {

constexpr uint32_t kRunLength = 256;                // experts a read of fill(): tens of MB for real models
constexpr uint64_t kInFlight = uint64_t{64} << 20;  // bytes asked of the disk at once: some 30 ms of a fast one
constexpr uint64_t kGuessed = uint64_t{16} << 20;   // of them at most for guesses: what is needed next waits for them
constexpr unsigned kQueueDepth = 256;

std::vector<uint32_t> classes_of_slots(const SlotPlan& plan) {
  std::vector<uint32_t> classes;
  for (uint32_t c = 0; c < plan.slots_of_class().size(); ++c)
    classes.insert(classes.end(), plan.slots_of_class()[c], c);
  return classes;
}

std::vector<const File*> distinct_files(std::span<const LayerSource> layers) {
  std::vector<const File*> files;
  for (const LayerSource& layer : layers)
    for (const LayerSource::Extent& extent : layer.extents())
      if (std::ranges::find(files, extent.file) == files.end()) files.push_back(extent.file);
  return files;
}

}  // namespace

Traffic& Traffic::operator+=(const Traffic& other) {
  hits += other.hits, misses += other.misses, bytes_read += other.bytes_read, stall_seconds += other.stall_seconds;
  return *this;
}

Traffic Traffic::operator-(const Traffic& before) const {
  return {hits - before.hits, misses - before.misses, bytes_read - before.bytes_read,
          stall_seconds - before.stall_seconds};
}

Bank::Bank(std::vector<LayerSource> layers, const SlotPlan& plan, const BankOptions& options)
    : layers_(std::move(layers)),
      complete_(plan.complete()),
      verify_(options.verify && std::ranges::all_of(layers_, [](const auto& l) { return !l.checksums().empty(); })),
      map_(layers_.at(0).n_experts(), {plan.class_of_layer().begin(), plan.class_of_layer().end()},
           {plan.slots_of_class().begin(), plan.slots_of_class().end()},
           make_policy(options.policy, static_cast<uint32_t>(layers_.size()) * layers_[0].n_experts())),
      slot_bytes_(plan.slot_bytes().begin(), plan.slot_bytes().end()),
      class_of_(classes_of_slots(plan)),
      files_(distinct_files(layers_)),
      loads_(plan.n_slots()),
      look_ahead_(options.look_ahead),
      traffic_(layers_.size()) {
  for (uint32_t c = 0; c < slot_bytes_.size(); ++c) memory_.emplace_back(plan.bytes_of_class(c), "expert slots");
  choose_engine(options.engine);
}

namespace {

// The first multiple of a block in a buffer.
std::byte* first_block(Buffer& memory) {
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  return memory.data() + (align_up(address, kDirectBlock) - address);
}

}  // namespace

std::byte* Bank::slot(uint32_t index) {
  const uint32_t c = class_of_[index];
  return first_block(memory_[c]) + size_t{index - map_.first_slot(c)} * slot_bytes_[c];
}

// Reads of experts here and there, into `memory` until it is full. Another `seed`, other experts.
std::vector<ReadJob> Bank::sample_reads(Buffer& memory, uint32_t seed) {
  std::byte* at = first_block(memory);
  std::vector<ReadJob> jobs;
  for (uint32_t x = seed;;) {
    x = x * 1664525u + 1013904223u;  // Numerical Recipes' generator
    const uint32_t layer = (x >> 8) % n_layers(), expert = (x >> 16) % map_.n_experts();
    for (const LayerSource::Extent& extent : layers_[layer].extents()) {
      if (at + window_bytes(extent.bytes) > memory.data() + memory.size()) return jobs;
      jobs.push_back({extent.file, extent.offset_of(expert), extent.bytes, at, 0});
      at += window_bytes(extent.bytes);
    }
  }
}

// Both engines read in turn, twice; the faster one stays.
void Bank::choose_engine(ReadEngine wanted) {
  constexpr uint64_t kSample = uint64_t{32} << 20, kLeastWorthIt = uint64_t{256} << 20;
  queue_ = make_read_queue(wanted, kQueueDepth);
  if (wanted != ReadEngine::kAuto || complete_ || bytes_of(every_unit()) < kLeastWorthIt) return;
  auto threads = make_read_queue(ReadEngine::kThreads, kQueueDepth);
  if (std::string_view(threads->name()) == queue_->name()) return;
  Buffer memory(kSample, "sample of reads");
  double ring_rate = 0, thread_rate = 0;
  for (uint32_t round = 0; round < 2; ++round) {
    // Other experts for each: what was read before, the disk may have kept.
    ring_rate = std::max(ring_rate, measure_read_gbps(*queue_, sample_reads(memory, 2 * round)));
    thread_rate = std::max(thread_rate, measure_read_gbps(*threads, sample_reads(memory, 2 * round + 1)));
  }
  if (thread_rate > 1.1 * ring_rate) queue_ = std::move(threads);
}

double Bank::measure_disk_gbps(uint32_t seed) {
  while (queue_->pending() > 0) collect(true);
  Buffer memory(kInFlight, "sample of reads");
  return measure_read_gbps(*queue_, sample_reads(memory, seed));
}

void Bank::lock() {
  for (Buffer& memory : memory_) memory.lock("expert slots");
}

// ---- reading before anything is asked for --------------------------------------------------------------------------

std::vector<Bank::Unit> Bank::every_unit() const {
  std::vector<Unit> units;
  for (uint32_t l = 0; l < layers_.size(); ++l)
    for (uint32_t e = 0; e < map_.n_experts(); ++e) units.push_back({l, e});
  return units;
}

std::vector<Bank::Unit> Bank::resident() const {
  std::vector<Unit> units;
  for (uint32_t s = 0; s < map_.n_slots(); ++s)
    if (const auto unit = map_.resident(s)) units.push_back({layer_of(*unit), expert_of(*unit)});
  const auto worth = [&](const Unit& unit) { return map_.worth(map_.unit(unit.layer, unit.expert)); };
  std::ranges::sort(units, [&](const Unit& a, const Unit& b) {
    return worth(a) != worth(b) ? worth(a) > worth(b) : std::pair(a.expert, a.layer) < std::pair(b.expert, b.layer);
  });
  return units;
}

uint64_t Bank::bytes_of(std::span<const Unit> units) const {
  uint64_t total = 0;
  for (const Unit& unit : units) total += layers_[unit.layer].expert_bytes();
  return total;
}

uint64_t Bank::reserve(std::span<const Unit> units) {
  uint64_t bytes = 0;
  for (const Unit& unit : units) {
    const auto slot = map_.place(unit.layer, unit.expert);
    if (!slot) continue;  // it has a slot, or there is none for it
    loads_[*slot] = {};
    reserved_.push_back({unit, *slot});
    bytes += layers_[unit.layer].expert_bytes();
  }
  std::ranges::sort(reserved_);
  return bytes;
}

void Bank::fill(const Progress& progress) {
  const std::vector<Reserved> all = std::exchange(reserved_, {});
  size_t begin = 0;
  try {
    while (begin < all.size()) {
      const Unit first = all[begin].unit;
      std::vector<uint32_t> slots;  // of a run of neighbours
      while (begin + slots.size() < all.size() && slots.size() < kRunLength) {
        const auto n = static_cast<uint32_t>(slots.size());
        if (all[begin + n].unit != Unit{first.layer, first.expert + n}) break;
        slots.push_back(all[begin + n].slot);
      }
      fill_run(first.layer, first.expert, static_cast<uint32_t>(slots.size()), slots, progress);
      for (const uint32_t slot : slots) map_.loaded(slot);
      begin += slots.size();
    }
  } catch (...) {
    for (; begin < all.size(); ++begin) map_.failed(all[begin].slot);
    throw;
  }
}

void Bank::fill_run(uint32_t layer, uint32_t first, uint32_t n, const std::vector<uint32_t>& slots,
                    const Progress& progress) {
  for (const LayerSource::Extent& extent : layers_[layer].extents()) {
    // What pads an expert to whole blocks may go where its window is not used.
    const bool padded = extent.offset % kDirectBlock == 0 && extent.stride % kDirectBlock == 0 &&
                        extent.stride <= window_bytes(extent.bytes);
    const uint64_t length = padded ? extent.stride : extent.bytes;
    std::vector<iovec> pieces;
    for (uint32_t i = 0; i < n; ++i)
      pieces.push_back({slot(slots[i]) + extent.slot_offset + extent.offset_of(first + i) % kDirectBlock,
                        i + 1 < n ? length : extent.bytes});
    if (extent.stride == length) {
      extent.file->read_scattered(extent.offset_of(first), pieces);
    } else {
      for (uint32_t i = 0; i < n; ++i) extent.file->read_scattered(extent.offset_of(first + i), {&pieces[i], 1});
    }
    progress(n * extent.bytes);
  }
  if (!verify_) return;
  for (uint32_t i = 0; i < n; ++i) verify(layer, first + i, slots[i]);
}

// ---- reading what is asked for --------------------------------------------------------------------------------------

void Bank::check_files() const {
  if (complete_) return;
  for (const File* file : files_)
    if (file->changed())
      fail(ErrorKind::kIo,
           "{}: the file was changed while in use; experts read from now on would be of another model: start again",
           file->path());
}

void Bank::begin_load(uint32_t layer, uint32_t expert, uint32_t slot, std::deque<Waiting>& backlog) {
  const auto extents = static_cast<uint32_t>(layers_[layer].extents().size());
  loads_[slot] = {map_.unit(layer, expert), extents, 0, 0, &backlog == &ahead_, nullptr};
  for (uint32_t i = 0; i < extents; ++i) backlog.push_back({slot, i});
}

void Bank::pump() {
  std::vector<ReadJob> jobs;
  const auto take = [&](std::deque<Waiting>& backlog, uint64_t limit) {
    while (!backlog.empty() && in_flight_ < limit) {
      const auto [s, i] = backlog.front();
      backlog.pop_front();
      Load& load = loads_[s];
      const LayerSource::Extent& extent = layers_[layer_of(load.unit)].extents()[i];
      jobs.push_back({extent.file, extent.offset_of(expert_of(load.unit)), extent.bytes, slot(s) + extent.slot_offset,
                      uint64_t{s} << 8 | i});
      foresight_.read += load.guessed && load.submitted == 0;
      ++load.submitted;
      in_flight_ += extent.bytes;
    }
  };
  take(demand_, kInFlight);
  // A guess must not slow down what is waited for.
  if (demand_.empty() && (expected_.surely || awaited_ == 0)) take(ahead_, expected_.surely ? kInFlight : kGuessed);
  if (jobs.empty()) return;
  if (queue_->pending() == 0) reading_since_ = now_seconds();
  queue_->submit(jobs);
}

void Bank::collect(bool wait) {
  if (queue_->pending() == 0) return;
  done_.clear();
  queue_->collect(done_, wait);
  for (const ReadQueue::Done& done : done_) {
    const auto s = static_cast<uint32_t>(done.tag >> 8);
    Load& load = loads_[s];
    const uint32_t layer = layer_of(load.unit);
    const uint64_t bytes = layers_[layer].extents()[done.tag & 0xff].bytes;
    in_flight_ -= bytes;
    if (done.error)
      load.error = done.error;
    else
      traffic_[layer].bytes_read += bytes;
    if (--load.left == 0) finish_load(s);
  }
  if (!done_.empty() && queue_->pending() == 0) read_seconds_ += now_seconds() - reading_since_;
  pump();
}

void Bank::finish_load(uint32_t s) {
  Load& load = loads_[s];
  awaited_ -= load.waiters > 0;
  if (verify_ && !load.error) {
    try {
      verify(layer_of(load.unit), expert_of(load.unit), s);
    } catch (const Error&) {
      load.error = std::current_exception();
    }
  }
  if (load.error)
    map_.failed(s);
  else
    map_.loaded(s);
}

void Bank::verify(uint32_t layer, uint32_t expert, uint32_t s) {
  const LayerSource& source = layers_[layer];
  const LayerSource::Extent& extent = source.extents()[0];
  const double start = now_seconds();
  const uint64_t found = xxh64({slot(s) + source.part_offset(0, expert), extent.bytes});
  verified_.seconds += now_seconds() - start;
  verified_.bytes += extent.bytes;
  const uint64_t wanted = source.checksums()[expert];
  if (found != wanted)
    fail(ErrorKind::kFormat,
         "{}: layer {}, expert {}: what was read at offset {} has the checksum {:016x}, not {:016x}; the file or its "
         "disk is damaged: pack the model again (`sluice pack`)",
         extent.file->path(), layer, expert, extent.offset_of(expert), found, wanted);
}

void Bank::expect(uint32_t layer, std::span<const uint32_t> experts, bool surely) {
  forget_expected();
  expected_ = {layer, surely, {}, {}};
  // The slots of a step that computes now are held. Half of the others stay free for what it still misses.
  const uint32_t spare = map_.available(map_.class_of_layer(layer)) / 2;
  for (const uint32_t expert : experts) {
    const auto place = map_.acquire_ahead(layer, expert, spare);
    if (!place) break;
    expected_.held.push_back(place->slot);
    if (place->outcome != SlotMap::Outcome::kLoad) continue;
    expected_.loaded.push_back(expert);
    begin_load(layer, expert, place->slot, ahead_);
  }
  pump();
}

void Bank::forget_expected() {
  for (const uint32_t slot : expected_.held) map_.release(slot);
  expected_.held.clear();
  expected_.loaded.clear();
  // What a request now holds has become urgent. Of the rest, loads that have not begun are dropped.
  for (const Waiting& waiting : ahead_) {
    Load& load = loads_[waiting.slot];
    if (map_.held(waiting.slot) || load.submitted > 0) {
      demand_.push_back(waiting);
    } else if (--load.left == 0) {
      map_.failed(waiting.slot);
    }
  }
  ahead_.clear();
}

uint64_t Bank::shrink(uint64_t bytes) {
  uint64_t given = 0;
  for (bool any = true; any && given < bytes;) {
    any = false;
    for (uint32_t c = 0; c < slot_bytes_.size() && given < bytes; ++c) {
      const auto retired = map_.retire(c);
      if (!retired) continue;
      ::munlock(slot(*retired), slot_bytes_[c]);  // locked pages are not given back
      if (::madvise(slot(*retired), slot_bytes_[c], MADV_DONTNEED) != 0) continue;
      given += slot_bytes_[c];
      any = true;
    }
  }
  if (given > 0) complete_ = false;
  return given;
}

Traffic Bank::traffic() const {
  Traffic total;
  for (const Traffic& layer : traffic_) total += layer;
  return total;
}

// ---- requests ------------------------------------------------------------------------------------------------------

Bank::Request::Request(Bank& bank, uint32_t layer, std::span<const uint32_t> experts) : bank_(bank), layer_(layer) {
  items_.reserve(experts.size());
  for (const uint32_t expert : experts) items_.push_back({expert});
}

// Built upon a whole object, so that what fails from here on is released.
Bank::Request::Request(Bank& bank, uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> uses)
    : Request(bank, layer, experts) {
  acquire_waiting(uses);
  Traffic& traffic = bank_.traffic_[layer_];
  const std::vector<uint32_t>& early = bank_.expected_.loaded;
  for (const Item& item : items_) {
    const bool foreseen = bank_.expected_.layer == layer_ && std::ranges::find(early, item.expert) != early.end();
    const bool missed = item.stage == Stage::kWaiting || bank_.loads_[item.slot].left > 0 || foreseen;
    ++(missed ? traffic.misses : traffic.hits);
    bank_.foresight_.used += foreseen && bank_.loads_[item.slot].submitted > 0;
  }
  if (bank_.expected_.layer == layer_) bank_.forget_expected();
  bank_.pump();
}

Bank::Request::~Request() {
  for (const Item& item : items_) {
    if (item.stage != Stage::kHeld && item.stage != Stage::kGiven) continue;
    Load& load = bank_.loads_[item.slot];
    if (load.left > 0) bank_.awaited_ -= --load.waiters == 0;
    bank_.map_.release(item.slot);
  }
}

void Bank::Request::acquire_waiting(std::span<const uint32_t> uses) {
  std::vector<uint32_t> experts, at;
  for (uint32_t i = 0; i < items_.size(); ++i) {
    if (items_[i].stage != Stage::kWaiting) continue;
    experts.push_back(items_[i].expert);
    at.push_back(i);
  }
  if (experts.empty()) return;
  const std::vector<SlotMap::Place> places = bank_.map_.acquire(layer_, experts, uses);
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].outcome == SlotMap::Outcome::kLater) continue;
    Item& item = items_[at[i]];
    item.stage = Stage::kHeld;
    item.slot = places[i].slot;
    if (places[i].outcome == SlotMap::Outcome::kLoad) bank_.begin_load(layer_, item.expert, item.slot, bank_.demand_);
    Load& load = bank_.loads_[item.slot];
    if (load.left > 0) bank_.awaited_ += load.waiters++ == 0;
  }
}

void Bank::Request::release_given() {
  for (Item& item : items_) {
    if (item.stage != Stage::kGiven) continue;
    bank_.map_.release(item.slot);
    item.stage = Stage::kDone;
  }
  ready_.clear();
}

void Bank::Request::give_ready() {
  const LayerSource& source = bank_.layers_[layer_];
  for (uint32_t i = 0; i < items_.size(); ++i) {
    Item& item = items_[i];
    if (item.stage != Stage::kHeld) continue;
    const Load& load = bank_.loads_[item.slot];
    if (load.left > 0) continue;
    if (load.error) std::rethrow_exception(load.error);
    item.stage = Stage::kGiven;
    ready_.push_back({i, {}});
    for (size_t p = 0; p < source.parts().size(); ++p)
      ready_.back().parts.push_back(bank_.slot(item.slot) + source.part_offset(p, item.expert));
  }
}

bool Bank::Request::finished() const {
  return std::ranges::all_of(items_, [](const Item& item) { return item.stage == Stage::kDone; });
}

std::span<const Bank::Ready> Bank::Request::next() {
  release_given();
  while (!finished()) {
    bank_.collect(false);
    acquire_waiting({});
    bank_.pump();
    give_ready();
    if (!ready_.empty()) break;
    if (bank_.queue_->pending() == 0) {
      // Nothing is on its way: what is expected later holds the slots.
      if (bank_.expected_.held.empty())
        fail(ErrorKind::kInternal, "layer {}: every slot is held and none is being read", layer_);
      bank_.forget_expected();
      continue;
    }
    const double start = now_seconds();
    bank_.collect(true);
    bank_.traffic_[layer_].stall_seconds += now_seconds() - start;
  }
  return ready_;
}

}  // namespace sluice::experts
