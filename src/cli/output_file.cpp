#include "cli/output_file.h"

#include <filesystem>

#include "base/error.h"
#include "cli/amounts.h"

namespace sluice::cli {

void refuse_same_file(const gguf::Container& in, const std::string& out) {
  for (const gguf::Shard& shard : in.shards()) {
    std::error_code no_such_file;
    if (std::filesystem::equivalent(shard.file->path(), out, no_such_file))
      fail(ErrorKind::kUsage, "OUT {} is the file that is read; name another", out);
  }
}

void check_free_space(const std::string& out, uint64_t bytes) {
  std::error_code unknown;  // then writing tells
  const auto folder = std::filesystem::absolute(out, unknown).parent_path();
  const auto space = std::filesystem::space(folder, unknown);
  if (!unknown && space.available < bytes)
    fail(ErrorKind::kIo, "{}: takes {}, but {} has only {} left; free some, or name another place", out,
         human_bytes(bytes), folder.string(), human_bytes(space.available));
}

}  // namespace sluice::cli
