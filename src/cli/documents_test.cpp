#include "cli/documents.h"

#include <gtest/gtest.h>

#include <sstream>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/program.h"

namespace sluice::cli {
namespace {

struct SampleOptions {
  int threads = 4;
  std::string model;
  std::string type = "f16";
  bool mmap = true;

  void declare(OptionTable& table) {
    table.group("Model");
    table.option("-m, --model", "FILE", "the model's GGUF file; [any] it's: architecture", &model,
                 {.env = "MODEL", .required = true});
    table.group("Compute");
    table.option("-t, --threads", "N", "threads that compute", &threads, {.default_text = "one per core"});
    table.option("-ctk, --cache-type-k", "TYPE", "type of the cached keys", &type, {.choices = {"f16", "f32"}});
    table.flag("--mmap | --no-mmap", "map the file", &mmap);
  }
};

int seen_threads = 0;
int run_sample(const SampleOptions& options) {
  seen_threads = options.threads;
  if (options.model == "bad") fail(ErrorKind::kFormat, "bad: not a GGUF file");
  return 0;
}

std::vector<Command> sample_commands() {
  return {make_command<SampleOptions>({.name = "sample",
                                       .summary = "show how it's done",
                                       .description = "First paragraph.\n\n.Second one.",
                                       .usage = {"-m FILE [options]"},
                                       .examples = {{"sluice sample -m m.gguf", "do it once"}}},
                                      run_sample)};
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string help_at(int width) {
  const auto commands = sample_commands();
  return command_help(commands[0].text, commands[0].prepare()->table(), width);
}

TEST(Help, ShowsGroupsNamesDefaultsChoicesAndEnvironment) {
  const std::string help = help_at(200);
  EXPECT_TRUE(has(help, "Usage: sluice sample -m FILE [options]\n")) << help;
  EXPECT_TRUE(has(help, "\nCompute\n  -t, --threads N             threads that compute (default: one per core)\n"));
  EXPECT_TRUE(has(help, "(required; env: SLUICE_MODEL)"));
  EXPECT_TRUE(has(help, "  -ctk, --cache-type-k TYPE   type of the cached keys (one of f16, f32; default: f16)\n"));
  EXPECT_TRUE(has(help, "  --mmap, --no-mmap           map the file (default: on)\n"));
}

TEST(Help, WrapsAtTheTerminalsWidth) {
  for (const int width : {60, 80, 100}) {
    std::istringstream lines(help_at(width));
    for (std::string line; std::getline(lines, line);) {
      EXPECT_TRUE(line.starts_with("  sluice") || line.size() <= static_cast<size_t>(width)) << line;
    }
  }
}

TEST(ManPage, NoTextBecomesARequest) {
  const std::string page = man_page(sample_commands());
  EXPECT_TRUE(has(page, "\n\\&.Second one.\n")) << page;
  EXPECT_TRUE(has(page, ".B \\-t, \\-\\-threads N\n"));
}

TEST(Completion, EveryNameOfEveryOptionIsOfferedInEveryShell) {
  for (const Shell shell : {Shell::kBash, Shell::kZsh, Shell::kFish}) {
    const std::string script = completion_script(shell, sample_commands());
    for (const char* name : {"sample", "model", "threads", "ctk", "cache-type-k", "no-mmap", "f16 f32"}) {
      EXPECT_TRUE(has(script, name)) << name << " in\n" << script;
    }
  }
}

TEST(Commands, TheProgramsOwnTextsAreWellFormed) {
  for (const Command& command : all_commands()) {
    EXPECT_FALSE(command.text.usage.empty()) << command.text.name;
    EXPECT_FALSE(command.text.summary.empty() || command.text.summary.back() == '.') << command.text.name;
    const auto invocation = command.prepare();
    for (const Option& option : invocation->table().options()) {
      EXPECT_FALSE(option.help.empty()) << command.text.name << ' ' << option.canonical();
    }
  }
}

class ProgramTest : public testing::Test {
 protected:
  int run(const std::vector<std::string>& arguments) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = run_program(sample_commands(), arguments, [](const std::string&) { return std::nullopt; });
    out_ = testing::internal::GetCapturedStdout();
    err_ = testing::internal::GetCapturedStderr();
    return code;
  }
  std::string out_, err_;
};

TEST_F(ProgramTest, ExitCodesTellDoneFailedAndUsage) {
  EXPECT_EQ(run({"sample", "-m", "good", "-t", "3"}), 0);
  EXPECT_EQ(seen_threads, 3);
  EXPECT_EQ(err_, "");
  EXPECT_EQ(run({"sample", "-m", "bad"}), 1);
  EXPECT_EQ(err_, "error: bad: not a GGUF file\n");
  EXPECT_EQ(run({"sample", "-m", "good", "--nomap"}), 2);
  EXPECT_EQ(err_, "error: unknown option --nomap; did you mean --no-mmap? (see `sluice sample --help`)\n");
  EXPECT_EQ(run({"smaple"}), 2);
  EXPECT_EQ(err_, "error: unknown command 'smaple'; did you mean sample?; `sluice --help` lists the commands\n");
  EXPECT_EQ(out_, "");
}

TEST_F(ProgramTest, ErrorsAreOneLine) {
  EXPECT_EQ(run({"sample\nx\ny"}), 2);
  EXPECT_EQ(std::count(err_.begin(), err_.end(), '\n'), 1) << err_;
}

TEST_F(ProgramTest, HelpIsAnsweredEverywhere) {
  EXPECT_EQ(run({"--help"}), 0);
  EXPECT_TRUE(has(out_, "  sample  "));
  EXPECT_EQ(run({"help", "sample"}), 0);
  const std::string help = out_;
  EXPECT_EQ(run({"sample", "--help"}), 0);
  EXPECT_EQ(out_, help);
  EXPECT_EQ(run({}), 2);
  EXPECT_EQ(out_, "");
}

}  // namespace
}  // namespace sluice::cli
