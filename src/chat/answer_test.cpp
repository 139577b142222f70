// What is read out of golden answers (tests/data/answers), however they are cut, and what is known while they come.
#include "chat/answer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "base/file.h"
#include "base/utf8.h"
#include "chat/jinja/jinja.h"
#include "support/reference.h"

namespace sluice {

bool operator==(const ParsedCall& a, const ParsedCall& b) { return a.name == b.name && a.arguments == b.arguments; }
bool operator==(const ParsedAnswer& a, const ParsedAnswer& b) {
  return a.reasoning == b.reasoning && a.content == b.content && a.calls == b.calls;
}
std::ostream& operator<<(std::ostream& out, const ParsedAnswer& answer) {
  out << "reasoning [" << answer.reasoning << "] content [" << answer.content << "]";
  for (const ParsedCall& call : answer.calls) out << " call " << call.name << " " << call.arguments;
  return out;
}

namespace {

using Json = nlohmann::json;
using Kind = AnswerDelta::Kind;

struct Golden {
  std::string name, text;
  bool inside = false, has_tools = true;
  ParsedAnswer expected;
};

std::string data(const std::string& file) { return read_text_file(test::test_data_dir() + "/answers/" + file); }

std::vector<Golden> golden_answers() {
  std::vector<Golden> out;
  std::istringstream lines(data("golden.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const Json json = Json::parse(line);
    Golden golden{json.at("name"), json.at("text"), json.value("inside", false), json.value("tools", true), {}};
    golden.expected = {json.value("reasoning", ""), json.value("content", ""), {}};
    for (const Json& call : json.value("calls", Json::array())) golden.expected.calls.push_back({call[0], call[1]});
    out.push_back(std::move(golden));
  }
  return out;
}

const ToolSet& tools() {
  static const ToolSet set(jinja::from_json(data("tools.json")));
  return set;
}
const ToolSet kNoTools;

ParsedAnswer read(const Golden& golden, const std::vector<std::string_view>& pieces) {
  AnswerParser parser(golden.has_tools ? tools() : kNoTools, golden.inside);
  ParsedAnswer out;
  const auto add = [&](const std::vector<AnswerDelta>& deltas) {
    for (const AnswerDelta& delta : deltas) {
      EXPECT_FALSE(delta.text.empty());
      EXPECT_TRUE(utf8::is_valid(delta.text));
      out.add(delta);
    }
  };
  for (const std::string_view piece : pieces) add(parser.feed(piece));
  add(parser.finish());
  return out;
}

TEST(AnswerParser, ReadsGoldenAnswers) {
  const std::vector<Golden> answers = golden_answers();
  ASSERT_GT(answers.size(), 50u);
  for (const Golden& golden : answers) EXPECT_EQ(read(golden, {golden.text}), golden.expected) << golden.name;
}

TEST(AnswerParser, ArgumentsAreAlwaysAnObjectWhereverTheOutputEnds) {
  for (Golden golden : golden_answers()) {
    const std::string whole = golden.text;
    for (size_t size = 0; size <= whole.size(); ++size) {
      golden.text = whole.substr(0, size);
      for (const ParsedCall& call : read(golden, {golden.text}).calls) {
        const Json arguments = Json::parse(call.arguments, nullptr, false);
        EXPECT_TRUE(arguments.is_object()) << golden.name << " " << size << ": " << call.arguments;
      }
    }
  }
}

TEST(AnswerParser, NoCutMatters) {
  for (const Golden& golden : golden_answers()) {
    const std::string_view text = golden.text;
    for (size_t first = 0; first <= text.size(); ++first) {
      ASSERT_EQ(read(golden, {text.substr(0, first), text.substr(first)}), golden.expected) << golden.name << first;
    }
    std::vector<std::string_view> bytes;
    for (size_t i = 0; i < text.size(); ++i) bytes.push_back(text.substr(i, 1));
    ASSERT_EQ(read(golden, bytes), golden.expected) << golden.name;
  }
}

TEST(AnswerParser, NoRandomCutsMatter) {
  uint32_t x = 1;
  const auto random = [&] { return (x = x * 1664525u + 1013904223u) >> 16; };
  for (const Golden& golden : golden_answers()) {
    for (int round = 0; round < 50; ++round) {
      std::vector<std::string_view> pieces;
      for (std::string_view left = golden.text; !left.empty();) {
        const size_t size = std::min<size_t>(random() % 9, left.size());
        pieces.push_back(left.substr(0, size));
        left.remove_prefix(size);
      }
      ASSERT_EQ(read(golden, pieces), golden.expected) << golden.name;
    }
  }
}

std::string show(const std::vector<AnswerDelta>& deltas) {
  std::string out;
  for (const AnswerDelta& delta : deltas) {
    constexpr const char* kNames[] = {"reasoning", "content", "call", "arguments"};
    out +=
        std::string(kNames[static_cast<int>(delta.kind)]) + "[" + delta.text + "]" + std::to_string(delta.call) + " ";
  }
  return out;
}

TEST(AnswerParser, GivesWhatIsCertainAtOnce) {
  AnswerParser parser(tools(), true);
  EXPECT_EQ(show(parser.feed("I th")), "reasoning[I th]0 ");
  EXPECT_TRUE(parser.in_reasoning());
  EXPECT_EQ(show(parser.feed("ink.\n</think>\n\nOne <")), "reasoning[ink.]0 content[One]0 ");
  EXPECT_FALSE(parser.in_reasoning());
  EXPECT_EQ(show(parser.feed("b>")), "content[ <b>]0 ");
  EXPECT_EQ(show(parser.feed("\n<tool_call>\n<function=write_file")), "");
  EXPECT_EQ(show(parser.feed(">\n")), "call[write_file]0 arguments[{]0 ");
  EXPECT_EQ(show(parser.feed("<parameter=text>\n")), "arguments[\"text\": \"]0 ");
  EXPECT_EQ(show(parser.feed("a \"b\"")), "arguments[a \\\"b\\\"]0 ");
  EXPECT_EQ(show(parser.feed("\n")), "");
  EXPECT_EQ(show(parser.feed("c\n</param")), "arguments[\\nc]0 ");
  EXPECT_EQ(show(parser.feed("eter>\n</function>\n</tool_call>\n")), "arguments[\"}]0 ");
  EXPECT_EQ(show(parser.feed("<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"x")),
            "call[now]1 arguments[{\"a\": \"x]1 ");
  EXPECT_EQ(show(parser.finish()), "arguments[\"}]1 ");
  EXPECT_EQ(parser.calls(), 2u);
}

TEST(AnswerParser, ReasoningMayBeLeftInTheContent) {
  AnswerParser parser(kNoTools, true, /*part_reasoning=*/false);
  EXPECT_EQ(show(parser.feed("a</think>")), "content[a</think>]0 ");
  EXPECT_FALSE(parser.in_reasoning());
}

TEST(AnswerParser, InvalidTextBecomesReplacementCharacters) {
  for (const auto& cut :
       std::vector<std::vector<std::string_view>>{{"a\xF0\x9F", "b\xC3"}, {"a\xF0", "\x9F", "b", "\xC3"}}) {
    EXPECT_EQ(read({"", "", false, false, {}}, cut).content,
              "a\xEF\xBF\xBD"
              "b\xEF\xBF\xBD");
    EXPECT_EQ(read({"", "", false, true, {}}, cut).content,
              "a\xEF\xBF\xBD"
              "b\xEF\xBF\xBD");
  }
}

TEST(CallOpening, IsReadAsTheBeginningOfACall) {
  for (const bool inside : {false, true}) {
    AnswerParser xml(tools(), inside), json(tools(), inside), any(tools(), inside), any_json(tools(), inside);
    EXPECT_EQ(show(xml.feed(call_opening(CallFormat::kXml, "now", inside))), "call[now]0 arguments[{]0 ");
    EXPECT_EQ(show(xml.feed("<parameter=a>\n1\n</parameter>\n</function>")), "arguments[\"a\": 1}]0 ");
    json.feed(call_opening(CallFormat::kJson, "now", inside));
    EXPECT_EQ(show(json.feed("{\"a\": 1}}")), "call[now]0 arguments[{\"a\": 1}]0 ");
    any.feed(call_opening(CallFormat::kXml, "", inside));
    EXPECT_EQ(show(any.feed("now>\n")), "call[now]0 arguments[{]0 ");
    any_json.feed(call_opening(CallFormat::kJson, "", inside));
    EXPECT_EQ(show(any_json.feed("now\", \"arguments\": {}")), "call[now]0 arguments[{}]0 ");
  }
}

TEST(CallFormat, IsWhatTheTemplateSpeaksOf) {
  const std::string real = test::test_data_dir() + "/templates/real/";
  for (const char* name : {"Qwen-Qwen3.5-0.8B", "Qwen-Qwen3.6-35B-A3B", "Qwen3.8-27B", "Qwen-Qwen3-Coder-Next"}) {
    EXPECT_EQ(call_format(read_text_file(real + name + ".jinja")), CallFormat::kXml) << name;
  }
  for (const char* name : {"Qwen-Qwen2.5-7B-Instruct", "Qwen-Qwen3-0.6B"}) {
    EXPECT_EQ(call_format(read_text_file(real + name + ".jinja")), CallFormat::kJson) << name;
  }
}

TEST(ToolSet, RefusesWhatHasNoName) {
  EXPECT_TRUE(ToolSet(jinja::Value()).empty());
  EXPECT_NE(ToolSet(jinja::from_json(R"([{"name": "f"}])")).find("f"), nullptr);
  for (const char* bad : {"{}", "[1]", R"([{"type": "function", "function": {}}])", R"([{"name": 3}])"}) {
    try {
      ToolSet set(jinja::from_json(bad));
      FAIL() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      EXPECT_EQ(std::string(error.what()).rfind("tools", 0), 0u) << error.what();
    }
  }
}

TEST(ToolSet, KnowsWhatAParameterMayBe) {
  const ToolSet set(jinja::from_json(R"([{"name": "f", "parameters": {"properties": {
    "s": {"type": "string"}, "n": {"type": "number"}, "e": {"enum": ["a", 1]}, "c": {"const": true},
    "any": {}, "some": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/list"}]}, "opt": {"type": "string", "nullable": true},
    "both": {"allOf": [{"type": ["string", "null"]}, {"type": "string"}]}, "loop": {"$ref": "#/$defs/loop"},
    "gone": {"$ref": "#/$defs/gone"}, "never": {"type": "string", "const": 1}},
    "$defs": {"list": {"type": "array"}, "loop": {"$ref": "#/$defs/loop"}}}}])"));
  const auto types = [&](const char* key) { return int{set.find("f")->types_of(key)}; };
  EXPECT_EQ(types("s"), kJsonString);
  EXPECT_EQ(types("n"), kJsonInteger | kJsonFraction);
  EXPECT_EQ(types("e"), kJsonString | kJsonInteger);
  EXPECT_EQ(types("c"), kJsonBoolean);
  EXPECT_EQ(types("some"), kJsonString | kJsonArray);
  EXPECT_EQ(types("opt"), kJsonString | kJsonNull);
  EXPECT_EQ(types("both"), kJsonString);
  for (const char* key : {"any", "loop", "gone", "never", "unknown"}) EXPECT_EQ(types(key), kJsonAny) << key;
}

}  // namespace
}  // namespace sluice
