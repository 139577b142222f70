// Golden vectors made with Python's jinja2 set up as transformers does: the selection in tests/data/templates, and the
// full set where $SLUICE_REFERENCE points.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>

#include "base/file.h"
#include "chat/jinja/jinja.h"
#include "support/reference.h"

namespace sluice::jinja {
namespace {

Environment fixed_clock() {
  Environment environment;
  environment.now = [] { return DateTime{2026, 5, 1, 13, 37, 42}; };
  return environment;
}

// The vectors' name of a kind.
std::string_view name_of(FailureKind kind) {
  switch (kind) {
    case FailureKind::kSyntax:
      return "syntax";
    case FailureKind::kUndefined:
      return "undefined";
    case FailureKind::kType:
      return "type";
    case FailureKind::kValue:
      return "value";
    case FailureKind::kZeroDivision:
      return "zero_division";
    case FailureKind::kOverflow:
      return "overflow";
    case FailureKind::kSecurity:
      return "security";
    case FailureKind::kRuntime:
      return "runtime";
    case FailureKind::kRaised:
      return "raised";
    case FailureKind::kRecursion:
      return "recursion";
    case FailureKind::kNoLoader:
      return "no_loader";
    case FailureKind::kLimit:
      return "limit";
    case FailureKind::kUnsupported:
      return "unsupported";
  }
  return "?";
}

const std::string& text_field(const Value& object, std::string_view name) { return field(object, name)->text(); }

struct Outcome {
  std::string text;
  std::optional<TemplateError> error;
};

Outcome render(const std::string& source, const Value& context, const Options& options) {
  try {
    return {Template::parse(source, options).render(context, fixed_clock()), {}};
  } catch (const TemplateError& error) {
    return {{}, error};
  }
}

// Empty when the outcome is what the case asks for.
std::string difference(const Value& test_case, const Outcome& outcome) {
  const bool optional = field(test_case, "optional") != nullptr;
  if (optional && outcome.error && outcome.error->failure() == FailureKind::kUnsupported) return {};
  if (const Value* expected = field(test_case, "expected")) {
    if (outcome.error) return fmt::format("expected text, got {}", outcome.error->what());
    if (outcome.text != expected->text()) return fmt::format("expected\n{}\ngot\n{}", expected->text(), outcome.text);
    return {};
  }
  const Value& error = *field(test_case, "error");
  if (!outcome.error) return fmt::format("expected {}, got text\n{}", text_field(error, "message"), outcome.text);
  const std::string& kind = text_field(error, "kind");
  if (kind != name_of(outcome.error->failure()))
    return fmt::format("expected a {} error, got {}", kind, outcome.error->what());
  if (kind == "raised" && text_field(error, "message") != outcome.error->detail()) {
    return fmt::format("expected the message {}, got {}", text_field(error, "message"), outcome.error->detail());
  }
  const Value* line = field(error, "line");
  if (kind == "recursion") line = nullptr;  // where Python's stack happened to end
  if (line != nullptr && line->as_int() != outcome.error->line()) {
    return fmt::format("expected line {}, got {}", line->as_int(), outcome.error->what());
  }
  return {};
}

Options options_of(const Value& test_case) {
  Options out;
  const Value& options = *field(test_case, "options");
  if (const Value* value = field(options, "trim_blocks")) out.trim_blocks = value->as_bool();
  if (const Value* value = field(options, "lstrip_blocks")) out.lstrip_blocks = value->as_bool();
  if (const Value* value = field(options, "keep_trailing_newline")) out.keep_trailing_newline = value->as_bool();
  return out;
}

void check_file(const std::string& path) {
  const Value cases = from_json(read_text_file(path));
  ASSERT_FALSE(cases.items().empty());
  for (const Value& test_case : cases.items()) {
    const std::string& source = text_field(test_case, "template");
    const Outcome outcome = render(source, *field(test_case, "context"), options_of(test_case));
    const std::string wrong = difference(test_case, outcome);
    EXPECT_TRUE(wrong.empty()) << text_field(test_case, "name") << ": " << source << "\n" << wrong;
  }
}

// Every template of real.json with its conversations: the variables are the conversation's and the special tokens.
void check_real_templates(const std::string& folder) {
  std::map<std::string, Value> conversations;
  const Value list = from_json(read_text_file(folder + "/conversations.json"));
  for (const Value& entry : list.items()) conversations.emplace(text_field(entry, "name"), *field(entry, "context"));
  std::map<std::string, Value> special_tokens;
  const Value index = from_json(read_text_file(folder + "/real/index.json"));
  for (const Value& entry : index.items()) {
    special_tokens.emplace("real/" + text_field(entry, "file"), *field(entry, "special_tokens"));
  }
  const Value cases = from_json(read_text_file(folder + "/real.json"));
  ASSERT_FALSE(cases.items().empty());
  for (const Value& test_case : cases.items()) {
    const std::string& file = text_field(test_case, "template_file");
    Dict context;
    for (const auto& [name, value] : special_tokens.at(file).as_dict().entries()) context.set(name, value);
    const Value& conversation = conversations.at(text_field(test_case, "conversation"));
    for (const auto& [name, value] : conversation.as_dict().entries()) context.set(name, value);
    const Outcome outcome = render(read_text_file(folder + "/" + file), Value::dict(std::move(context)), {});
    const std::string wrong = difference(test_case, outcome);
    EXPECT_TRUE(wrong.empty()) << text_field(test_case, "name") << "\n" << wrong;
  }
}

std::string selection() { return test::test_data_dir() + "/templates"; }

TEST(JinjaSelection, LanguageCasesRenderAsInPython) { check_file(selection() + "/jinja.json"); }
TEST(JinjaSelection, RealTemplatesRenderAsInPython) { check_real_templates(selection()); }

class JinjaReference : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto root = test::reference_root();
    if (!root) GTEST_SKIP() << test::kNoReference;
    folder_ = *root + "/templates";
  }
  std::string folder_;
};

TEST_F(JinjaReference, HandWrittenCasesRenderAsInPython) { check_file(folder_ + "/jinja.json"); }
TEST_F(JinjaReference, RandomCasesRenderAsInPython) { check_file(folder_ + "/jinja-fuzz.json"); }
TEST_F(JinjaReference, WhitespaceOptionsWorkAsInPython) { check_file(folder_ + "/jinja-options.json"); }
TEST_F(JinjaReference, RealTemplatesRenderAsInPython) { check_real_templates(folder_); }

}  // namespace
}  // namespace sluice::jinja
