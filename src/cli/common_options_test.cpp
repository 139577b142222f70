#include "cli/common_options.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace sluice::cli {
namespace {

struct Everything {
  ModelOptions model;
  ComputeOptions compute;
  SamplingOptions sampling;

  ParseResult parse(const std::vector<std::string>& arguments) {
    OptionTable table;
    model.declare(table);
    compute.declare(table);
    sampling.declare(table);
    declare_accepted_options(table);
    return table.parse(arguments, [](const std::string&) { return std::nullopt; });
  }
};

TEST(CommonOptions, LinesWrittenForLlamaCppAreUnderstood) {
  Everything all;
  const ParseResult result = all.parse({"-m",
                                        "m.gguf",
                                        "--n-gpu-layers",
                                        "999",
                                        "-ngl",
                                        "all",
                                        "--n-cpu-moe",
                                        "4",
                                        "--flash-attn",
                                        "on",
                                        "--cache-type-k",
                                        "f32",
                                        "-b",
                                        "1024",
                                        "-ub",
                                        "512",
                                        "--ctx-size=32768",
                                        "--jinja",
                                        "--kv-unified",
                                        "--no-mmap",
                                        "--mlock",
                                        "-t",
                                        "8",
                                        "-tb",
                                        "16",
                                        "--cpu-mask",
                                        "0xF0A",
                                        "--no-host",
                                        "--no-warmup",
                                        "--override-kv",
                                        "tokenizer.ggml.pre=str:qwen2",
                                        "--logit-bias",
                                        "15043-1",
                                        "-l",
                                        "2+0.5",
                                        "--temp",
                                        "0"});
  EXPECT_EQ(all.model.path, "m.gguf");
  EXPECT_EQ(all.model.overrides, std::vector<std::string>{"tokenizer.ggml.pre=str:qwen2"});
  EXPECT_EQ(all.compute.context, 32768u);
  EXPECT_EQ(all.compute.batch, 1024u);
  EXPECT_EQ(all.compute.micro_batch, 512u);
  EXPECT_EQ(all.compute.cache_keys, ops::cpu::CacheType::kF32);
  EXPECT_EQ(all.compute.cache_values, ops::cpu::CacheType::kF16);
  EXPECT_EQ(all.sampling.temperature, 0.0f);
  EXPECT_EQ(all.sampling.logit_bias, (std::vector<std::string>{"15043-1", "2+0.5"}));
  EXPECT_EQ(all.compute.threads, 8u);
  EXPECT_EQ(all.compute.threads_batch, 16u);
  EXPECT_EQ(all.compute.cpus, (std::vector<int>{1, 3, 8, 9, 10, 11}));
  EXPECT_TRUE(all.compute.lock_memory);
  EXPECT_EQ(result.notices.size(), 8u);
}

TEST(CommonOptions, SeedMinusOneMeansANewOne) {
  Everything all;
  all.parse({"-m", "m", "--seed", "18446744073709551615"});
  EXPECT_EQ(all.sampling.seed, UINT64_MAX);
  all.parse({"-m", "m", "--seed", "7", "--seed", "-1"});
  EXPECT_FALSE(all.sampling.seed.has_value());
}

TEST(CommonOptions, ValuesThatMeanNothingAreRefused) {
  for (const char* wrong : {"--temp=-0.1", "--top-p=1.5", "--min-p=-1", "-ub=0", "--threads=0", "-ctk=f64",
                            "--top-k=-1", "-C=0x0", "-C=", "-C=0xG", "-C=-1", "-tb=0"}) {
    EXPECT_THROW(Everything().parse({"-m", "m", wrong}), Error) << wrong;
  }
}

}  // namespace
}  // namespace sluice::cli
