// A few threads that do what may take a while: reading large requests, rendering templates, counting tokens. So the
// threads of HTTP stay free to answer.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace sluice::server {

class Workers {
 public:
  // 0: whoever brings work does it.
  explicit Workers(int threads);
  ~Workers();  // does what is left first
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // `work` must not throw.
  void run(std::function<void()> work);

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> work_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace sluice::server
