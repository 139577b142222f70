#include "cli/machine.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/system.h"

namespace sluice::cli {

namespace {

// Results of loops end here, so that the compiler can't leave the loops out.
std::atomic<uint64_t> g_sink{0};

}  // namespace

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t n = values.size();
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

MemoryProbe::MemoryProbe(ThreadPool& pool, size_t bytes) : pool_(pool), buffer_(bytes, "memory probe") {
  // Each thread touches first what it will read, so that on a machine of several nodes it lies at its own.
  pool_.run(buffer_.size(), machine::kReadStep,
            [&](size_t begin, size_t end) { std::memset(buffer_.data() + begin, 1, end - begin); });
}

double MemoryProbe::measure_gbps() {
  const machine::Units& units = machine::usable_units()[0];
  const double start = now_seconds();
  pool_.run(buffer_.size(), machine::kReadStep,
            [&](size_t begin, size_t end) { g_sink ^= units.read(buffer_.data() + begin, end - begin); });
  return static_cast<double>(buffer_.size()) / (now_seconds() - start) / 1e9;
}

double measure_gops(ThreadPool& pool, const machine::RegisterLoop& loop) {
  if (loop.run == nullptr) return 0;
  constexpr size_t kRounds = size_t{1} << 20;  // of a dozen instructions and more: several milliseconds
  const auto threads = static_cast<size_t>(pool.active());
  const double start = now_seconds();
  pool.run(threads, 1, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) g_sink ^= loop.run(kRounds);
  });
  return loop.operations * static_cast<double>(kRounds * threads) / (now_seconds() - start) / 1e9;
}

double measure_int8_gops(ThreadPool& pool) { return measure_gops(pool, machine::usable_units()[0].int8); }
double measure_f32_gops(ThreadPool& pool) { return measure_gops(pool, machine::usable_units()[0].f32); }

namespace {

constexpr size_t kPiece = size_t{8} << 20;  // large enough for any disk's full rate
constexpr uint64_t kMostRead = uint64_t{1} << 30;

// A file of which pieces are read in order, with the flags given.
class Pieces {
 public:
  Pieces(const std::string& path, int flags) : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags)) {}
  ~Pieces() {
    if (fd_ >= 0) ::close(fd_);
  }
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;

  bool is_open() const { return fd_ >= 0; }
  // GB/s of the first `bytes`.
  double read(uint64_t bytes) {
    const double start = now_seconds();
    for (uint64_t at = 0; at < bytes; at += kPiece) {
      const ssize_t n = ::pread(fd_, piece_.data(), std::min<uint64_t>(kPiece, bytes - at), static_cast<off_t>(at));
      if (n < 0) fail(ErrorKind::kIo, "{}: reading at offset {} failed: {}", path_, at, std::strerror(errno));
    }
    return static_cast<double>(bytes) / (now_seconds() - start) / 1e9;
  }

 private:
  const std::string& path_;
  int fd_;
  Buffer piece_{kPiece, "piece of a file"};
};

}  // namespace

DiskRates measure_disk(const std::string& path) {
  constexpr uint64_t kBlock = 4096;  // direct reads are whole blocks
  const uint64_t bytes = std::min(open_file(path)->size(), kMostRead) / kBlock * kBlock;
  if (bytes == 0) fail(ErrorKind::kUsage, "{}: too short to measure a disk with; name a file of some megabytes", path);
  DiskRates rates;
  if (Pieces direct(path, O_DIRECT); direct.is_open()) rates.direct_gbps = direct.read(bytes);
  Pieces cached(path, 0);
  if (!cached.is_open()) fail(ErrorKind::kIo, "{}: can't open: {}", path, std::strerror(errno));
  cached.read(bytes);  // brings it into the cache
  rates.cached_gbps = cached.read(bytes);
  return rates;
}

}  // namespace sluice::cli
