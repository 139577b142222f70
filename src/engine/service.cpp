#include "engine/service.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/system.h"
#include "engine/slot_file.h"

namespace sluice {

struct Service::Impl {
  Impl(Engine& e, ServiceOptions o) : engine(e), options(std::move(o)), loop(engine, options.loop) {
    publish();  // of an idle loop, for whoever asks first
    thread = std::thread([this] { run(); });
  }

  // To be done on the loop's thread, between steps.
  void post(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex);
      mail.push_back(std::move(work));
    }
    wake.notify_one();
  }

  void run() {
    for (bool last = false;;) {
      std::deque<std::function<void()>> work;
      {
        std::unique_lock lock(mutex);
        if (loop.idle()) wake.wait(lock, [&] { return !mail.empty() || stopping; });
        if (!mail.empty()) progress_at = now_seconds();  // nobody waits for an engine that has just been asked
        work.swap(mail);
        last = stopping;
      }
      // Also at the end: whoever has asked hears how it ended.
      for (const auto& item : work) item();
      if (last) break;
      loop.step();
      publish();
    }
    loop.end_all(StopReason::kShutdown);
    publish();
  }

  void publish() {
    ServiceStatus now;
    now.slots = loop.slots();
    now.counters = loop.counters();
    now.kv_pages = engine.pages().size();
    now.kv_pages_used = now.kv_pages - engine.pages().free_pages();
    now.cache_bytes = loop.cache().budget();
    now.cache_bytes_used = loop.cache().bytes();
    now.cache_entries = loop.cache().size();
    now.cache_evicted = loop.cache().evicted();
    if (experts::Bank* bank = engine.bank()) now.experts = bank->traffic();
    const std::lock_guard lock(mutex);
    now.refused = status.refused;
    status = std::move(now);
    waiting = loop.waiting();
    idle = loop.idle();
    progress_at = now_seconds();
    changed.notify_all();
  }

  // Does something to a slot file, and tells how it went. The loop waits meanwhile: what is saved must not change.
  template <typename Work>
  void with_slot_file(uint32_t slot, const std::string& name, Work work, const SlotDone& done) {
    post([slot, name, work, done] {
      const double start = now_seconds();
      SlotFileResult result{slot, name, 0, 0, 0};
      try {
        work(result);
        result.seconds = now_seconds() - start;
        done(&result, nullptr);
      } catch (const Error& error) {
        done(nullptr, &error);
      }
    });
  }

  std::string path_of(const std::string& name) const {
    if (options.slot_folder.empty())
      fail(ErrorKind::kUnsupported, "slots can't be saved: the server was started without --slot-save-path");
    return slot_file_path(options.slot_folder, name);
  }

  const SlotIdentity& identity() {
    if (!known_identity) known_identity = slot_identity(engine);
    return *known_identity;
  }

  void save(SlotFileResult& result) {
    const std::string path = path_of(result.file);
    const SavedSlot saved = loop.saved(result.slot);
    if (saved.tokens.empty()) fail(ErrorKind::kUsage, "slot {} is empty: there is nothing to save", result.slot);
    std::vector<StateToSave> states = {{saved.tokens, &saved.state}};
    for (const auto& [tokens, state] : saved.kept) states.push_back({tokens, state});
    result.tokens = saved.tokens.size();
    result.bytes = write_slot_file(path, identity(), engine.pages(), states);
  }

  // The slot takes the file's own state, the cache the others.
  void restore(SlotFileResult& result) {
    const std::string path = path_of(result.file);
    loop.check_idle(result.slot);
    const auto file = open_file(path);
    const SlotLimits limits{engine.context_size(), engine.model().hp.n_vocab};
    loop.make_room(file->size() / engine.pages().page_bytes() + 1);
    std::vector<SavedState> states = read_slot_file(*file, identity(), limits, engine.pages());
    result.tokens = states[0].tokens.size();
    result.bytes = file->size();
    loop.restore(result.slot, states[0].tokens, states[0].snapshot);
    for (SavedState& state : states) loop.keep(std::move(state.tokens), std::move(state.snapshot));
  }

  Engine& engine;
  const ServiceOptions options;
  std::optional<SlotIdentity> known_identity;
  StepLoop loop;
  mutable std::mutex mutex;
  std::condition_variable wake, changed;
  std::deque<std::function<void()>> mail;
  bool stopping = false, draining = false;
  uint64_t submitted = 0;
  size_t posted = 0;   // requests in the mail
  size_t waiting = 0;  // in the loop's queue
  bool idle = true;
  double progress_at = now_seconds();
  ServiceStatus status;
  std::thread thread;  // last: it uses all the others
};

Service::Service(Engine& engine, ServiceOptions options) : impl_(std::make_unique<Impl>(engine, std::move(options))) {}

Service::~Service() { stop(); }

const ServiceOptions& Service::options() const { return impl_->options; }

uint64_t Service::submit(GenerationRequest request, std::shared_ptr<GenerationListener> listener) {
  Impl& s = *impl_;
  s.loop.check(request);
  uint64_t id = 0;
  {
    const std::lock_guard lock(s.mutex);
    if (s.stopping || s.draining) fail(ErrorKind::kLimit, "the server is shutting down");
    if (s.posted + s.waiting >= s.options.queue) {
      ++s.status.refused;
      fail(ErrorKind::kLimit, "{} requests are waiting already; try again later, or start with a larger --queue",
           s.posted + s.waiting);
    }
    id = ++s.submitted;
    ++s.posted;
    s.mail.push_back([&s, id, request = std::move(request), listener = std::move(listener)]() mutable {
      s.loop.submit(id, std::move(request), std::move(listener));
      const std::lock_guard taken(s.mutex);
      --s.posted;
      s.waiting = s.loop.waiting();
    });
  }
  s.wake.notify_one();
  return id;
}

void Service::cancel(uint64_t request) {
  impl_->post([&loop = impl_->loop, request] { loop.cancel(request); });
}

ServiceStatus Service::status() const {
  const std::lock_guard lock(impl_->mutex);
  ServiceStatus status = impl_->status;
  status.queued = impl_->posted + impl_->waiting;
  const bool working = !impl_->idle || !impl_->mail.empty();
  status.seconds_since_progress = working ? now_seconds() - impl_->progress_at : 0;
  return status;
}

void Service::save_slot(uint32_t slot, const std::string& file, SlotDone done) {
  impl_->with_slot_file(
      slot, file, [s = impl_.get()](SlotFileResult& result) { s->save(result); }, done);
}

void Service::restore_slot(uint32_t slot, const std::string& file, SlotDone done) {
  impl_->with_slot_file(
      slot, file, [s = impl_.get()](SlotFileResult& result) { s->restore(result); }, done);
}

void Service::erase_slot(uint32_t slot, SlotDone done) {
  const auto erase = [s = impl_.get()](SlotFileResult& result) { result.tokens = s->loop.erase(result.slot); };
  impl_->with_slot_file(slot, "", erase, done);
}

void Service::drain(double seconds) {
  std::unique_lock lock(impl_->mutex);
  impl_->draining = true;
  impl_->changed.wait_for(lock, std::chrono::duration<double>(seconds),
                          [&] { return impl_->idle && impl_->mail.empty() && impl_->posted == 0; });
}

void Service::stop() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->wake.notify_one();
  if (impl_->thread.joinable()) impl_->thread.join();
}

}  // namespace sluice
