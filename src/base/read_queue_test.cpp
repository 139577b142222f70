// Queues of reads: the right bytes in the right place whatever the system does, one end for each job, nothing written
// outside a job's window, and nothing left in the page cache.
#include "base/read_queue.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/error.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::byte kUntouched{0xEE};

std::string message_of(const std::exception_ptr& error) {
  if (!error) return "no error";
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return e.what();
  }
}

// A file of random bytes that goes with the object.
class RandomFile {
 public:
  RandomFile(std::string path, size_t bytes) : path_(std::move(path)), content_(bytes) {
    std::mt19937_64 random(bytes);
    for (size_t i = 0; i < bytes; i += 8) {
      const uint64_t word = random();
      std::memcpy(content_.data() + i, &word, std::min<size_t>(8, bytes - i));
    }
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(content_.data()), static_cast<std::streamsize>(bytes));
  }
  RandomFile(const RandomFile&) = delete;
  ~RandomFile() { std::filesystem::remove(path_); }

  const std::string& path() const { return path_; }
  const std::vector<std::byte>& content() const { return content_; }

  // Puts the file out of the page cache.
  void cool() const {
    const int fd = ::open(path_.c_str(), O_RDONLY);
    ::fsync(fd);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
  double part_in_cache() const {
    const int fd = ::open(path_.c_str(), O_RDONLY);
    void* const mapped = ::mmap(nullptr, content_.size(), PROT_READ, MAP_SHARED, fd, 0);
    std::vector<unsigned char> resident(content_.size() / 4096 + 1);
    ::mincore(mapped, content_.size(), resident.data());
    ::munmap(mapped, content_.size());
    ::close(fd);
    const auto there = std::ranges::count_if(resident, [](unsigned char page) { return page & 1; });
    return static_cast<double>(there) / static_cast<double>(resident.size());
  }
  // Whether the file system lets files leave the page cache (one that lives in memory does not).
  bool can_cool() const {
    cool();
    return part_in_cache() == 0;
  }

 private:
  std::string path_;
  std::vector<std::byte> content_;
};

// Jobs with windows side by side in one arena, a block between them that nobody may write.
class Jobs {
 public:
  struct Range {
    uint64_t offset, length;
  };

  Jobs(const File& file, std::vector<Range> ranges) {
    size_t bytes = kDirectBlock;
    for (const Range& range : ranges) bytes += window_bytes(range.length) + kDirectBlock;
    arena_ = Buffer(align_up(bytes, kDirectBlock), "windows of a test");
    std::ranges::fill(arena_.bytes(), kUntouched);
    size_t at = kDirectBlock;
    for (const Range& range : ranges) {
      jobs_.push_back({&file, range.offset, range.length, arena_.data() + at, 1000 + jobs_.size()});
      at += window_bytes(range.length) + kDirectBlock;
    }
  }

  std::span<const ReadJob> all() const { return jobs_; }
  const ReadJob& operator[](size_t i) const { return jobs_[i]; }
  size_t size() const { return jobs_.size(); }
  Buffer& arena() { return arena_; }

  // Keeps ends of jobs, of which each may come once.
  void note(const std::vector<ReadQueue::Done>& done) {
    for (const ReadQueue::Done& job : done)
      EXPECT_TRUE(ends_.emplace(job.tag, message_of(job.error)).second) << "job " << job.tag << " ended twice";
  }
  void run(ReadQueue& queue) {
    std::vector<ReadQueue::Done> done;
    queue.submit(all());
    while (queue.pending() > 0) queue.collect(done, true);
    note(done);
  }

  size_t ended() const { return ends_.size(); }
  // The jobs that ended with an error.
  std::vector<size_t> failed() const {
    std::vector<size_t> found;
    for (const auto& [tag, message] : ends_)
      if (message != "no error") found.push_back(tag - 1000);
    return found;
  }
  std::string message(size_t i) const { return ends_.at(1000 + i); }

  void expect_bytes(const std::vector<std::byte>& content) const {
    EXPECT_EQ(ends_.size(), jobs_.size());
    for (size_t i = 0; i < jobs_.size(); ++i) {
      const ReadJob& job = jobs_[i];
      if (!ends_.contains(job.tag) || message(i) != "no error") continue;
      const std::byte* const bytes = job.window + job.offset % kDirectBlock;
      EXPECT_TRUE(job.length == 0 || std::memcmp(bytes, content.data() + job.offset, job.length) == 0)
          << job.length << " bytes at " << job.offset;
    }
    expect_nothing_outside();
  }

 private:
  void expect_nothing_outside() const {
    const std::byte* at = arena_.data();
    for (size_t i = 0; i <= jobs_.size(); ++i) {
      const std::byte* const end = i < jobs_.size() ? jobs_[i].window : at + kDirectBlock;
      EXPECT_TRUE(std::all_of(at, end, [](std::byte b) { return b == kUntouched; }))
          << "before the window of job " << i;
      if (i < jobs_.size()) at = jobs_[i].window + window_bytes(jobs_[i].length);
    }
  }

  Buffer arena_;
  std::vector<ReadJob> jobs_;
  std::map<uint64_t, std::string> ends_;  // by tag
};

class ReadQueueTest : public testing::TestWithParam<std::tuple<ReadEngine, unsigned>> {
 protected:
  static constexpr size_t kBytes = (size_t{3} << 20) + 1234;

  ReadQueueTest() : random_file_(testing::TempDir() + "sluice_read_queue_test_" + std::to_string(::getpid()), kBytes) {}

  void SetUp() override {
    try {
      queue_ = make_read_queue(std::get<0>(GetParam()), std::get<1>(GetParam()));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kUnsupported) throw;
      GTEST_SKIP() << error.what();
    }
  }

  unsigned depth() const { return std::get<1>(GetParam()); }
  bool is_uring() const { return std::get<0>(GetParam()) == ReadEngine::kUring; }
  const std::string& path() const { return random_file_.path(); }
  const std::vector<std::byte>& content() const { return random_file_.content(); }
  std::unique_ptr<File> faulty(ReadFault fault) const { return with_faults(open_file(path()), std::move(fault)); }

  // Ranges of all kinds: odd ones, aligned ones, single bytes, none, the file's end, the whole file.
  static std::vector<Jobs::Range> ranges(size_t count, uint64_t longest, uint64_t size) {
    std::mt19937_64 random(count);
    std::vector<Jobs::Range> made{{0, size}, {size - 1, 1}, {size, 0}, {0, 1}, {4096, 4096}, {4095, 2}, {0, 0}};
    while (made.size() < count) {
      const uint64_t offset = random() % size;
      made.push_back({offset, std::min(size - offset, random() % longest)});
      if (random() % 4 == 0) made.push_back({offset / 4096 * 4096, std::min(size - offset, 8192 + random() % 2)});
      if (random() % 8 == 0) made.push_back({offset, size - offset});
    }
    return made;
  }

  RandomFile random_file_;
  std::unique_ptr<ReadQueue> queue_;
};

TEST_P(ReadQueueTest, ReadsAnyRangeIntoItsPlaceAndEndsEachJobOnce) {
  const auto file = open_file(path());
  Jobs jobs(*file, ranges(150, 100'000, kBytes));
  std::vector<ReadQueue::Done> done;
  size_t submitted = 0;
  std::mt19937 random(7);
  while (submitted < jobs.size() || queue_->pending() > 0) {
    const size_t n = std::min<size_t>(random() % 40, jobs.size() - submitted);
    queue_->submit(jobs.all().subspan(submitted, n));
    submitted += n;
    ASSERT_EQ(queue_->pending(), submitted - done.size());
    const size_t before = done.size();
    const bool wait = random() % 2 == 0, some = queue_->pending() > 0;
    queue_->collect(done, wait);
    ASSERT_EQ(queue_->pending(), submitted - done.size());
    ASSERT_TRUE(!wait || !some || done.size() > before);
  }
  jobs.note(done);
  EXPECT_TRUE(jobs.failed().empty());
  jobs.expect_bytes(content());
}

TEST_P(ReadQueueTest, AnIdleOneHasNothingToCollect) {
  std::vector<ReadQueue::Done> done;
  queue_->collect(done, false);
  queue_->collect(done, true);
  queue_->submit({});
  queue_->collect(done, true);
  EXPECT_TRUE(done.empty());
}

TEST_P(ReadQueueTest, ReadsSmallFilesAndFilesInMemory) {
  const RandomFile small(path() + ".small", 70'001);
  const auto on_disk = open_file(small.path());
  ASSERT_EQ(on_disk->descriptors()->direct_fd, -1);
  const auto in_memory = memory_file("M.bin", small.content());
  for (const File* file : {on_disk.get(), in_memory.get()}) {
    Jobs jobs(*file, ranges(50, 10'000, small.content().size()));
    jobs.run(*queue_);
    EXPECT_TRUE(jobs.failed().empty());
    jobs.expect_bytes(small.content());
  }
  Jobs beyond(*in_memory, {{70'000, 2}, {0, 2}});
  beyond.run(*queue_);
  EXPECT_THAT(beyond.failed(), ElementsAre(0));
  EXPECT_THAT(beyond.message(0), HasSubstr("M.bin: the file ends at offset 70001, 1 bytes before"));
}

TEST_P(ReadQueueTest, ReadsFilesOfAFileSystemInMemory) {
  if (::access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "no /dev/shm";
  const RandomFile shared("/dev/shm/sluice_read_queue_test_" + std::to_string(::getpid()), kBytes);
  const auto file = open_file(shared.path());
  Jobs jobs(*file, ranges(50, 100'000, kBytes));
  jobs.run(*queue_);
  EXPECT_TRUE(jobs.failed().empty());
  jobs.expect_bytes(shared.content());
}

// Twelve jobs make twelve reads as long as nothing goes wrong; whichever of them fails, the others don't notice.
std::vector<Jobs::Range> twelve() {
  std::vector<Jobs::Range> ranges;
  for (uint64_t i = 0; i < 12; ++i) ranges.push_back({1 + i * 200'001, 100'000 + i});
  return ranges;
}

TEST_P(ReadQueueTest, AFailingReadEndsItsOwnJobWithAnError) {
  for (uint64_t failing = 0; failing < 12; ++failing) {
    std::atomic<uint64_t> block{0};
    const auto file = faulty([&](uint64_t index, uint64_t offset, uint64_t length) {
      if (index != failing) return static_cast<int64_t>(length);
      block = offset;
      return int64_t{-EIO};
    });
    Jobs jobs(*file, twelve());
    jobs.run(*queue_);
    jobs.expect_bytes(content());
    ASSERT_EQ(jobs.failed().size(), 1u) << "read " << failing;
    const size_t job = jobs.failed().front();
    EXPECT_EQ(jobs[job].offset / kDirectBlock, block / kDirectBlock);
    EXPECT_THAT(jobs.message(job), AllOf(HasSubstr(path() + ":"), HasSubstr("Input/output error"),
                                         HasSubstr("at offset " + std::to_string(jobs[job].offset) + " ")));
  }
}

TEST_P(ReadQueueTest, AReadThatFindsTheEndIsAnErrorOfItsOwnJob) {
  const auto file = faulty(
      [](uint64_t index, uint64_t, uint64_t length) { return index == 5 ? int64_t{0} : static_cast<int64_t>(length); });
  Jobs jobs(*file, twelve());
  jobs.run(*queue_);
  jobs.expect_bytes(content());
  ASSERT_EQ(jobs.failed().size(), 1u);
  EXPECT_THAT(jobs.message(jobs.failed().front()), HasSubstr("truncated"));
}

TEST_P(ReadQueueTest, InterruptedShortAndRefusedReadsGoOn) {
  // EINVAL: what a file system answers that can't read directly after all.
  for (const int64_t fault :
       {int64_t{-EINTR}, int64_t{-EAGAIN}, int64_t{-EINVAL}, int64_t{1}, int64_t{4096}, int64_t{50'001}}) {
    for (uint64_t at = 0; at < 12; ++at) {
      std::atomic<uint64_t> reads{0};
      const auto file = faulty([&](uint64_t index, uint64_t, uint64_t length) {
        ++reads;
        return index == at ? fault : static_cast<int64_t>(length);
      });
      Jobs jobs(*file, twelve());
      jobs.run(*queue_);
      EXPECT_TRUE(jobs.failed().empty()) << fault << " at read " << at;
      jobs.expect_bytes(content());
      EXPECT_EQ(reads, 13u) << "what is missing is asked for, and no more than that";
    }
  }
}

TEST_P(ReadQueueTest, OrdinaryReadsTakeTheWantedBytesAndNoMore) {
  // A file too small for direct reads, and one that refuses them when it comes to it.
  const RandomFile small(path() + ".small", 70'001);
  for (const bool refuses : {false, true}) {
    const RandomFile& random_file = refuses ? random_file_ : small;
    std::mutex mutex;
    std::multimap<uint64_t, uint64_t> asked, wanted;
    const auto file = with_faults(open_file(random_file.path()), [&](uint64_t, uint64_t offset, uint64_t length) {
      if (refuses && offset % kDirectBlock == 0 && length % kDirectBlock == 0) return int64_t{-EINVAL};
      const std::lock_guard lock(mutex);
      asked.emplace(offset, length);
      return static_cast<int64_t>(length);
    });
    Jobs jobs(*file, {{1, 10}, {4097, 4096}, {8192, 5000}, {69'000, 1000}, {12'000, 50'000}});
    for (const ReadJob& job : jobs.all()) wanted.emplace(job.offset, job.length);
    jobs.run(*queue_);
    jobs.expect_bytes(random_file.content());
    EXPECT_EQ(asked, wanted);
  }
}

TEST_P(ReadQueueTest, AnyNumberOfShortReadsMakesAWholeOne) {
  const auto file = faulty([](uint64_t index, uint64_t, uint64_t length) {
    if (index % 5 == 3) return int64_t{-EINTR};
    return std::min(static_cast<int64_t>(length), static_cast<int64_t>(index % 3 == 0 ? 4096 : 7777));
  });
  Jobs jobs(*file, ranges(60, 60'000, kBytes));
  jobs.run(*queue_);
  EXPECT_TRUE(jobs.failed().empty());
  jobs.expect_bytes(content());
}

TEST_P(ReadQueueTest, ASystemThatSaysAgainForEverIsAnError) {
  const auto file = faulty([](uint64_t, uint64_t, uint64_t) { return int64_t{-EAGAIN}; });
  Jobs jobs(*file, {{5, 10}});
  jobs.run(*queue_);
  EXPECT_THAT(jobs.message(0), HasSubstr("at offset 5 failed: Resource temporarily unavailable"));
}

TEST_P(ReadQueueTest, AFileCutAfterOpeningIsAnErrorNotOldBytes) {
  const auto file = open_file(path());
  for (const uint64_t size : {uint64_t{1'000'001}, uint64_t{409'600}}) {  // within a block and at its border
    std::filesystem::resize_file(path(), size);
    Jobs jobs(*file, {{size - 10, 10}, {size - 10, 11}, {size - 20'000, 100'000}, {2'000'000, 3}, {0, 100}});
    jobs.run(*queue_);
    jobs.expect_bytes(content());
    EXPECT_THAT(jobs.failed(), ElementsAre(1, 2, 3));
    const std::string end = "the file ends at offset " + std::to_string(size);
    EXPECT_THAT(jobs.message(1), AllOf(HasSubstr(path()), HasSubstr(end + ", 1 bytes before")));
    EXPECT_THAT(jobs.message(2), HasSubstr(end + ", 80000 bytes before"));
    EXPECT_THAT(jobs.message(3), HasSubstr("truncated"));
  }
}

TEST_P(ReadQueueTest, NothingIsWrittenOnceTheQueueIsGone) {
  random_file_.cool();
  std::atomic<size_t> begun{0};
  const auto file = faulty([&](uint64_t, uint64_t, uint64_t length) {
    ++begun;
    return static_cast<int64_t>(length);
  });
  std::vector<Jobs::Range> many;
  for (uint64_t i = 0; i < 100; ++i) many.push_back({i * 27'001, 300'000});
  Jobs jobs(*file, many);
  queue_->submit(jobs.all());
  queue_.reset();
  if (is_uring()) {
    EXPECT_EQ(begun, depth()) << "what had not begun is dropped";
  }
  std::ranges::fill(jobs.arena().bytes(), kUntouched);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(std::ranges::all_of(jobs.arena().bytes(), [](std::byte b) { return b == kUntouched; }));
}

TEST_P(ReadQueueTest, SubmitsWithoutWaitingAndHoldsBackWhatIsBeyondItsDepth) {
  std::atomic<size_t> begun{0};
  std::atomic<bool> go_on{is_uring()};  // io_uring's reads begin on the thread that submits
  const auto file = faulty([&](uint64_t, uint64_t, uint64_t length) {
    ++begun;
    go_on.wait(false);
    return static_cast<int64_t>(length);
  });
  Jobs jobs(*file, std::vector<Jobs::Range>(100, {123, 70'000}));
  queue_->submit(jobs.all());
  EXPECT_EQ(queue_->pending(), 100u);
  const size_t most = is_uring() ? depth() : std::min(depth(), 8U);
  while (begun < most) std::this_thread::yield();
  EXPECT_EQ(begun, most);
  std::vector<ReadQueue::Done> done;
  if (!is_uring()) {
    queue_->collect(done, false);
    EXPECT_TRUE(done.empty());
  }
  go_on = true;
  go_on.notify_all();
  while (queue_->pending() > 0) queue_->collect(done, true);
  jobs.note(done);
  jobs.expect_bytes(content());
}

TEST_P(ReadQueueTest, LeavesNothingInThePageCache) {
  if (!random_file_.can_cool()) GTEST_SKIP() << "this file system keeps its files in memory";
  std::vector<Jobs::Range> all;
  for (uint64_t at = 0; at < kBytes; at += 600'001) all.push_back({at, std::min<uint64_t>(600'001, kBytes - at)});
  const auto file = open_file(path());
  if (file->descriptors()->direct_fd < 0) GTEST_SKIP() << "this file system has no direct reads";
  Jobs jobs(*file, all);
  jobs.run(*queue_);
  jobs.expect_bytes(content());
  EXPECT_LT(random_file_.part_in_cache(), 0.02);
}

// A large file as of a file system without direct reads.
class Indirect final : public File {
 public:
  explicit Indirect(const File& file) : file_(file) {}
  const std::string& path() const override { return file_.path(); }
  uint64_t size() const override { return file_.size(); }
  void read_at(uint64_t offset, std::span<std::byte> out) const override { file_.read_at(offset, out); }
  void read_scattered(uint64_t offset, std::span<const iovec> pieces) const override {
    file_.read_scattered(offset, pieces);
  }
  std::optional<ReadableFile> descriptors() const override { return ReadableFile{path(), file_.descriptors()->fd, -1}; }

 private:
  const File& file_;
};

TEST_P(ReadQueueTest, WithoutDirectReadsLargeFilesLeaveThePageCacheAgain) {
  const bool can_cool = random_file_.can_cool();
  const auto file = open_file(path());
  const Indirect indirect(*file);
  Jobs jobs(indirect, ranges(50, 100'000, kBytes));
  jobs.run(*queue_);
  EXPECT_TRUE(jobs.failed().empty());
  jobs.expect_bytes(content());
  EXPECT_TRUE(!can_cool || random_file_.part_in_cache() < 0.02);
}

TEST_P(ReadQueueTest, AWindowThatCantBeReadIntoDirectlyIsRefused) {
  const auto file = open_file(path());
  Jobs jobs(*file, {{0, 100}, {0, 100}});
  ReadJob shifted = jobs[0];
  shifted.window += 512;
  queue_->submit({&shifted, 1});
  std::vector<ReadQueue::Done> done;
  queue_->collect(done, true);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_THAT(message_of(done[0].error), HasSubstr("not at a multiple of 4096"));
}

TEST_P(ReadQueueTest, MeasuresItsSpeedAndThrowsWhatWentWrong) {
  const auto file = open_file(path());
  const Jobs jobs(*file, twelve());
  EXPECT_GT(measure_read_gbps(*queue_, jobs.all()), 0);
  EXPECT_EQ(queue_->pending(), 0u);
  const Jobs beyond(*file, {{0, 10}, {kBytes, 10}});
  EXPECT_THROW(measure_read_gbps(*queue_, beyond.all()), Error);
  EXPECT_EQ(queue_->pending(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Engines, ReadQueueTest,
                         testing::Combine(testing::Values(ReadEngine::kUring, ReadEngine::kThreads),
                                          testing::Values(1U, 3U, 64U)),
                         [](const auto& test) {
                           return (std::get<0>(test.param) == ReadEngine::kUring ? "Uring" : "Threads") +
                                  std::to_string(std::get<1>(test.param));
                         });

TEST(ReadQueue, WhereIoUringCantBeHadSaysWhyAndThreadsRead) {
  constexpr unsigned kTooMany = 1U << 20;  // more entries than the kernel gives a ring
  std::string message = "no error";
  try {
    make_read_queue(ReadEngine::kUring, kTooMany);
  } catch (const Error& error) {
    message = error.what();
    EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
  }
  EXPECT_THAT(message, AllOf(HasSubstr("io_uring: "), HasSubstr("use --io threads")));
  EXPECT_STREQ(make_read_queue(ReadEngine::kAuto, kTooMany)->name(), "threads");
}

TEST(ReadQueue, BeginsInOrder) {
  const RandomFile random_file(testing::TempDir() + "sluice_read_order_" + std::to_string(::getpid()), 2'500'000);
  for (const ReadEngine engine : {ReadEngine::kAuto, ReadEngine::kThreads}) {
    std::vector<uint64_t> begun;
    const auto file = with_faults(open_file(random_file.path()), [&](uint64_t, uint64_t offset, uint64_t length) {
      begun.push_back(offset);  // by one thread at a time, since one read is in flight at a time
      return static_cast<int64_t>(length);
    });
    Jobs jobs(*file, {{900'000, 5}, {4096, 5}, {1'228'800, 5}, {0, 5}});
    jobs.run(*make_read_queue(engine, 1));
    EXPECT_THAT(begun, ElementsAre(900'000 / 4096 * 4096, 4096, 1'228'800, 0));
  }
}

TEST(ReadQueue, WindowsHoldAnyAlignmentOfTheirJob) {
  EXPECT_EQ(window_bytes(0), 0u);
  EXPECT_EQ(window_bytes(1), 4096u);
  EXPECT_EQ(window_bytes(2), 8192u);
  EXPECT_EQ(window_bytes(4096), 8192u);
  EXPECT_EQ(window_bytes(4098), 12288u);
}

}  // namespace
}  // namespace sluice
