// Answers of models: the first byte says how the prompt ended and where to cut, the rest is what the model wrote.
// Always:
//   nothing is thrown, all deltas are valid UTF-8, and arguments of calls are JSON objects that jinja::from_json reads;
//   cut anywhere, the parts are the same;
//   no text is lost: the letters G to Z, which no mark and no number has, come out in the order in which they went in
//   (but N and T, for Python's None and True become null and true).
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "chat/answer.h"
#include "chat/jinja/jinja.h"

namespace {

using namespace sluice;

const ToolSet& tools() {
  static const ToolSet set(jinja::from_json(R"([
    {"name": "f", "parameters": {"properties": {"a": {"type": "string"}, "b": {"type": "integer"}, "c": {}}}},
    {"name": "g"}])"));
  return set;
}

void require(bool condition) {
  if (!condition) std::abort();
}

std::string letters(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c >= 'G' && c <= 'Z' && c != 'N' && c != 'T') out += c;
  }
  return out;
}

struct Outcome {
  ParsedAnswer answer;
  std::string letters;  // of all deltas, in their order
};

Outcome read(const ToolSet& set, bool inside, std::string_view text, size_t piece_bytes) {
  AnswerParser parser(set, inside);
  Outcome out;
  const auto add = [&](const std::vector<AnswerDelta>& deltas) {
    for (const AnswerDelta& delta : deltas) {
      require(!delta.text.empty() && utf8::is_valid(delta.text));
      out.answer.add(delta);
      out.letters += letters(delta.text);
    }
  };
  for (; !text.empty(); text.remove_prefix(std::min(piece_bytes, text.size())))
    add(parser.feed(text.substr(0, piece_bytes)));
  add(parser.finish());
  require(parser.calls() == out.answer.calls.size());
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const bool inside = data[0] % 2 == 1;
  const size_t piece_bytes = 1 + data[0] / 2 % 16;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Outcome whole = read(tools(), inside, text, text.size());
  const Outcome cut = read(tools(), inside, text, piece_bytes);
  require(whole.letters == letters(text));
  require(cut.letters == whole.letters);
  require(cut.answer.reasoning == whole.answer.reasoning && cut.answer.content == whole.answer.content);
  require(cut.answer.calls.size() == whole.answer.calls.size());
  for (size_t i = 0; i < whole.answer.calls.size(); ++i) {
    require(cut.answer.calls[i].name == whole.answer.calls[i].name);
    require(cut.answer.calls[i].arguments == whole.answer.calls[i].arguments);
    require(jinja::from_json(whole.answer.calls[i].arguments).is(jinja::Type::kDict));
  }
  const ToolSet none;
  require(read(none, inside, text, piece_bytes).letters == letters(text));
  return 0;
}
