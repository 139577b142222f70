#include "cli/options.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"

namespace sluice::cli {
namespace {

enum class CacheType { kF16, kQ8 };

struct Sample {
  int threads = 4;
  int64_t layers = 0;
  float temperature = 0.8f;
  std::string prompt;
  std::optional<uint32_t> seed;
  std::vector<std::string> overrides = {"default"};
  uint64_t memory = uint64_t{6} << 30;
  CacheType cache = CacheType::kF16;
  bool mmap = true;
  bool json = false;

  void declare(OptionTable& table) {
    table.group("Compute");
    table.option("-t, --threads", "N", "threads", &threads, {.env = "THREADS", .min = 1, .max = 512});
    table.option("-ngl, --gpu-layers, --n-gpu-layers", "N", "layers", &layers);
    table.option("--temp, --temperature-of-sampling", "T", "temperature", &temperature, {.min = 0});
    table.option("-p, --prompt", "TEXT", "prompt", &prompt);
    table.option("-s, --seed", "N", "seed", &seed);
    table.option("--override-kv", "KEY=TYPE:VALUE", "metadata", &overrides, {.env = "OVERRIDE_KV"});
    table.size("--expert-memory", "memory", &memory);
    table.choice("-ctk, --cache-type-k", "TYPE", "type", &cache, {{"f16", CacheType::kF16}, {"q8_0", CacheType::kQ8}});
    table.flag("--mmap | --no-mmap", "map", &mmap, {.env = "MMAP"});
    table.flag("--json", "json", &json);
    table.accept("--mlock", "", "nothing is locked");
    table.accept("--device", "NAME", "there is one device");
    table.accept("-kvu, --kv-unified | -no-kvu, --no-kv-unified", "", "there is one cache");
  }
};

class OptionsTest : public testing::Test {
 protected:
  OptionsTest() { sample_.declare(table_); }

  ParseResult parse(const std::vector<std::string>& arguments) {
    return table_.parse(arguments, [this](const std::string& name) {
      const auto found = environment_.find(name);
      return found == environment_.end() ? std::nullopt : std::optional<std::string>(found->second);
    });
  }

  std::string error_of(const std::vector<std::string>& arguments) {
    try {
      parse(arguments);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      return error.what();
    }
    return "no error";
  }

  Sample sample_;
  OptionTable table_;
  std::map<std::string, std::string> environment_;
};

TEST_F(OptionsTest, EverySpellingOfAnOptionSetsIt) {
  for (const char* name : {"-ngl", "--gpu-layers", "--n-gpu-layers", "--n_gpu_layers"}) {
    sample_.layers = 0;
    parse({name, "99"});
    EXPECT_EQ(sample_.layers, 99) << name;
    parse({std::string(name) + "=98"});
    EXPECT_EQ(sample_.layers, 98) << name;
  }
}

TEST_F(OptionsTest, EveryKindOfValueIsRead) {
  parse({"-t", "7", "--temp", "1e-1", "-p", "two words", "--seed", "4294967295", "--expert-memory", "1.5GiB", "-ctk",
         "q8_0", "--json"});
  EXPECT_EQ(sample_.threads, 7);
  EXPECT_FLOAT_EQ(sample_.temperature, 0.1f);
  EXPECT_EQ(sample_.prompt, "two words");
  EXPECT_EQ(sample_.seed, 4294967295u);
  EXPECT_EQ(sample_.memory, uint64_t{3} << 29);
  EXPECT_EQ(sample_.cache, CacheType::kQ8);
  EXPECT_TRUE(sample_.json);
}

TEST_F(OptionsTest, WhatIsNotGivenKeepsItsDefault) {
  parse({});
  EXPECT_EQ(sample_.threads, 4);
  EXPECT_FALSE(sample_.seed.has_value());
  EXPECT_TRUE(sample_.mmap);
  EXPECT_EQ(sample_.overrides, std::vector<std::string>{"default"});
}

TEST_F(OptionsTest, ValuesMayBeginWithADash) {
  parse({"-ngl", "-1", "-p", "-"});
  EXPECT_EQ(sample_.layers, -1);
  EXPECT_EQ(sample_.prompt, "-");
  parse({"--prompt=--json"});
  EXPECT_EQ(sample_.prompt, "--json");
  parse({"-p", "- a list item", "-p="});
  EXPECT_EQ(sample_.prompt, "");
  EXPECT_FALSE(sample_.json);
}

TEST_F(OptionsTest, NegatedNamesTurnFlagsOffAndTheLastSpellingWins) {
  parse({"--no-mmap"});
  EXPECT_FALSE(sample_.mmap);
  parse({"--no-mmap", "--mmap", "-t", "1", "-t", "2"});
  EXPECT_TRUE(sample_.mmap);
  EXPECT_EQ(sample_.threads, 2);
}

TEST_F(OptionsTest, RepeatedOptionsCollectAndReplaceTheDefault) {
  parse({"--override-kv", "a=int:1", "--override-kv=b=str:x=y"});
  EXPECT_EQ(sample_.overrides, (std::vector<std::string>{"a=int:1", "b=str:x=y"}));
}

TEST_F(OptionsTest, CommandLineWinsOverEnvironmentAndSluiceOverLlama) {
  environment_ = {{"LLAMA_ARG_THREADS", "3"}, {"LLAMA_ARG_MMAP", "off"}, {"LLAMA_ARG_OVERRIDE_KV", "from=str:env"}};
  parse({});
  EXPECT_EQ(sample_.threads, 3);
  EXPECT_FALSE(sample_.mmap);
  environment_["SLUICE_THREADS"] = "5";
  parse({});
  EXPECT_EQ(sample_.threads, 5);
  parse({"-t", "6", "--mmap", "--override-kv", "a=int:1"});
  EXPECT_EQ(sample_.threads, 6);
  EXPECT_TRUE(sample_.mmap);
  EXPECT_EQ(sample_.overrides, std::vector<std::string>{"a=int:1"});
}

TEST_F(OptionsTest, ErrorsNameOptionValueAndRemedy) {
  EXPECT_EQ(error_of({"--treads", "4"}), "unknown option --treads; did you mean --threads?");
  EXPECT_EQ(error_of({"--temprature", "0"}), "unknown option --temprature; did you mean --temp?");
  EXPECT_EQ(error_of({"--qqqqqq"}), "unknown option --qqqqqq");
  EXPECT_EQ(error_of({"-t"}), "option -t needs a value: -t N");
  EXPECT_EQ(error_of({"-t", "--json"}),
            "option -t needs a value, but --json follows; write -t=--json if that is the value");
  EXPECT_EQ(error_of({"-t", "four"}), "option -t: 'four' is not a whole number");
  EXPECT_EQ(error_of({"-t", "4.5"}), "option -t: '4.5' is not a whole number");
  EXPECT_EQ(error_of({"--threads=0"}), "option --threads: 0 is too small; the least is 1");
  EXPECT_EQ(error_of({"--threads=513"}), "option --threads: 513 is too large; the most is 512");
  EXPECT_EQ(error_of({"-t", "99999999999999999999"}),
            "option -t: 99999999999999999999 is out of range: it must lie from -2147483648 to 2147483647");
  EXPECT_EQ(error_of({"--seed", "-1"}), "option --seed: '-1' is not a whole number of zero or more");
  EXPECT_EQ(error_of({"--temp", "nan"}), "option --temp: 'nan' is not a number in range");
  EXPECT_EQ(error_of({"--temp", "1e300"}), "option --temp: '1e300' is not a number in range");
  EXPECT_EQ(error_of({"-ctk", "q9"}), "option -ctk: 'q9' is not a known value; it must be one of f16, q8_0");
  EXPECT_EQ(error_of({"--json=yes"}), "option --json takes no value; leave '=yes' out");
  EXPECT_EQ(error_of({"stray"}), "unexpected argument 'stray'");
  environment_ = {{"SLUICE_THREADS", ""}};
  EXPECT_EQ(error_of({}), "environment variable SLUICE_THREADS: '' is not a whole number");
}

TEST_F(OptionsTest, AcceptedOptionsAreNoticedOnce) {
  const ParseResult result = parse({"--mlock", "--device", "CUDA0", "--mlock"});
  EXPECT_EQ(result.notices, (std::vector<std::string>{"--mlock: nothing is locked", "--device: there is one device"}));
  EXPECT_EQ(parse({"-no-kvu"}).notices, std::vector<std::string>{"--no-kv-unified: there is one cache"});
  EXPECT_EQ(parse({"-kvu"}).notices, std::vector<std::string>{"--kv-unified: there is one cache"});
  EXPECT_TRUE(parse({"-t", "1"}).notices.empty());
}

TEST_F(OptionsTest, HelpIsAnsweredBeforeAnythingIsChecked) {
  EXPECT_TRUE(parse({"-h"}).help);
  EXPECT_TRUE(parse({"-t", "9999", "--help", "stray"}).help);
  EXPECT_EQ(error_of({"-t", "--help"}),
            "option -t needs a value, but --help follows; write -t=--help if that is the value");
}

TEST(OptionTable, PositionalsAreFilledInOrder) {
  std::string in;
  std::optional<std::string> out;
  bool json = false;
  OptionTable table;
  table.positional("IN", "file to read", &in);
  table.positional("OUT", "file to write", &out);
  table.flag("--json", "json", &json);
  const auto parse = [&table](const std::vector<std::string>& arguments) {
    table.parse(arguments, [](const std::string&) { return std::nullopt; });
  };
  parse({"a"});
  EXPECT_EQ(in, "a");
  EXPECT_FALSE(out.has_value());
  parse({"-", "--json", "--", "--json"});
  EXPECT_EQ(in, "-");
  EXPECT_EQ(out, "--json");
  EXPECT_TRUE(json);
  EXPECT_THROW(parse({}), Error);
  EXPECT_THROW(parse({"a", "b", "c"}), Error);
}

TEST(OptionTable, RepeatablePositionalTakesTheRest) {
  std::vector<std::string> files;
  OptionTable table;
  table.positional("FILE", "files", &files);
  const std::vector<std::string> arguments = {"a", "b", "c"};
  table.parse(arguments, [](const std::string&) { return std::nullopt; });
  EXPECT_EQ(files, arguments);
}

TEST(OptionTable, RequiredOptionsMayComeFromTheEnvironment) {
  std::string model;
  OptionTable table;
  table.option("-m, --model", "FILE", "model", &model, {.env = "MODEL", .required = true});
  EXPECT_THROW(table.parse({}, [](const std::string&) { return std::nullopt; }), Error);
  table.parse({}, [](const std::string& name) {
    return name == "SLUICE_MODEL" ? std::optional<std::string>("m.gguf") : std::nullopt;
  });
  EXPECT_EQ(model, "m.gguf");
}

TEST(OptionTable, ANameDeclaredTwiceIsRefused) {
  bool a = false;
  OptionTable table;
  table.flag("--json", "json", &a);
  EXPECT_THROW(table.flag("--xml, --json", "xml", &a), Error);
}

TEST(OptionValues, SizesHaveUnitsOfPowersOf1024) {
  EXPECT_EQ(parse_size("0"), 0u);
  EXPECT_EQ(parse_size("9007199254740993"), 9007199254740993u);
  for (const char* six : {"6GiB", "6GB", "6G", "6g", "6gib", "6144MiB", "6442450944", "6442450944B"}) {
    EXPECT_EQ(parse_size(six), 6442450944u) << six;
  }
  EXPECT_EQ(parse_size("0.5k"), 512u);
  for (const char* wrong : {"", "G", "-1", "1X", "1 G", "1GiBs", "1e3", "1..5", "99999999999T"}) {
    EXPECT_THROW(parse_size(wrong), Error) << wrong;
  }
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1000}, uint64_t{1536} << 20, uint64_t{6} << 30}) {
    EXPECT_EQ(parse_size(format_size(bytes)), bytes);
  }
  EXPECT_EQ(format_size(uint64_t{6} << 30), "6GiB");
}

}  // namespace
}  // namespace sluice::cli
